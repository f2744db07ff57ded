"""Sources of rows: one reader per kind of file, read in blocks, only the needed columns, in bounded memory."""
