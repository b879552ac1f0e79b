"""Texts that quote a peer."""

__all__ = ["shorten"]

_MAX_CHARACTERS = 500


def shorten(text: str) -> str:
    """Return ``text`` shortened to a readable length: it may quote a peer."""
    return text if len(text) <= _MAX_CHARACTERS else f"{text[: _MAX_CHARACTERS - 3]}..."
