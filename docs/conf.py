"""The documentation site: `make docs` builds it, without a network, and a warning is an error."""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
os.environ.setdefault("MPLBACKEND", "agg")

import command_page
import pictures
import reference
from sphinx_gallery.sorting import FileNameSortKey

import richcomponents

project = "richcomponents"
author = "The richcomponents developers"
project_copyright = author
version = release = richcomponents.__version__

extensions = [
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
    "sphinx-mathjax-offline",
]
exclude_patterns = ["_build", "tutorials", "**sg_execution_times*"]
nitpicky = True
nitpick_ignore = [("py:class", "richcomponents.errors._Plain")]

# ---- text
myst_enable_extensions = ["colon_fence", "dollarmath", "amsmath", "deflist", "attrs_inline"]
myst_heading_anchors = 3
myst_links_external_new_tab = False
default_role = "literal"

# ---- docstrings
autodoc_typehints = "none"
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
numpydoc_show_class_members = False
toc_object_entries_show_parents = "hide"
python_display_short_literal_types = True

# ---- tutorials: run at every build


def warn_without_paths(conf: object, script: str) -> None:
    """What a tutorial warns of is shown in words, without the folder that the site was built in."""
    warnings.formatwarning = lambda message, category, *where, **line: f"{category.__name__}: {message}\n"


sphinx_gallery_conf = {
    "examples_dirs": "tutorials",
    "gallery_dirs": "auto_tutorials",
    "filename_pattern": r".*\.py",
    "within_subsection_order": FileNameSortKey,
    "abort_on_example_error": True,
    "download_all_examples": False,
    "show_memory": False,
    "show_signature": False,
    "min_reported_time": 1,
    "remove_config_comments": True,
    "capture_repr": ("_repr_html_", "__repr__"),
    "ignore_repr_types": r"matplotlib|Axes|Figure|list",
    "image_srcset": ["2x"],
    "copyfile_regex": r"^$",
    "reset_modules": ("matplotlib", warn_without_paths),
}
copybutton_prompt_text = ">>> "
copybutton_exclude = ".linenos, .gp, .go"
suppress_warnings = ["config.cache"]  # sphinx-gallery's configuration holds a class

# ---- pages
html_theme = "pydata_sphinx_theme"
html_title = f"richcomponents {release}"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_copy_source = False
html_theme_options = {
    "logo": {"text": "richcomponents"},
    "navbar_align": "left",
    "header_links_before_dropdown": 6,
    "show_prev_next": True,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "pygments_light_style": "tango",
    "pygments_dark_style": "github-dark",
}
html_sidebars = {"index": []}


def setup(app: object) -> None:
    """What is drawn and generated before pages are read."""
    reference.write_pages(HERE / "api")
    command_page.write(HERE / "api" / "rca.md")
    pictures.draw_all(HERE / "pictures")
    for page in (HERE / "auto_tutorials").glob("t*.rst"):
        if not (HERE / "tutorials" / page.with_suffix(".py").name).exists():
            page.unlink()  # of a tutorial that is gone
    app.connect(
        "autodoc-process-docstring", reference.escape_names, priority=900
    )  # after numpydoc, whose priority is 500
