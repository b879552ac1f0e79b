"""The routers to dial: their urls, and when it is the time of each.

A url is *configured*, by an operator, or it is *learned*, and then it is known which router is there. Of two routers
that learn of each other, the one with the lower id dials at once and the other a second later: a firewall between them
may let only one of the two through.

An attempt that failed is repeated after a pause that doubles up to two seconds; one that an operator has to see to
(the url leads to a process, say) after half a minute. No two routers have quite the same pauses: they follow from the
ids.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from zlib import crc32

from rpcmq.core.router.mesh.neighbours import Identity
from rpcmq.wire.mesh_bodies import MeshIdentity

__all__ = ["Target", "Targets", "relay_name"]

#: Pauses between two attempts (seconds): the first, the longest, and that of attempts that are of no use for now.
_FIRST_PAUSE, _LONGEST_PAUSE, _RARE_PAUSE = 0.1, 2.0, 30.0
#: Seconds in which HELLO must be answered, and over other routers, which may drop it.
_GREETING_SECONDS, _RELAYED_GREETING_SECONDS = 5.0, 2.0
#: Most routers that are dialled though they were forgotten.
_MOST_RARE = 1000
#: Seconds that the router with the higher id leaves to the other one.
_HIGHER_ID_WAITS = 1.0
#: Seconds that a router is dialled directly before others are asked to carry the connection.
_DIRECT_WAITS = 1.5
#: Seconds that a link which is away, or does not answer, leaves to its own connection before it goes on over others.
_MOVE_WAITS = 0.3


class Target:
    """A router to dial.

    Attributes:
        urls: where it is; the next one is tried when one fails.
        server_key: its public key, with CURVE.
        is_configured: whether an operator wants it; else it is forgotten with the router.
        id: of the router that is there; 0: not known.
        route: the connection that was asked for, or carries a link; None: there is none.
        has_greeted: whether HELLO was sent on ``route``, and not answered.
        due: the time of the next attempt.
        deadline: the time at which HELLO must have been answered.
        failures: attempts that failed since the last link that lasted.
        is_rare: whether nothing is heard of it.
        has_led: whether it has led to a link.
        is_relayed: whether it is dialled over other routers; its url only names it then.
    """

    __slots__ = (
        "_next_url", "deadline", "due", "failures", "has_greeted", "has_led", "id", "is_configured", "is_rare",
        "is_relayed", "route", "server_key", "urls",
    )  # fmt: skip

    def __init__(self, urls: tuple[str, ...], due: float, is_configured: bool, server_key: str = "") -> None:
        self.urls, self.server_key, self.is_configured = urls, server_key, is_configured
        self.id = 0
        self.route: bytes | None = None
        self.has_greeted = self.has_led = self.is_rare = self.is_relayed = False
        self.due, self.deadline = due, 0.0
        self.failures = self._next_url = 0

    @property
    def url(self) -> str:
        """The url that is dialled, or is next."""
        return self.urls[self._next_url % len(self.urls)]

    @property
    def is_known(self) -> bool:
        """Whether this router knows by itself that it is there: others may tell of routers that there are not."""
        return self.is_configured or self.has_led

    @property
    def greeting_seconds(self) -> float:
        """Seconds in which HELLO must be answered there."""
        return _RELAYED_GREETING_SECONDS if self.is_relayed else _GREETING_SECONDS

    def move_on(self) -> None:
        """Take the next url, if there are several."""
        self._next_url += 1


class Targets:
    """The routers to dial.

    Args:
        own: this router.
        dials_learned: whether routers are dialled that no operator has named.
    """

    def __init__(self, own: Identity, dials_learned: bool = True) -> None:
        self._own = own
        self._dials_learned = dials_learned
        #: By url if they are configured, by id if they are learned.
        self._targets: dict[str | int, Target] = {}
        #: The reason why this router links to nobody: "left", "draining"; empty: it does.
        self.closed = ""
        #: Told when this router begins to link to nobody.
        self.on_closed: Callable[[], None] = lambda: None
        #: A learned router, or an operator's wish, may make something due: told with the time.
        self.on_due: Callable[[float], None] = lambda due: None

    def __iter__(self) -> Iterator[Target]:
        return iter(self._targets.values())

    def in_turn(self) -> list[Target]:
        """Return all of them in the order in which they are dialled: known routers, then whoever has waited longest."""
        return sorted(self, key=lambda target: (not target.is_known, target.due))

    def close(self, reason: str) -> None:
        """Link to nobody from now on, because this router is ``left`` or ``draining``; the first reason holds."""
        self.closed = self.closed or reason
        self.on_closed()

    @property
    def configured(self) -> dict[str, Target]:
        """The routers that operators want to be dialled, by the url that they gave."""
        return {key: target for key, target in self._targets.items() if target.is_configured and isinstance(key, str)}

    def configure(self, now: float, url: str, server_key: str = "") -> Target:
        """Dial ``url`` from now on."""
        target = self._targets.get(url)
        if target is None:
            target = self._learned_at(url) or Target((url,), now, True, server_key)
            self.forget(target.id)
            target.is_configured = True
            self._targets[url] = target
        target.due = now
        self.on_due(now)
        return target

    def dismissible(self) -> dict[str, Target]:
        """The targets that operators may dismiss, by url: those that they have named, or of which nothing is heard."""
        rare = {url: target for target in self if target.is_rare for url in target.urls}
        return rare | self.configured

    def dismiss(self, target: Target, is_linked: bool) -> None:
        """Operators do not want ``target`` any more; while it is linked it is as one that was learned."""
        self._targets = {key: each for key, each in self._targets.items() if each is not target}
        target.is_configured = False
        if is_linked and self._dials_learned:
            self._targets[target.id] = target

    def _learned_at(self, url: str) -> Target | None:
        return next((target for target in self if not target.is_configured and url in target.urls), None)

    def learn(self, now: float, id: int, urls: Iterable[str], server_key: str = "") -> None:
        """Dial the router ``id``, of which others tell that it can be reached at ``urls`` and has this key."""
        urls = tuple(urls)
        same = self._targets.get(id)
        if same is not None and (same.urls, same.server_key, same.is_rare) == (urls, server_key, False):
            return  # as most: there may be thousands of targets
        known = next((each for each in self if each.is_configured and not set(urls).isdisjoint(each.urls)), None)
        target = self._targets.get(id)
        if known is not None:
            known.id = known.id or id
            self.on_due(known.due)
        if known is not None or not urls or not self._dials_learned:
            if target is not None and target.route is None:
                self.forget(id)
            return
        if target is None:
            due = now if self._own.id < id else now + _HIGHER_ID_WAITS
            target = self._targets[id] = Target(urls, due, False, server_key)
            target.id = id
            self.on_due(due)
        target.urls, target.server_key, target.is_rare = urls, server_key, False

    def forget(self, id: int) -> None:
        """Dial the learned router ``id`` no more."""
        self._targets.pop(id, None)

    def reachable(self, now: float, said: MeshIdentity, is_linked: bool) -> None:
        """There is a way over others to a router, which is dialled on it unless a connection to it can be made.

        Args:
            is_linked: whether it has a link, which may have to go on there.
        """
        name = relay_name(said.id)
        target = self._targets.get(name)
        if target is None:
            wait = _MOVE_WAITS if is_linked else self._leaves_to_others(said)
            target = self._targets[name] = Target((name,), now + wait, False, said.key)
            target.id, target.is_relayed = said.id, True
        target.server_key = said.key
        self.on_due(target.due)

    def _leaves_to_others(self, said: MeshIdentity) -> float:
        """Seconds that are left to whoever makes a connection, and to the router with the lower id."""
        direct = _DIRECT_WAITS if self._dials_learned and said.urls else 0.0
        return direct + (0.0 if self._own.id < said.id else _HIGHER_ID_WAITS)

    def unreachable(self, id: int) -> None:
        """There is no way over others to the router ``id``, or none is needed."""
        target = self._targets.get(relay_name(id))
        if target is not None and target.route is None:
            del self._targets[relay_name(id)]

    def rarely(self, id: int) -> None:
        """Dial the learned router ``id``, of which nothing was heard, rarely: the network may be parted."""
        target = self._targets.get(id)
        if target is not None:
            target.is_rare = True
            self._drop_one_too_many()

    def _drop_one_too_many(self) -> None:
        rare = [id for id, target in self._targets.items() if target.is_rare]
        if len(rare) > _MOST_RARE:
            del self._targets[rare[0]]

    def failed(self, now: float, target: Target, is_rare: bool = False) -> None:
        """An attempt with ``target`` has failed: it is repeated, after a pause, of half a minute if ``is_rare``."""
        target.failures += 1
        target.route, target.has_greeted = None, False
        target.move_on()
        longest = (
            _RARE_PAUSE
            if is_rare or target.is_rare
            else min(_LONGEST_PAUSE, _FIRST_PAUSE * 2.0 ** min(target.failures - 1, 10))
        )
        target.due = now + longest * (0.75 + 0.25 * self._spread(target))
        self.on_due(target.due)

    def _spread(self, target: Target) -> float:
        """Return a number from 0 to 1 that differs among routers and attempts, and is the same each time."""
        text = f"{self._own.id} {target.id} {target.url} {target.failures}"
        return crc32(text.encode()) / 0xFFFFFFFF


def relay_name(id: int) -> str:
    """Return what stands in the place of a url for the way over others to the router ``id``."""
    return f"relay:{id}"
