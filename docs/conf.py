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

# Each name that a docstring refers to must exist.
nitpicky = True

html_theme = "furo"
html_title = f"rpcmq {release}"
html_copy_source = False
html_show_sourcelink = False
html_show_copyright = False
html_last_updated_fmt = None
