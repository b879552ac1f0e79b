"""Node and Chromium, where they are installed."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from rpcmq.gateway import pages

SCRIPTS = Path(__file__).parent / "javascript"
CLIENT = Path(pages.__file__).parent / "static"
NODE = shutil.which("node") or shutil.which("nodejs")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

needs_node = pytest.mark.skipif(NODE is None, reason="Node is not installed: apt-get install nodejs")
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed: apt-get install chromium")


def node_environment(url: str, token: str) -> dict[str, str]:
    """The environment of a script that connects there."""
    return {**os.environ, "URL": url, "TOKEN": token, "CLIENT": CLIENT.as_uri()}
