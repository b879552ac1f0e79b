"""The records of a SETTLE message."""

from __future__ import annotations

from struct import Struct

__all__ = ["MAX_SETTLEMENTS", "SETTLEMENT"]

#: One settled cast in a SETTLE message: key, attempt, outcome, handler time (microseconds).
SETTLEMENT = Struct(">20sBBI")
#: Records in one SETTLE: as many as the largest credit.
MAX_SETTLEMENTS = 65_535
