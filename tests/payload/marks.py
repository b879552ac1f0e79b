"""A class whose decoding leaves a mark."""

from __future__ import annotations

import pickle
from typing import Any

MARKS: list[str] = []


class Mark:
    def __init__(self, text: str) -> None:
        MARKS.append(text)

    def __reduce__(self) -> Any:
        return Mark, ("decoded",)


class Other(Mark):
    def __reduce__(self) -> Any:
        return Other, ("decoded",)


def marked(kind: type[Mark] = Mark) -> bytes:
    """A pickle of a request, an event or an answer that leaves a mark when it is loaded."""
    mark = kind.__new__(kind)
    return pickle.dumps({"context": None, "args": {}, "payload": mark, "type": mark}, 5)
