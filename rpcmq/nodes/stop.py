"""The reason for which a call or cast is given to no consumer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Stop"]


@dataclass(frozen=True)
class Stop:
    """The reason for which a call or cast is given to no consumer.

    Attributes:
        text: one sentence for its caller, who gets it as that of a :class:`rpcmq.errors.CallCancelled`.
        details: the same as JSON values.
    """

    text: str
    details: Mapping[str, Any] = field(default_factory=dict)
