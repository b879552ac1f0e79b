"""Rights of those who speak through a front end: the verbs, exchanges and topic patterns of a router's keys."""

from __future__ import annotations

from rpcmq.core.common.right_tables import parse_right, read_right, read_texts, right_as_toml, shown_right
from rpcmq.core.common.rights import Right, allows_pattern, matches

__all__ = [
    "Right",
    "allows_pattern",
    "matches",
    "parse_right",
    "read_right",
    "read_texts",
    "right_as_toml",
    "shown_right",
]
