"""Small things that legacy code takes from here."""

from __future__ import annotations

from . import greenlets
from .greenlets import GreenletExit, getcurrent, greenlet

__all__ = ["GreenletExit", "clear_sys_exc_info", "get_errno", "getcurrent", "greenlet", "greenlets"]


def get_errno(exc: BaseException) -> int | None:
    """Give the error number of an OSError or of what looks like one; None of others."""
    number = getattr(exc, "errno", None)
    if number is None and exc.args:
        number = exc.args[0]
    return number if isinstance(number, int) else None


def clear_sys_exc_info() -> None:
    """Do nothing: Python 3 forgets an exception when its handler ends."""
