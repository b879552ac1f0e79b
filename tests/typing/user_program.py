"""A user's program for mypy --strict: right lines, and wrong ones with the error that each must be.

It is not run. An error that is not named, and one that is named and missing (an unused ``type: ignore``), both fail
``make lint`` for the checkout and test_user_program.py for the installed wheel.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterator
from typing import Any, Protocol, assert_type

import rpcmq
from rpcmq import CallOptions, Retry, Subscription, aio, as_cast, as_fanout, rpc, threads, with_options


class Compute:
    def __init__(self, hypervisor: str) -> None:
        self.hypervisor = hypervisor

    def reboot(self, ctx: Any, instance_id: str) -> str:
        return "active"

    def instances(self, ctx: Any) -> Iterator[int]:
        yield 1


class ComputeApi(Protocol):
    def reboot(self, ctx: Any, instance_id: str) -> str: ...


class AbstractCompute(ABC):
    @abstractmethod
    def reboot(self, ctx: Any, instance_id: str) -> str: ...


class AsyncCompute(Protocol):
    async def reboot(self, ctx: Any, instance_id: str) -> str: ...
    def instances(self, ctx: Any) -> AsyncIterator[int]: ...


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
    assert_type(rpc.multicall(None, "compute", message, 5, mandatory=True), Iterator[Any])
    rpc.multicall(None, "compute", message, tiemout=5)  # type: ignore[call-arg]
    rpc.multicall(None, "compute", message, mandatory="yes")  # type: ignore[arg-type]

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
    rpcmq.Service("compute", Compute("kvm"), host="node-7", key_file="k")
    rpcmq.Service("compute", Compute("kvm"), concurency=3)  # type: ignore[call-arg]
    threads.Service("compute", Compute("kvm"), concurrency=3).start(5)
    threads.Service("compute", Compute("kvm"), time_out=3)  # type: ignore[call-arg]


def stubs(client: rpcmq.Client, of_threads: threads.Client) -> None:
    compute = rpc.stub(Compute, "compute", timeout=5, retry=3)
    assert_type(compute, Compute)
    assert_type(compute.reboot(None, instance_id="i-1"), str)
    assert_type(compute.reboot(None, "i-1"), str)
    assert_type(compute.instances(None), Iterator[int])
    compute.reboot(None, instance_id=5)  # type: ignore[arg-type]
    compute.reboot(None, instance="i-1")  # type: ignore[call-arg]
    compute.reboot(None)  # type: ignore[call-arg]
    compute.rebot(None, "i-1")  # type: ignore[attr-defined]
    rpc.stub(Compute, "compute", timout=5)  # type: ignore[call-arg]

    assert_type(rpc.stub(ComputeApi, "compute"), ComputeApi)
    assert_type(client.stub(AbstractCompute, "compute").reboot(None, "i-1"), str)
    assert_type(of_threads.stub(ComputeApi, "compute").reboot(None, "i-1"), str)
    client.stub(Compute, "compute", timeout="5")  # type: ignore[arg-type]

    as_cast(compute.reboot)(None, instance_id="i-1")
    state: str = as_cast(compute.reboot)(None, "i-1")  # type: ignore[assignment]
    print(state)
    as_cast(compute.reboot)(None, instance_id=5)  # type: ignore[arg-type]
    assert_type(as_fanout(compute.reboot)(None, "i-1"), int | None)
    assert_type(with_options(compute, timeout=60), Compute)
    assert_type(with_options(compute.reboot, timeout=60, on_progress=print)(None, "i-1"), str)
    with_options(compute, timout=60)  # type: ignore[call-arg]


async def tasks(client: aio.Client) -> None:
    compute = client.stub(AsyncCompute, "compute", timeout=5)
    assert_type(await compute.reboot(None, "i-1"), str)
    async for instance in compute.instances(None):
        assert_type(instance, int)
    await compute.reboot(None, instance="i-1")  # type: ignore[call-arg]
    compute.reboot(None, "i-1")  # type: ignore[unused-coroutine]
    assert_type(await aio.as_fanout(compute.reboot)(None, "i-1"), int | None)
    await aio.as_cast(compute.instances)(None)
    await aio.as_cast(compute.reboot)(None, instance_id=5)  # type: ignore[arg-type]
    await client.call(None, "compute", message, timout=5)  # type: ignore[call-arg]
    assert_type(client.multicall(None, "compute", message, mandatory=True), AsyncIterator[Any])
    client.multicall(None, "compute", message, mandatory="yes")  # type: ignore[arg-type]
    assert_type(await client.fanout_cast(None, "compute", message, confirm=True), int)
    assert_type(await client.fanout_cast(None, "compute", message), int | None)
    assert_type(await client.publish(None, "a.b", 1, confirm=True), int)
    assert_type(await client.publish(None, "a.b", 1), int | None)
    assert_type(await client.notify(None, "a.b", 1, "WARN", confirm=True), int)
    assert_type(await client.notify(None, "a.b", 1), int | None)
    await client.publish(None, "a.b", 1, confirmed=True)  # type: ignore[call-overload]
    aio.Client(timout=5)  # type: ignore[call-arg]
    aio.Service("compute", Compute("kvm"), concurrency=3, host="node-7", key_file="k")
    aio.Service("compute", Compute("kvm"), concurency=3)  # type: ignore[call-arg]
    assert_type(await aio.stub(AsyncCompute, "compute").reboot(None, "i-1"), str)
    await aio.call(None, "compute", message, timout=5)  # type: ignore[call-arg]
    assert_type(await aio.fanout_cast(None, "compute", message, confirm=True), int)
    assert_type(await aio.publish(None, "a.b", 1, confirm=True), int)
    assert_type(await aio.notify(None, "a.b", 1), int | None)
    assert_type(aio.multicall(None, "compute", message, mandatory=True), AsyncIterator[Any])
