"""Events in a mesh whose routers are processes, one of which is killed: none twice, and all that comes in its order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import gevent
import pytest

from rpcmq.client import Client
from rpcmq.testing import eventually
from rpcmq.testing.router_mesh import RouterMesh

pytestmark = [pytest.mark.integration, pytest.mark.fault]

#: Events before and after the kill.
BEFORE, AFTER = 300, 300


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def listener(heard: list[Any]) -> Callable[[Any, str, Any], None]:
    return lambda ctx, topic, payload: heard.append(payload)


def test_no_event_comes_twice_when_the_router_of_its_publisher_and_a_subscriber_is_killed(stack: ExitStack) -> None:
    mesh = stack.enter_context(RouterMesh(3))
    heard: dict[str, list[Any]] = {}
    for router in mesh:
        client = stack.enter_context(Client(router.url))
        client.subscribe("news.#", listener(heard.setdefault(router.name, [])))
    publisher = stack.enter_context(Client(mesh["a"].url))
    assert publisher.publish(None, "news.first", 0, confirm=True) == 3, "its router's own subscriber, and two routers"
    for number in range(1, BEFORE):
        publisher.publish(None, "news.x", number, confirm=number % 20 == 0)
    mesh["a"].kill()
    for number in range(BEFORE, BEFORE + AFTER):
        publisher.publish(None, "news.x", number)
        gevent.sleep(0.001)

    def all_have_moved() -> bool:
        # Whatever was published after all are linked again reaches all: a subscriber of a may still be on its way.
        publisher.publish(None, "news.x", "mark")
        return all("mark" in got for got in heard.values())

    eventually(all_have_moved)
    for name, got in heard.items():
        numbers = [each for each in got if each != "mark"]
        assert len(numbers) == len(set(numbers)), f"a subscriber of {name} has events twice"
        assert numbers == sorted(numbers), f"a subscriber of {name} has events in another order"
    for name in ("router b", "router c"):
        # Those that the dead router had acknowledged and not yet passed on are lost, and no others.
        assert set(heard[name]) >= {0, *range(BEFORE, BEFORE + AFTER), "mark"}, name
