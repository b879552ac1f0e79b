"""The greenlet module, by eventlet's name."""

from __future__ import annotations

from greenlet import GreenletExit, getcurrent, greenlet

__all__ = ["GreenletExit", "getcurrent", "greenlet", "preserves_excinfo"]

preserves_excinfo = True
