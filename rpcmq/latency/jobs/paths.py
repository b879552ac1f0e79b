"""Paths as Spark takes them."""

from __future__ import annotations

import re
from pathlib import Path

__all__ = ["as_spark"]


def as_spark(path: Path) -> str:
    """``path``, of a file of this machine, as Spark takes it: for one thing, not as a pattern."""
    return "file:" + re.sub(r"([\\*?{}\[\]])", r"\\\1", str(path.resolve()))
