"""A gateway, a router and a service on loopback: calls, casts, streams, events, tokens, drain."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from time import time
from typing import Any

import gevent
import pytest

from rpcmq.gateway import Gateway
from rpcmq.testing import eventually
from tests.gateway.browsers import Browser, browser, get
from tests.gateway.conftest import Demo, Secrets, Start, address_of

pytestmark = pytest.mark.integration


@pytest.fixture
def gateway(start: Start) -> Gateway:
    return start()


@pytest.fixture
def page(gateway: Gateway, token: str) -> Iterator[Browser]:
    """A browser that has said hello."""
    with browser(address_of(gateway)) as made:
        assert made.hello(token)["op"] == "welcome"
        yield made


def test_the_welcome_says_who_and_how_much(gateway: Gateway, token: str) -> None:
    with browser(address_of(gateway)) as page:
        welcome = page.hello(token)
    assert (welcome["version"], welcome["protocol"], welcome["token"]) == (1, "rpcmq.1", "web")
    assert welcome["limits"]["max_bytes"] == 1 << 20 and welcome["limits"]["requests"] == 64


def test_a_call_is_answered_with_typed_values(page: Browser, demo: Demo) -> None:
    value = page.ask("call", topic="demo", method="echo", args={"at": {"$": "datetime", "v": "2026-11-28T17:30:00Z"}})
    assert value["value"]["args"] == {"at": {"$": "datetime", "v": "2026-11-28T17:30:00+00:00"}}
    types = page.ask("call", topic="demo.node-1", method="types")["value"]
    assert types["decimal"] == {"$": "decimal", "v": "12.50"}
    assert types["bytes"] == {"$": "bytes", "v": "AP8="} and types["int"] == {"$": "int", "v": "400000000000000000"}


def test_errors_have_their_class_their_text_and_what_else_there_is(page: Browser, demo: Demo) -> None:
    remote = page.ask("call", topic="demo", method="fail")["error"]
    assert (remote["type"], remote["exception"], remote["args"]) == ("RemoteError", "ValueError", ["no such disk", 7])
    assert "traceback" not in remote
    late = page.ask("call", topic="nobody", method="x", timeout=1)["error"]
    assert late["type"] == "CallTimeout" and late["details"]["state"] == "queued" and "no consumer" in late["text"]
    assert page.ask("call", topic="nobody", method="x", mandatory=True)["error"]["type"] == "NoConsumer"
    assert page.ask("call", topic="demo", method="nope")["error"]["type"] == "UnknownMethod"
    # On a machine that stands still a timeout may be over before the method begins.
    states = (page.ask("call", topic="demo", method="wait", timeout=t)["error"]["details"]["state"] for t in (1, 5, 20))
    assert "running" in states


def test_tracebacks_are_told_where_the_operator_says_so(start: Start, token: str, demo: Demo) -> None:
    with browser(address_of(start(access__tracebacks=True))) as page:
        page.hello(token)
        assert "ValueError" in page.ask("call", topic="demo", method="fail")["error"]["traceback"]


def test_casts_and_fanouts_arrive(page: Browser, demo: Demo) -> None:
    assert page.ask("cast", topic="demo", method="echo", confirm=True)["op"] == "result"
    assert page.ask("cast", topic="demo", method="echo")["op"] == "result"
    assert page.ask("fanout", topic="demo", method="echo", confirm=True)["value"] == 1
    eventually(lambda: demo.ran == ["echo"] * 3)
    assert page.ask("cast", topic="nobody", method="x", mandatory=True)["error"]["type"] == "NoConsumer"


def test_a_stream_goes_no_further_than_its_credit(page: Browser, demo: Demo) -> None:
    page.send(op="stream", id=1, topic="demo", method="count", args={"n": 1000}, credit=3)
    assert [page.next()["value"] for _ in range(3)] == [0, 1, 2]
    # Nothing comes without credit: what is asked for next is answered first.
    page.send(op="ping", id=2)
    assert page.next() == {"op": "pong", "id": 2}
    page.send(op="credit", id=1, count=997)
    assert [page.next()["value"] for _ in range(997)] == list(range(3, 1000))
    assert page.next() == {"op": "end", "id": 1}
    assert demo.ran == ["count"]


def test_what_is_cancelled_ends_at_the_service(page: Browser, demo: Demo) -> None:
    page.send(op="call", id=1, topic="demo", method="wait", args={"name": "call"})
    page.send(op="stream", id=2, topic="demo", method="count", args={"n": 100000}, credit=2)
    eventually(lambda: demo.begun == ["call"])
    page.send(op="cancel", id=1)
    assert page.answer(1)["error"]["type"] == "CallCancelled"
    page.send(op="cancel", id=2)
    assert page.answer(2)["error"]["type"] == "CallCancelled"
    eventually(lambda: demo.cancelled == ["call"])
    page.send(op="cancel", id=2)  # once more does no harm
    assert page.ask("call", topic="demo", method="echo")["op"] == "result"
    assert "count" not in demo.ran


def test_a_browser_that_leaves_cancels_what_it_asked_for(gateway: Gateway, token: str, demo: Demo) -> None:
    with browser(address_of(gateway)) as page:
        page.hello(token)
        page.send(op="call", id=1, topic="demo", method="wait", args={"name": "left"})
        eventually(lambda: demo.begun == ["left"])
    eventually(lambda: demo.cancelled == ["left"])
    assert gateway.statistics()["requests"] == 0


def test_progress_is_told_to_whom_wants_it(page: Browser, demo: Demo) -> None:
    page.send(op="call", id=1, topic="demo", method="report", progress=True)
    assert page.next() == {"op": "progress", "id": 1, "value": {"done": 50}}
    assert page.next() == {"op": "result", "id": 1, "value": "done"}
    page.send(op="call", id=2, topic="demo", method="report")
    assert page.next()["op"] == "result"


def test_subscribers_share_one_subscription_and_each_gets_the_events(
    gateway: Gateway, token: str, page: Browser, client: Any
) -> None:
    with browser(address_of(gateway)) as other:
        other.hello(token)
        assert page.ask("subscribe", pattern="disk.#") == {"op": "result", "id": 1, "value": None}
        other.ask("subscribe", pattern="disk.#")
        assert gateway.statistics()["patterns"] == 1 and gateway.statistics()["subscriptions"] == 2
        assert client.publish(None, "disk.node-3", {"free": 3}, confirm=True) == 1
        event = {"op": "event", "id": 1, "topic": "disk.node-3", "payload": {"free": 3}}
        assert page.next() == other.next() == event
        page.send(op="cancel", id=1)
        assert page.next() == {"op": "end", "id": 1}
        client.publish(None, "disk.node-4", {"free": 4}, confirm=True)
        assert other.next()["topic"] == "disk.node-4"
    eventually(lambda: gateway.statistics()["patterns"] == 0)
    assert client.publish(None, "disk.node-5", 0, confirm=True) == 0


def test_what_a_browser_publishes_is_heard_by_others(page: Browser, client: Any) -> None:
    heard: list[Any] = []
    client.subscribe("disk.#", lambda ctx, topic, payload: heard.append((topic, payload)))
    assert page.ask("publish", topic="disk.a", payload={"free": 1}, confirm=True)["value"] == 1
    eventually(lambda: heard == [("disk.a", {"free": 1})])


def test_an_event_that_json_does_not_carry_is_lost_and_counted(page: Browser, client: Any) -> None:
    page.ask("subscribe", pattern="disk.#")
    client.publish(None, "disk.a", 1 + 2j, confirm=True)
    client.publish(None, "disk.b", 1, confirm=True)
    assert page.next() == {"op": "lost", "id": 1, "count": 1}
    assert page.next()["topic"] == "disk.b"


@pytest.mark.parametrize(
    "request_",
    [
        {"op": "call", "topic": "image", "method": "x"},
        {"op": "stream", "topic": "image", "method": "x"},
        {"op": "cast", "topic": "image", "method": "x"},
        {"op": "fanout", "topic": "image", "method": "x"},
        {"op": "publish", "topic": "notifications.info.x"},
        {"op": "subscribe", "pattern": "#"},
        {"op": "subscribe", "pattern": "*.a"},
        {"op": "call", "topic": "demo", "exchange": "other", "method": "x"},
        {"op": "cast", "topic": "demo", "exchange": "billing", "method": "x"},
        {"op": "call", "topic": "demo", "method": "echo", "context": {"is_admin": True}},
    ],
)
def test_a_token_may_do_what_its_rights_say_and_no_more(page: Browser, demo: Demo, request_: dict[str, Any]) -> None:
    error = page.ask(**request_)["error"]
    assert error["type"] == "AccessDenied" and error["details"]["token"] == "web"
    assert demo.ran == []


def test_an_exchange_has_rights_of_its_own(page: Browser, serve: Callable[..., Any]) -> None:
    serve(Demo(), "demo", exchange="billing")
    assert page.ask("call", topic="demo", exchange="billing", method="echo")["op"] == "result"


def test_the_context_of_a_token_goes_before_what_its_browsers_bring(start: Start, secrets: Secrets, demo: Demo) -> None:
    own = secrets.add("own", "call:demo", context={"user": "web"})
    both = secrets.add("both", "call:demo", context={"user": "web"}, takes_context=True)
    address = address_of(start())
    with browser(address) as page:
        page.hello(own)
        assert page.ask("call", topic="demo", method="echo")["value"]["ctx"] == {"user": "web"}
    with browser(address) as page:
        page.hello(both)
        context = {"user": "root", "lang": "en"}
        value = page.ask("call", topic="demo", method="echo", context=context)["value"]
        assert value["ctx"] == {"user": "web", "lang": "en"}


# --- tokens and origins --------------------------------------------------------------------------


def test_a_token_that_is_none_has_expired_or_is_for_other_pages_is_refused(
    start: Start, secrets: Secrets, token: str
) -> None:
    old = secrets.add("old", "call:demo", expires=time() - 1)
    elsewhere = secrets.add("elsewhere", "call:demo", origins=("https://app.example.org",))
    gateway = start(access__origins=["https://app.example.org"])
    for secret in ("", "rpcmqt_guess", token[:-1], old, elsewhere):
        with browser(address_of(gateway)) as page:
            assert page.hello(secret) == {} and page.close_code == 4401
    with browser(address_of(gateway), origin="https://app.example.org") as page:
        assert page.hello(elsewhere)["op"] == "welcome"
    assert gateway.statistics()["refused"]["token"] == 5


def test_a_revoked_token_ends_its_connections_and_others_stay(start: Start, secrets: Secrets, demo: Demo) -> None:
    gone, stays = secrets.add("gone", "call:demo"), secrets.add("stays", "call:demo")
    address = address_of(start())
    with browser(address) as page, browser(address) as other:
        page.hello(gone), other.hello(stays)
        secrets.remove("gone")
        assert page.ended() == 4401
        assert other.ask("call", topic="demo", method="echo")["op"] == "result"
    with browser(address) as page:
        page.hello(gone)
        assert page.ended() == 4401


def test_a_token_that_expires_ends_its_connections(start: Start, secrets: Secrets) -> None:
    brief = secrets.add("brief", "call:demo", expires=time() + 2)
    with browser(address_of(start())) as page:
        assert page.hello(brief)["op"] == "welcome"
        assert page.ended() == 4401


def test_new_rights_are_in_force_at_once_and_end_subscriptions(start: Start, secrets: Secrets, demo: Demo) -> None:
    token = secrets.add("web", "subscribe:disk.#", "call:demo")
    with browser(address_of(start())) as page:
        page.hello(token)
        page.ask("subscribe", pattern="disk.#")
        path = Path(secrets.path)
        path.write_text(path.read_text().replace('verbs = ["subscribe"]', 'verbs = ["publish"]'))
        assert page.next()["error"]["type"] == "AccessDenied"
        assert page.ask("call", topic="demo", method="echo")["op"] == "result"
        assert page.ask("publish", topic="disk.a", payload=1)["op"] == "result"


def test_a_file_of_tokens_that_becomes_wrong_cuts_nobody_off(
    start: Start, secrets: Secrets, token: str, demo: Demo, caplog: pytest.LogCaptureFixture
) -> None:
    with browser(address_of(start())) as page:
        page.hello(token)
        Path(secrets.path).write_text("[[token]]\nname = 3\n")
        eventually(lambda: "tokens stay as they were" in caplog.text)
        assert page.ask("call", topic="demo", method="echo")["op"] == "result"


@pytest.mark.parametrize(
    ("origin", "host", "status"),
    [
        (None, "localhost", 101),
        ("http://localhost", "localhost", 101),
        ("http://localhost:7790", "localhost:7790", 101),
        ("https://app.example.org", "localhost", 101),
        ("https://gateway.example.org", "gateway.example.org", 101),
        ("http://localhost:8000", "localhost:7790", 403),
        ("https://evil.example", "localhost", 403),
        ("https://app.example.org.evil.example", "localhost", 403),
        ("null", "localhost", 403),
        ("", "localhost", 403),
        ("http://evil.example", "evil.example", 421),
    ],
)
def test_pages_of_other_origins_are_refused(start: Start, origin: str | None, host: str, status: int) -> None:
    gateway = start(access__origins=["https://app.example.org"], listen__hosts=["gateway.example.org"])
    with browser(address_of(gateway), origin=origin, host=host) as page:
        assert page.status == status


# --- limits --------------------------------------------------------------------------------------


def test_requests_and_subscriptions_beyond_their_limits_are_refused(start: Start, token: str, demo: Demo) -> None:
    gateway = start(limits__requests=2, limits__subscriptions=1)
    with browser(address_of(gateway)) as page:
        page.hello(token)
        for number in (11, 12):
            page.send(op="call", id=number, topic="demo", method="wait")
        error = page.ask("call", topic="demo", method="echo")["error"]
        assert error["type"] == "Overloaded" and "limits.requests = 2" in error["text"]
        assert page.ask("subscribe", pattern="disk.a")["op"] == "result"
        assert "limits.subscriptions = 1" in page.ask("subscribe", pattern="disk.b")["error"]["text"]
        page.send(op="cancel", id=12)
        page.answer(12)
        assert page.ask("call", topic="demo", method="echo")["op"] == "result"


def test_who_sends_too_much_is_told_when_to_come_again_and_then_cut_off(start: Start, token: str, demo: Demo) -> None:
    gateway = start(limits__messages_per_second=5)
    with browser(address_of(gateway)) as page:
        page.hello(token)
        # At once, so that no second passes between them, in which as many more are allowed.
        page.send_all({"op": "call", "id": n, "topic": "demo", "method": "echo"} for n in range(1, 9))
        answers = [page.next() for _ in range(8)]
        refused = [each["error"] for each in answers if each["op"] == "error"]
        assert refused and all(error["type"] == "Overloaded" for error in refused)
        assert 0 < refused[0]["details"]["retry_after"] <= 0.2
        for number in range(1000, 1100):
            page.send(op="call", id=number, topic="demo", method="echo")
        assert page.ended() == 1008


def test_the_rate_of_a_token_is_that_of_all_its_connections(start: Start, secrets: Secrets, demo: Demo) -> None:
    token = secrets.add("slow", "call:demo", messages_per_second=4.0)
    address = address_of(start())
    with browser(address) as page, browser(address) as other:
        page.hello(token), other.hello(token)
        calls = [{"op": "call", "id": n, "topic": "demo", "method": "echo"} for n in range(1, 5)]
        # Each alone may do as much in a second.
        page.send_all(calls)
        other.send_all(calls)
        answers = [each.next() for _ in calls for each in (page, other)]
    assert any(answer["op"] == "error" for answer in answers)


def test_connections_are_limited_in_all_by_address_and_by_token(start: Start, token: str) -> None:
    address = address_of(start(limits__connections=1))
    with browser(address), browser(address) as second:
        assert second.status == 503
    address = address_of(start(limits__connections_per_address=1))
    with browser(address), browser(address) as second:
        assert second.status == 0
    address = address_of(start(limits__connections_per_token=1))
    with browser(address) as first, browser(address) as second:
        first.hello(token)
        assert second.hello(token) == {} and second.close_code == 4401


def test_behind_a_proxy_the_address_is_the_browsers(start: Start, token: str) -> None:
    gateway = start(listen__proxies=["127.0.0.1"], limits__connections_per_address=1)
    address = address_of(gateway)
    with browser(address, more="X-Forwarded-For: 203.0.113.1\r\n") as first:
        with browser(address, more="X-Forwarded-For: 203.0.113.1\r\n") as second:
            assert (first.status, second.status) == (101, 429)
        with browser(address, more="X-Forwarded-For: 203.0.113.1, 203.0.113.2\r\n") as third:
            assert third.status == 101


# --- pages and the end ---------------------------------------------------------------------------


def test_the_client_and_a_folder_are_served_and_nothing_else(start: Start, tmp_path: Any) -> None:
    folder = tmp_path / "site"
    (folder / "sub").mkdir(parents=True)
    (folder / "index.html").write_text("<title>here</title>")
    (folder / ".secret").write_text("secret")
    (tmp_path / "outside").write_text("secret")
    (folder / "link").symlink_to(tmp_path / "outside")
    address = address_of(start(pages__folder=str(folder)))
    status, head, body = get(address, "/")
    assert status == 200 and b"text/html; charset=utf-8" in head and b"here" in body
    status, head, body = get(address, "/rpcmq.js?v=1")
    assert status == 200 and b"text/javascript" in head and b"export class Client" in body
    assert get(address, "/index.html", "Host: localhost", method="HEAD")[2] == b""
    for path in ("/.secret", "/../outside", "/%2e%2e/outside", "/link", "/sub", "/nothing", "//etc/passwd", "/%00"):
        assert get(address, path)[0] == 404
    assert get(address, "/", "Host: localhost", method="POST")[0] == 405
    assert get(address, "/", "Host: evil.example")[0] == 421
    assert get(address, "/rpcmq")[0] == 426


def test_the_metrics_have_an_address_of_their_own(start: Start, token: str, demo: Demo) -> None:
    gateway = start(listen__metrics="127.0.0.1:0")
    host, _, port = gateway.metrics_url.rpartition("/")[2].rpartition(":")
    with browser(address_of(gateway)) as page:
        page.hello(token)
        page.ask("call", topic="demo", method="echo")
        text = get((host, int(port)), "/metrics")[2].decode()
        assert "rpcmq_gateway_connections 1" in text and 'rpcmq_gateway_messages_total{kind="call"} 1' in text
        assert json.loads(get((host, int(port)), "/varz")[2])["opened"] == 1
    assert get((host, int(port)), "/healthz")[0] == 200
    assert get(address_of(gateway), "/metrics")[0] == 404


def test_a_stop_lets_calls_end_and_refuses_new_ones(start: Start, token: str, demo: Demo) -> None:
    gateway = start()
    with browser(address_of(gateway)) as page, browser(address_of(gateway)) as idle:
        page.hello(token), idle.hello(token)
        page.send(op="call", id=1, topic="demo", method="hold")
        eventually(lambda: gateway.statistics()["requests"] == 1)
        stopping = gevent.spawn(gateway.stop, 60.0)
        assert idle.next() == page.next() == {"op": "draining"}
        assert idle.ask("call", topic="demo", method="echo")["error"]["type"] == "Draining"
        demo.go_on.set()
        assert page.answer(1)["value"] == "done"
        assert page.ended() == idle.ended() == 1001
        assert stopping.get(timeout=60) == 0


def test_a_stop_cuts_off_what_takes_too_long_and_says_so(start: Start, token: str, demo: Demo) -> None:
    gateway = start()
    with browser(address_of(gateway)) as page:
        page.hello(token)
        page.send(op="call", id=1, topic="demo", method="wait")
        eventually(lambda: demo.begun == ["wait"])
        assert gateway.stop(0.2) == 1
        assert page.ended() == 1001
    eventually(lambda: demo.cancelled == ["wait"])
