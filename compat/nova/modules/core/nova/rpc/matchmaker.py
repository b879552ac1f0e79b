"""Look up the hosts for a key: ``impl_zmq``'s peer lookup. Our router needs none; a program may.

``queues(key)`` gives pairs of a queue's name and its host. A key is ``topic.host`` (that host),
``fanout~topic`` (every host of the ring) or a bare topic (the next host of its ring).
"""

from __future__ import annotations

import itertools
import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from compat.nova import options

LOG = logging.getLogger(__name__)

Queue = tuple[str, Any]
"""A queue's name, and the host that it is on (None if that is left open)."""

_FANOUT = "fanout~"


class MatchMakerException(Exception):
    """The key cannot be looked up."""


class Exchange:
    """Gives the queues that a key stands for."""

    def run(self, key: str) -> list[Queue]:
        """The queues of ``key``."""
        raise NotImplementedError


class Binding:
    """Says which keys go to an exchange."""

    def test(self, key: str) -> bool:
        """Return whether ``key`` does."""
        raise NotImplementedError


class MatchMakerBase:
    """Exchanges, asked in the order in which they were bound."""

    def __init__(self) -> None:
        self.bindings: list[tuple[Callable[[str], bool], Exchange, bool]] = []

    def add_binding(self, binding: Binding, rule: Exchange, last: bool = True) -> None:
        """Keys that ``binding`` takes go to ``rule``, and, if ``last``, to none after it."""
        self.bindings.append((binding.test, rule, last))

    def add_negate_binding(self, binding: Binding, rule: Exchange, last: bool = True) -> None:
        """The same for keys that ``binding`` does not take."""
        self.bindings.append((lambda key: not binding.test(key), rule, last))

    def queues(self, key: str) -> list[Queue]:
        """Return the queues for ``key``; empty if it is unknown."""
        found: list[Queue] = []
        for test, exchange, last in self.bindings:
            if test(key):
                found += exchange.run(key)
                if last:
                    break
        return found

    def register(self, key: str, host: str) -> None:
        """Nothing to do where hosts are given from the start (Grizzly)."""

    def unregister(self, key: str, host: str) -> None:
        """See ``register``."""

    def start_heartbeat(self) -> None:
        """See ``register``."""

    def stop_heartbeat(self) -> None:
        """See ``register``."""


class DirectBinding(Binding):
    """``topic.host``."""

    def test(self, key: str) -> bool:
        """Return whether ``key`` names a host."""
        return "." in key


class TopicBinding(Binding):
    """A bare topic."""

    def test(self, key: str) -> bool:
        """Return whether ``key`` names no host."""
        return "." not in key


class FanoutBinding(Binding):
    """``fanout~topic``."""

    def test(self, key: str) -> bool:
        """Return whether ``key`` is for all hosts."""
        return key.startswith(_FANOUT)


class StubExchange(Exchange):
    """Leaves the host open."""

    def run(self, key: str) -> list[Queue]:
        """``key`` itself."""
        return [(key, None)]


class DirectExchange(Exchange):
    """The host that the key names."""

    def run(self, key: str) -> list[Queue]:
        """``key`` on what follows its first dot."""
        return [(key, key.split(".", 1)[1])]


class LocalhostExchange(Exchange):
    """Everything on one host."""

    def __init__(self, host: str = "localhost") -> None:
        self.host = host

    def run(self, key: str) -> list[Queue]:
        """The key's topic on that host."""
        return [(f"{key.split('.')[0]}.{self.host}", self.host)]


class RingExchange(Exchange):
    """Hosts by topic.

    Args:
        ring: topic to hosts; read from the file of the option ``matchmaker_ringfile`` if left out.
    """

    def __init__(self, ring: Mapping[str, Sequence[str]] | None = None) -> None:
        self.ring: Mapping[str, Sequence[str]] = _ring_of_file() if ring is None else ring
        self.ring0: dict[str, Iterator[str]] = {topic: itertools.cycle(hosts) for topic, hosts in self.ring.items()}

    def _ring_has(self, key: str) -> bool:
        if self.ring.get(key):
            return True
        LOG.warning("no hosts are known for the topic %r", key)
        return False


class RoundRobinRingExchange(RingExchange):
    """One host of the topic after the other."""

    def run(self, key: str) -> list[Queue]:
        """The next one."""
        if not self._ring_has(key):
            return []
        host = next(self.ring0[key])
        return [(f"{key}.{host}", host)]


class FanoutRingExchange(RingExchange):
    """All hosts of the topic."""

    def run(self, key: str) -> list[Queue]:
        """Each of them."""
        topic = key.removeprefix(_FANOUT)
        return [(f"{key}.{host}", host) for host in self.ring[topic]] if self._ring_has(topic) else []


class MatchMakerRing(MatchMakerBase):
    """Looks hosts up in a ring: see ``RingExchange``."""

    def __init__(self, ring: Mapping[str, Sequence[str]] | None = None) -> None:
        super().__init__()
        self.add_binding(FanoutBinding(), FanoutRingExchange(ring))
        self.add_binding(DirectBinding(), DirectExchange())
        self.add_binding(TopicBinding(), RoundRobinRingExchange(ring))


class MatchMakerLocalhost(MatchMakerBase):
    """Everything that names no host is on this one."""

    def __init__(self, host: str = "localhost") -> None:
        super().__init__()
        self.add_binding(FanoutBinding(), LocalhostExchange(host))
        self.add_binding(DirectBinding(), DirectExchange())
        self.add_binding(TopicBinding(), LocalhostExchange(host))


class MatchMakerStub(MatchMakerBase):
    """Takes every key for a queue of its own."""

    def __init__(self) -> None:
        super().__init__()
        for binding in (FanoutBinding(), DirectBinding(), TopicBinding()):
            self.add_binding(binding, StubExchange())


def _ring_of_file() -> dict[str, list[str]]:
    """The ring of the file that the configuration names.

    Raises:
        MatchMakerException: it cannot be read.
    """
    name = str(options.value("matchmaker_ringfile"))
    try:
        with open(name, encoding="utf-8") as file:
            ring: dict[str, list[str]] = json.load(file)
    except (OSError, ValueError) as error:
        raise MatchMakerException(f"matchmaker_ringfile {name}: {error}") from error
    return ring
