"""Texts that quote a peer."""

__all__ = ["shortened"]

_MAX_CHARACTERS = 500


def shortened(text: str) -> str:
    """Return ``text`` shortened to a readable length: it may quote a peer."""
    return text if len(text) <= _MAX_CHARACTERS else f"{text[: _MAX_CHARACTERS - 3]}..."
