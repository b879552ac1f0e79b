"""Havana's module name for the ring of :mod:`nova.rpc.matchmaker`."""

from nova.rpc.matchmaker import FanoutRingExchange, MatchMakerRing, RingExchange, RoundRobinRingExchange

__all__ = ["FanoutRingExchange", "MatchMakerRing", "RingExchange", "RoundRobinRingExchange"]
