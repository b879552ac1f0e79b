"""A router under random frames: the smallest shell there can be, with everything checked."""

from __future__ import annotations

from random import Random

from rpcmq.core.router.actions import Answer, LogEvent
from rpcmq.core.router.model import Link
from rpcmq.core.router.router import Router
from rpcmq.core.router.settings import Settings
from rpcmq.wire import FIRST_SESSION_KIND, Kind, body_of, parse, split
from tests.fuzz.frames import FrameMaker

__all__ = ["Driver"]

#: Small bounds and short times, so that all of them are reached.
SETTINGS = {
    "max_links": 9,
    "max_topics": 40,
    "max_unclaimed_topics": 12,
    "max_methods": 20,
    "max_calls_in_flight": 60,
    "queue_max_messages": 8,
    "queue_max_bytes": 3000,
    "outbox_max_messages": 500,
    "pubsub_max_messages": 4,
    "pubsub_max_bytes": 2000,
    "pubsub_max_patterns": 3,
    "mailbox_max_seconds": 20.0,
    "unclaimed_seconds": 5.0,
    "resume_seconds": 15.0,
    "recovery_seconds": 1.0,
}
_ROUTES = [b"route-%d" % i for i in range(10)]


class Driver:
    """Feeds a router and takes what it says.

    Args:
        rng: where all choices come from.
    """

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.now = 1000.0
        self._tokens = 0
        self.router = Router(Settings(**SETTINGS), 1_700_000_000_000, self.now, self._token)  # type: ignore[arg-type]
        #: By identity and queue type.
        self.tokens: dict[str, str] = {}
        self.origins: list[bytes] = []
        #: Kinds that the router has sent.
        self.sent: set[int] = set()
        self.delivered: dict[bytes, list[tuple[bytes, int, int]]] = {}
        self.frames = FrameMaker(rng, self.origins, self.delivered)

    def _token(self) -> str:
        self._tokens += 1
        return f"token-{self._tokens}"

    def step(self) -> None:
        """Something happens."""
        rng = self.rng
        what = rng.random()
        route = rng.choice(_ROUTES)
        link = self.router.links.routes.get(route)
        if link is None or what < 0.005:
            self._receive(route, *self._of_a_stranger())
        elif what < 0.04:
            self._receive(route, self.frames.about_link(self._counts(link)))
        elif what < 0.045:
            self.router.lost(self.now, route)
        elif what < 0.05:
            self._receive(route, rng.randbytes(rng.randrange(200)))
        else:
            batch, payloads = self.frames.batch(link.origin)
            self._receive(route, batch, payloads)
        self.pass_time(rng.choice((0.0, 0.0, 0.0005, 0.002, 0.05)))
        self.flush()

    def _of_a_stranger(self) -> tuple[bytes, list[bytes]]:
        if self.rng.random() < 0.8:
            return self.frames.hello(self.tokens), []
        return self.frames.batch(self.rng.choice((*self.origins, bytes(12))))

    def _receive(self, route: bytes, batch: bytes, payloads: list[bytes] | None = None) -> None:
        self.router.receive(self.now, route, batch, payloads or [])
        while self.router.turns.is_anybody_waiting:
            self.router.run_next_turn(self.now)
        while self.router.queries.is_anybody_waiting:
            self.router.make_views(self.now)

    def _counts(self, link: Link) -> list[int]:
        base = link._sent_base
        return [base, base + link.unacknowledged, base + link.unacknowledged // 2]

    def pass_time(self, seconds: float) -> None:
        """Let time pass, with ticks when the router wants them."""
        end = self.now + seconds
        for _ in range(10_000):
            due = self.router.next_deadline()
            if due > end:
                break
            self.now = max(self.now, due)
            self.router.tick(self.now)
        else:
            raise AssertionError("the router wants to be called again and again")
        self.now = end

    def flush(self) -> None:
        """Take what is to be sent, as a shell would; all of it must be readable."""
        router = self.router
        dirty = router.dirty[:]
        router.dirty.clear()
        for link in dirty:
            link.marked = False
            assert isinstance(link, Link)
            if link.route is None:
                continue
            assert router.links.routes[link.route] is link
            for message in link.first_messages:
                self._note_welcome(link, message)
            link.first_messages.clear()
            while link.may_send:
                for message in link.batch():
                    self._note_sent(link, message)
                link.batch_was_sent()
            link.last_messages.clear()
        for action in router.actions:
            if isinstance(action, LogEvent):
                assert action.event != "internal error", action.text
            elif isinstance(action, Answer):
                assert parse(split(action.message)[0]).kind == Kind.REFUSED
        router.actions.clear()
        self.origins[:] = [link.origin for link in router.links]
        for origin in self.delivered.keys() - set(self.origins):
            del self.delivered[origin]

    def _note_welcome(self, link: Link, message: bytes) -> None:
        body = body_of(message)
        self.tokens[link.identity + link.queue_type] = body["token"]

    def _note_sent(self, link: Link, message: bytes) -> None:
        header = parse(message)
        assert header.kind >= FIRST_SESSION_KIND
        self.sent.add(header.kind)
        if header.kind == Kind.REQUEST or header.kind == Kind.CAST:
            lately = self.delivered.setdefault(link.origin, [])
            lately.append((message[16:36], header.attempt, header.consumer))
            del lately[:-8]

    def finish(self) -> None:
        """Everyone leaves, and time passes until all must be forgotten."""
        for route in list(self.router.links.routes):
            self.router.lost(self.now, route)
        self.flush()
        self.pass_time(1300.0)  # routers remember for ten minutes who has taken over a message
        self.flush()
