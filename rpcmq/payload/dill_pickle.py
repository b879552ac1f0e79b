"""dill: carries lambdas, closures and classes defined inside functions, by value.

Loading such a payload runs code that the sender chose; no allow-list can change that. So the codec
uses this only where both ends have switched dill on, and dill is imported only when a payload of
this format is really written or read.
"""

from __future__ import annotations

import importlib
from typing import Any

from rpcmq.errors import PayloadError, PayloadRefused
from rpcmq.payload.bounded_text import exception_text
from rpcmq.payload.safe_pickle import PROTOCOL, explain_refusal

__all__ = ["dumps", "loads"]


def _dill() -> Any:
    return importlib.import_module("dill")


def dumps(value: object) -> bytes:
    """``value`` written by dill.

    Functions take along the globals that they use, not their whole module.

    Raises:
        PayloadError: dill is not installed, or names the path and the object that it refuses.
    """
    try:
        dill = _dill()
    except ImportError as error:
        raise PayloadError(f"the dill format is on, but dill cannot be imported: {error}") from None

    def encode(part: Any) -> bytes:
        data: bytes = dill.dumps(part, protocol=PROTOCOL, recurse=True)
        return data

    try:
        return encode(value)
    except Exception as error:
        explain_refusal(value, error, encode, name="dill")


def loads(data: bytes) -> Any:
    """The value that ``data`` encodes. Runs code of the sender's choice.

    Raises:
        PayloadRefused: dill is not installed, or cannot load ``data``.
    """
    try:
        dill = _dill()
    except ImportError as error:
        raise PayloadRefused(f"the dill format is on, but dill cannot be imported: {error}") from None
    try:
        return dill.loads(data)
    except Exception as error:
        text = exception_text(error, 300)
        raise PayloadRefused(f"dill cannot load the payload: {type(error).__name__}: {text}") from error
