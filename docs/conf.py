"""Settings of Sphinx, which builds the site: ``make docs``. A code host shows the same pages as they stand."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

import rpcmq  # noqa: E402

project = "rpcmq"
author = "The rpcmq authors"
version = release = rpcmq.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "docs.site.pages"]
exclude_patterns = ["conf.py", "site"]
myst_heading_anchors = 6
myst_enable_extensions = ["deflist"]

autodoc_member_order = "bysource"
autodoc_preserve_defaults = True

# Each name that a docstring refers to must be in the reference, but for those of annotations that are not.
nitpicky = True
nitpick_ignore_regex = [
    ("py:class", r"(collections\.abc|contextvars|enum|re|types|typing)\..*"),
    ("py:class", r"rpcmq\.(aio|client|config|core|payload|server|transport|wire)\..*"),
    ("py:class", r"([\w.]*\.)?[A-Z]"),
    ("py:class", "RouterConfig"),
    ("py:exc", "Malformed"),
]

html_theme = "furo"
html_title = f"rpcmq {release}"
html_copy_source = False
html_show_sourcelink = False
html_show_copyright = False
html_last_updated_fmt = None
