"""The terms of a HEDGE message: when a call that is under way may be given to more consumers, and to how many."""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from rpcmq.errors import ProtocolError
from rpcmq.wire.header import has_names, pack, payload_of
from rpcmq.wire.kinds import Kind

__all__ = ["LONGEST_DELAY", "MOST_CONSUMERS", "PERCENTILES", "HedgeTerms"]

#: Most consumers that one call is given to.
MOST_CONSUMERS = 8
#: Percentiles of a method's usual duration that a delay can be: those of the latency policy.
PERCENTILES = (50, 95, 99)
#: Longest delay (seconds).
LONGEST_DELAY = 4000.0
#: Consumers, percentile (0: the delay is said), flags, nothing, and the delay in microseconds.
_TERMS = Struct(">BBBxI")
_EXCEPTION_LOSES = 0x01


class HedgeTerms(NamedTuple):
    """The terms on which a call may be given to several consumers.

    Attributes:
        consumers: how many may have it, 2 to ``MOST_CONSUMERS``.
        delay: seconds that one has it before the next is given it.
        percentile: the delay is that percentile of how long the method usually takes, as the router knows it; 0: it is
            ``delay``.
        exception_wins: what a handler raises ends the call, though others have it still.
    """

    consumers: int
    delay: float = 0.0
    percentile: int = 0
    exception_wins: bool = True

    def message(self, key: bytes) -> bytes:
        """The HEDGE for the call ``key``."""
        flags = 0 if self.exception_wins else _EXCEPTION_LOSES
        payload = _TERMS.pack(self.consumers, self.percentile, flags, int(self.delay * 1e6))
        return pack(Kind.HEDGE, payload, key=key)

    @classmethod
    def of(cls, message: bytes) -> HedgeTerms:
        """The terms in ``message``.

        Raises:
            ProtocolError: it is malformed, or a value is out of range.
        """
        payload = payload_of(message)
        if has_names(message) or len(payload) != _TERMS.size:
            raise ProtocolError(f"HEDGE needs {_TERMS.size} bytes of terms and nothing else", "length")
        consumers, percentile, flags, delay_us = _TERMS.unpack(payload)
        if not 2 <= consumers <= MOST_CONSUMERS:
            raise ProtocolError(f"HEDGE for {consumers} consumers; 2 to {MOST_CONSUMERS} are allowed", "hedge")
        if percentile and percentile not in PERCENTILES:
            raise ProtocolError(f"HEDGE after percentile {percentile}; known: {PERCENTILES}", "hedge")
        if delay_us > LONGEST_DELAY * 1e6:
            raise ProtocolError(f"HEDGE after {delay_us / 1e6:g} s; the longest is {LONGEST_DELAY:g} s", "hedge")
        return cls(consumers, delay_us / 1e6, percentile, not flags & _EXCEPTION_LOSES)
