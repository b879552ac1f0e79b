"""JSON of values that are not all JSON's: see ``compat.nova.primitives``."""

from __future__ import annotations

import json
from typing import Any, TextIO

from compat.nova import primitives
from compat.nova.primitives import to_primitive

__all__ = ["dump", "dumps", "load", "loads", "to_primitive"]


def dumps(value: Any, default: Any = to_primitive, **kwargs: Any) -> str:
    """``value`` as JSON text; another ``default`` and other keywords go to ``json``.

    Raises:
        TypeError: some value has no JSON form; the text says which one and where.
    """
    if default is not to_primitive:
        return json.dumps(value, default=default, **kwargs)
    text = primitives.dumps(value)
    return json.dumps(json.loads(text), **kwargs) if kwargs else text


def loads(text: str | bytes, **kwargs: Any) -> Any:
    """The value that JSON ``text`` stands for."""
    return json.loads(text, **kwargs)


def load(file: TextIO) -> Any:
    """The value in a file."""
    return json.load(file)


def dump(value: Any, file: TextIO, **kwargs: Any) -> None:
    """Write ``value`` to a file."""
    file.write(dumps(value, **kwargs))
