"""A codec that encodes and decodes while other threads use the engines: both run code of the application."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from rpcmq.payload import Codec
from rpcmq.transport.thread_home import outside

__all__ = ["outside_codec"]


class _Outside:
    """To be mixed into a class of codecs."""

    __slots__ = ()

    def encode(self, *args: Any) -> Any:
        return outside(super().encode, *args)  # type: ignore[misc]

    def encode_exception(self, *args: Any) -> Any:
        return outside(super().encode_exception, *args)  # type: ignore[misc]

    def decode(self, *args: Any) -> Any:
        return outside(super().decode, *args)  # type: ignore[misc]

    def decode_exception(self, *args: Any) -> Any:
        return outside(super().decode_exception, *args)  # type: ignore[misc]


def outside_codec(codec: Codec) -> Codec:
    """``codec``, which lets go of the engines' lock while it works."""
    if isinstance(codec, _Outside):
        return codec
    cls = type(codec)
    both: Any = type(f"Outside{cls.__name__}", (_Outside, cls), {"__slots__": ()})
    made: Codec = both(**{field.name: getattr(codec, field.name) for field in fields(codec) if field.init})
    return made
