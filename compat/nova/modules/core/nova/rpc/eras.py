"""Query the era of Nova in force."""

from __future__ import annotations

import compat.nova as shim

_UP_TO = {era: frozenset(shim.ERAS[: at + 1]) for at, era in enumerate(shim.ERAS)}


def since(era: str) -> bool:
    """Return whether the era in force is ``era`` or a later one."""
    return era in _UP_TO[shim.era()]
