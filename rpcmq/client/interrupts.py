"""Distinguish Ctrl-C, which ends the program, from an exception that ends one request."""

from __future__ import annotations

from dis import opmap

__all__ = ["is_interrupt"]

_RAISE = opmap["RAISE_VARARGS"]


def is_interrupt(error: BaseException) -> bool:
    """Return whether ``error`` is a KeyboardInterrupt that a signal raised, in whatever code was running.

    Python raises it between two instructions, or out of a C function. One that the code raised by itself
    stands at a ``raise`` statement, and concerns nobody but who called that code.
    """
    traceback = error.__traceback__
    if not isinstance(error, KeyboardInterrupt) or traceback is None:
        return False
    while traceback.tb_next is not None:
        traceback = traceback.tb_next
    return traceback.tb_frame.f_code.co_code[traceback.tb_lasti] != _RAISE
