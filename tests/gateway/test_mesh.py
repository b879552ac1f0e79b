"""``rpcmq gateway`` at a mesh of two routers with keys: routers die, and its own key bounds what browsers may do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import gevent
import pytest

from rpcmq import Client, Service
from tests.gateway.browsers import Browser, browser
from tests.gateway.conftest import Demo, Secrets
from tests.keys import right
from tests.server.daemons import SECONDS, Daemon, eventually, started
from tests.server.keyed_mesh import KeyedMesh

pytestmark = [pytest.mark.integration, pytest.mark.fault, pytest.mark.long]

_GATEWAY = (right("call,cast", "demo.#"), right("publish,subscribe", "disk.#"))


class Site:
    """A mesh, a service at ``b``, and a gateway that begins at ``a``."""

    def __init__(self, stack: ExitStack, path: Path) -> None:
        self.mesh = KeyedMesh(stack, path, queue_dir=False)
        self.demo = Demo()
        self.operator: Client = self.mesh.client("operator", at="b")
        stack.enter_context(Service("demo", self.demo, client=self.mesh.client("service", at="b")))
        self.secrets = Secrets(path / "tokens.toml")
        self.token = self.secrets.add("web", "all:#")
        env = {
            "RPCMQ_ROUTER": ",".join(self.mesh.urls[name] for name in "ab"),
            "RPCMQ_KEY_FILE": self.mesh.key_file_of_both("gateway", *_GATEWAY),
        }
        options = ("--bind", "127.0.0.1:0", "--tokens", self.secrets.path)
        self.gateway: Daemon = stack.enter_context(started("gateway", *options, env=env))
        host, _, port = self.gateway.wait_for("listening")["url"].rpartition("/")[2].rpartition(":")
        self.address = (host, int(port))
        self._stack = stack

    def page(self) -> Browser:
        """A browser that has said hello."""
        made = self._stack.enter_context(browser(self.address))
        made.socket.settimeout(SECONDS)
        assert made.hello(self.token)["op"] == "welcome"
        return made


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with ExitStack() as stack:
        yield Site(stack, tmp_path)


def until_it_comes(site: Site, page: Browser, payload: str) -> dict[str, Any]:
    """Publish at ``b`` until ``page`` has an event of ``payload``: no router keeps events for who is on the way."""

    def publish() -> None:
        while True:
            site.operator.publish(None, "disk.n1", payload)
            gevent.sleep(0.1)

    publisher = gevent.spawn(publish)
    try:
        with gevent.Timeout(SECONDS):
            while True:
                message = page.next()
                if message["op"] == "event" and message["payload"] == payload:
                    return message
    finally:
        publisher.kill()


def test_browsers_go_on_when_the_router_of_their_gateway_is_killed(site: Site) -> None:
    page, watcher = site.page(), site.page()
    assert page.ask("call", topic="demo", method="echo", args={"x": 1})["value"]["args"] == {"x": 1}
    assert watcher.ask("subscribe", pattern="disk.#")["op"] == "result"
    assert until_it_comes(site, watcher, "before")["topic"] == "disk.n1"
    page.send(op="call", id=900, topic="demo", method="wait", args={"seconds": 4}, idempotent=True, timeout=50)
    page.send(op="stream", id=901, topic="demo", method="count", args={"n": 10**6}, timeout=50)
    eventually(lambda: "wait" in site.demo.begun)
    site.mesh.kill("a")
    # Whatever becomes of what was under way, it ends, and ends once.
    ended = [page.next() for _ in range(2)]
    for message in ended:
        assert message["id"] in (900, 901)
        assert message["op"] in ("result", "item") or message["error"]["type"] in ("LinkLost", "CallTimeout"), message
    assert page.ask("call", topic="demo", method="echo", args={"x": 2}, timeout=50)["value"]["args"] == {"x": 2}
    assert until_it_comes(site, watcher, "after")["topic"] == "disk.n1"
    assert page.ask("publish", topic="disk.n2", payload=1, confirm=True)["value"] >= 1


def test_the_key_of_the_gateway_bounds_what_any_token_may(site: Site) -> None:
    page = site.page()
    denied = (
        {"op": "call", "topic": "secret", "method": "m"},
        {"op": "stream", "topic": "secret", "method": "m"},
        {"op": "cast", "topic": "secret", "method": "m", "confirm": True},
        {"op": "fanout", "topic": "demo", "method": "echo", "confirm": True},
        {"op": "publish", "topic": "secret", "payload": 1, "confirm": True},
        {"op": "subscribe", "pattern": "#"},
    )
    for message in denied:
        answer = page.ask(**message)
        assert answer["op"] == "error" and answer["error"]["type"] == "AccessDenied", (message, answer)
    assert page.ask("call", topic="demo", method="echo")["op"] == "result"
    assert site.demo.ran == ["echo"]
