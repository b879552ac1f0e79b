"""Messages in the user's language: here always the one they were written in."""

from __future__ import annotations

import builtins
import gettext
from typing import Any

__all__ = ["_", "get_available_languages", "get_localized_message", "install"]


def _(msg: str) -> str:
    """``msg``, translated if there is a translation."""
    return gettext.dgettext("nova", msg)


def install(domain: str, lazy: bool = False) -> None:
    """Make ``_`` known everywhere."""
    builtins.__dict__["_"] = _


def get_available_languages(domain: str) -> list[str]:
    """Languages that there are messages in."""
    return ["en_US"]


def get_localized_message(message: Any, user_locale: str | None = None) -> str:
    """``message`` in that language."""
    return str(message)
