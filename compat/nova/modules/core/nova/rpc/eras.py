"""Which of Nova's eras is in force."""

from __future__ import annotations

import compat.nova as shim


def since(era: str) -> bool:
    """Whether the era in force is ``era`` or a later one."""
    return shim.ERAS.index(shim.era()) >= shim.ERAS.index(era)
