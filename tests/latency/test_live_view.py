"""The live percentiles of a real router are those of its log: the same messages, bucket for bucket."""

from __future__ import annotations

import json
import signal
import urllib.request
from pathlib import Path
from typing import Any

import gevent
import pytest
from gevent.event import Event
from gevent.pool import Pool

from rpcmq.client import Client, Service
from rpcmq.errors import CallTimeout, NoConsumer
from tests.latency import live
from tests.latency.logs import rows
from tests.server.daemons import SECONDS, eventually, router, run

pytestmark = pytest.mark.integration

CALLS, CASTS, FANOUTS, HANGING, NOWHERE = 3000, 400, 50, 10, 20
SERVERS = ("node-1", "node-2")


class Endpoint:
    """Methods that end in different ways, after different times."""

    def __init__(self) -> None:
        self.released = Event()

    def work(self, ctx: Any, number: int) -> int:
        if number % 7 == 0:
            gevent.sleep(number % 5 / 1000)
        if number % 11 == 0:
            raise ValueError(number)
        return number

    def hang(self, ctx: Any) -> None:
        self.released.wait(SECONDS)


def message(method: str, **args: Any) -> dict[str, Any]:
    return {"method": method, "args": args}


def converse(client: Client, number: int) -> None:
    """One call, and sometimes a cast."""
    topic = ("compute", "compute.node-1", "volume")[number % 3]
    try:
        client.call(None, topic, message("work", number=number), timeout=SECONDS)
    except ValueError:
        assert number % 11 == 0
    if number < CASTS:
        client.cast(None, topic, message("work", number=1))


def hang(client: Client, _: int) -> None:
    with pytest.raises(CallTimeout):
        client.call(None, "compute", message("hang"), timeout=0.05)


def refuse(client: Client, _: int) -> None:
    with pytest.raises(NoConsumer):
        client.call(None, "nowhere", message("work"), timeout=SECONDS, mandatory=True)


def load(client: Client) -> None:
    """All of it, many at a time."""
    pool = Pool(64)
    todo = ((converse, CALLS), (hang, HANGING), (refuse, NOWHERE))
    greenlets = [pool.spawn(what, client, number) for what, times in todo for number in range(times)]
    assert len(gevent.joinall(greenlets, 4 * SECONDS, raise_error=True)) == len(greenlets)
    for _ in range(FANOUTS):
        client.fanout_cast(None, "compute", message("work", number=1))


def counted(view: list[dict[str, Any]]) -> dict[tuple[str, str], dict[str, Any]]:
    return {(row["topic"], row["method"]): {name: row[name] for name in ("outcomes", "histogram")} for row in view}


def test_the_live_histograms_are_those_of_the_log(tmp_path: Path) -> None:
    messages = CALLS + CASTS + FANOUTS * len(SERVERS) + HANGING + NOWHERE
    endpoint = Endpoint()
    flags = ("--dispatch-log", str(tmp_path), "--http", "127.0.0.1:0")
    with router(*flags) as daemon:

        def page() -> list[dict[str, Any]]:
            with urllib.request.urlopen(f"{daemon.http}/methods", timeout=SECONDS) as answer:
                methods: list[dict[str, Any]] = json.loads(answer.read())["methods"]
                return methods

        with (
            Service("compute", endpoint, host=SERVERS[0], router=daemon.url),
            Service("compute", endpoint, host=SERVERS[1], router=daemon.url),
            Service("volume", endpoint, host="a", router=daemon.url),
            Client(daemon.url) as client,
        ):
            load(client)
            eventually(lambda: sum(sum(row["outcomes"].values()) for row in page()) >= messages)
            over_http, by_query = counted(page()), counted(client.query("methods")["methods"])
            endpoint.released.set()
        daemon.signal(signal.SIGTERM)
        assert daemon.exit_code() == 0

    shipped = run("ship", "--log", str(tmp_path), "--once", "--json")
    assert shipped.returncode == 0, shipped.stderr
    (life,) = json.loads(shipped.stdout)["boots"]
    assert (life["records"], life["holes"]) == (messages, 0)

    def ended(row: dict[str, Any]) -> live.Ended:
        name = live.live_name(row["exchange"], row["topic"], row["target_server"], row["group"])
        return live.Ended(name, row["method"], row["outcome"], row["total_us"])

    shipped_rows = rows(tmp_path)
    expected = live.methods(map(ended, shipped_rows))
    assert over_http == by_query == expected
    classes = {(row["outcome"], row["error_class"]) for row in shipped_rows}
    assert classes == {("ok", None), ("remote_error", "ValueError"), ("timeout", None), ("no_consumer", None)}
    assert sum(each["histogram"]["count"] for each in expected.values()) == messages
    assert set(expected["compute", "work"]["outcomes"]) == {"ok", "remote_error"}
    assert expected["compute", "hang"]["outcomes"] == {"timeout": HANGING}
    assert expected["nowhere", "work"]["outcomes"] == {"no_consumer": NOWHERE}
