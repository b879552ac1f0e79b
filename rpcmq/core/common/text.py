"""Texts that quote a peer."""

__all__ = ["shortened"]

_MAX_CHARACTERS = 500


def shortened(text: str) -> str:
    """``text``, cut where it goes on for longer than anybody reads: it may quote what a peer sent."""
    return text if len(text) <= _MAX_CHARACTERS else f"{text[: _MAX_CHARACTERS - 3]}..."
