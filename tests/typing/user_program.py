"""A user's program for mypy --strict: right lines, and wrong ones with the error that each must be.

It is not run. An error that is not named, and one that is named and missing (an unused ``type: ignore``), both fail
``make lint`` for the checkout and test_user_program.py for the installed wheel.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, assert_type

import rpcmq
from rpcmq import CallOptions, Retry, Subscription, rpc, threads


class Compute:
    def reboot(self, ctx: Any, instance_id: str) -> str:
        return "active"


message = {"method": "reboot", "args": {"instance_id": "i-1"}}


def verbs_of_the_module() -> None:
    assert_type(rpc.call(None, "compute", {"method": "reboot"}, timeout=5), Any)
    state: str = rpc.call({"user": "u"}, "compute", message, 5, retry=Retry(2), mandatory=True, on_progress=print)
    print(state)
    rpc.call(None, "compute", message, timout=5)  # type: ignore[call-arg]
    rpc.call(None, "compute", message, timeout="5")  # type: ignore[arg-type]
    rpc.call(None, 7, message)  # type: ignore[arg-type]
    rpc.call(None, "compute")  # type: ignore[call-arg]

    rpc.cast(None, "compute", message, confirm=True, ttl=5)
    state = rpc.cast(None, "compute", message)  # type: ignore[assignment]
    rpc.cast(None, "compute", message, retry=3)  # type: ignore[call-arg]

    assert_type(rpc.fanout_cast(None, "compute", message, confirm=True), int)
    assert_type(rpc.fanout_cast(None, "compute", message), int | None)
    rpc.fanout_cast(None, "compute", message, confirmed=True)  # type: ignore[call-overload]

    assert_type(rpc.multicall(None, "compute", message, timeout=5), Iterator[Any])
    rpc.multicall(None, "compute", message, tiemout=5)  # type: ignore[call-arg]

    assert_type(rpc.publish(None, "a.b", 1, confirm=True), int)
    assert_type(rpc.publish(None, "a.b", 1), int | None)
    assert_type(rpc.notify(None, "a.b", 1, "WARN", publisher_id="p", confirm=True), int)
    rpc.notify(None, "a.b", 1, prio="WARN")  # type: ignore[call-overload]
    assert_type(rpc.subscribe("a.#", lambda ctx, topic, payload: None, window=10), Subscription)
    rpc.subscribe("a.#", lambda payload: None)  # type: ignore[arg-type, misc]


def clients() -> None:
    for client in (rpcmq.Client("tcp://a:1", timeout=5, allow=["models:*"]), threads.Client(["tcp://a:1"], "me")):
        client.call(None, "compute", message, timeout=5)
        client.call(None, "compute", message, timout=5)  # type: ignore[call-arg]
        assert_type(client.fanout_cast(None, "compute", message, confirm=True), int)
    rpcmq.Client(timout=5)  # type: ignore[call-arg]
    rpcmq.Client(format="xml")  # type: ignore[arg-type]
    threads.Client(cast_windows=5)  # type: ignore[call-arg]
    rpcmq.Client(options=CallOptions(retry=3), topic_options={"compute": CallOptions(timeout=9)})
    CallOptions(timout=3)  # type: ignore[call-arg]


def services() -> None:
    rpcmq.Service("compute", Compute(), host="node-7", key_file="k")
    rpcmq.Service("compute", Compute(), concurency=3)  # type: ignore[call-arg]
    threads.Service("compute", Compute(), concurrency=3).start(5)
    threads.Service("compute", Compute(), time_out=3)  # type: ignore[call-arg]
