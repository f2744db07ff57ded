"""What the command line reads: files into one `FileTable` of named columns, columns into a `Selection` of two views."""

from richcomponents.tables.columns import Selection, first_text, select
from richcomponents.tables.files import FileTable, digest, join_files, read_table

__all__ = ["FileTable", "Selection", "digest", "first_text", "join_files", "read_table", "select"]
