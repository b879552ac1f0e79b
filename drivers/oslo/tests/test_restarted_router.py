"""A router that is killed and comes back: notifications and their listeners go on; who blocks is not cut off."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from typing import Any

import oslo_messaging
import pytest
from processes import Router, eventually
from topics import queued

Make = Callable[..., Any]


class Endpoint:
    def __init__(self) -> None:
        self.seen: list[int] = []

    def info(self, ctxt: Any, publisher_id: str, event_type: str, payload: Any, metadata: Any) -> None:
        self.seen.append(payload["n"])

    def block(self, ctxt: Any, seconds: float) -> str:
        # Neither eventlet nor gevent knows of it, and all green threads wait.
        ctypes.CDLL(None).usleep(int(seconds * 1_000_000))
        return "done"


@pytest.fixture
def own_router() -> Iterator[Router]:
    """A router that soon drops what is for topics that nobody has declared."""
    with Router(mailbox_unclaimed_seconds="0.3") as router:
        yield router


@pytest.fixture
def impatient() -> Iterator[Router]:
    """A router that soon takes silent processes for lost."""
    patience = {"heartbeat": "0.5", "unresponsive": "2", "lost": "3", "resume": "0.1"}
    with Router(**{f"link_{name}_seconds": seconds for name, seconds in patience.items()}) as router:
        yield router


@pytest.fixture
def notify(conf: Any, own_router: Router) -> Iterator[Callable[[int], None]]:
    transport = oslo_messaging.get_notification_transport(conf, own_router.url)
    notifier = oslo_messaging.Notifier(transport, "test.host", driver="messagingv2", topics=["kept"])
    yield lambda n: notifier.info({}, "instance.create", {"n": n})
    transport.cleanup()


def test_notifications_are_kept_by_a_router_that_was_started_again(
    own_router: Router, notify: Callable[[int], None], client: Make, transport: Make, conf: Any
) -> None:
    notify(1)
    own_router.kill()
    own_router.restart()
    notify(2)
    over = transport(own_router.url)
    client("nobody", over=over).cast({}, "tell")
    # What nobody has declared has aged out by then.
    eventually(lambda: queued(own_router, "nobody") == 0)
    endpoint = Endpoint()
    listener = oslo_messaging.get_notification_listener(over, [oslo_messaging.Target(topic="kept")], [endpoint])
    listener.start()
    eventually(lambda: sorted(endpoint.seen) == [1, 2])
    own_router.kill()
    own_router.restart()
    notify(3)
    eventually(lambda: sorted(endpoint.seen) == [1, 2, 3])
    listener.stop()
    listener.wait()


def test_a_process_that_blocks_is_not_cut_off(impatient: Router, serve: Make, client: Make, transport: Make) -> None:
    over = transport(impatient.url)
    serve(Endpoint(), over=over)
    caller = client(over=over, timeout=60)

    def is_cut_off() -> bool:
        before = len(impatient.lines)
        assert caller.call({}, "block", seconds=5) == "done"
        return any("lost" in line or "unresponsive" in line for line in impatient.lines[before:])

    # A busy machine may hold up anybody for so long, but not each time.
    assert not all(is_cut_off() for _ in range(5))
