"""Payloads: values to bytes and back. See ``codec`` for the whole, one module for each part.

Names are loaded on first use, so that a process which needs only the numbers of the formats (the
router) does not load any code that decodes.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rpcmq.payload.allow_list import AllowList, allow
    from rpcmq.payload.codec import DEFAULT_MAX_BYTES, Codec
    from rpcmq.payload.default_allow_list import DEFAULT_ALLOW_LIST
    from rpcmq.payload.exception_registry import ExceptionRegistry
    from rpcmq.payload.format import ALL, Format, accept_mask, accept_names
    from rpcmq.payload.typed_json import DEFAULT_MAX_DEPTH, TypedJson

__all__ = [
    "ALL",
    "DEFAULT_ALLOW_LIST",
    "DEFAULT_MAX_BYTES",
    "DEFAULT_MAX_DEPTH",
    "AllowList",
    "Codec",
    "ExceptionRegistry",
    "Format",
    "TypedJson",
    "accept_mask",
    "accept_names",
    "allow",
]

_HOME = {
    "ALL": "format",
    "DEFAULT_ALLOW_LIST": "default_allow_list",
    "DEFAULT_MAX_BYTES": "codec",
    "DEFAULT_MAX_DEPTH": "typed_json",
    "AllowList": "allow_list",
    "Codec": "codec",
    "ExceptionRegistry": "exception_registry",
    "Format": "format",
    "TypedJson": "typed_json",
    "accept_mask": "format",
    "accept_names": "format",
    "allow": "allow_list",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = value
    return value
