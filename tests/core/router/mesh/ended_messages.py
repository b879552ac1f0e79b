"""Messages that a consumer ends before it is killed, and their senders, who go on elsewhere and ask for them."""

from __future__ import annotations

import pytest

from rpcmq.core.router.settings import Settings
from rpcmq.errors import Outcome
from rpcmq.testing.mesh_network import Call, MeshNetwork, Message, Process
from rpcmq.wire import STAMP, Flag, Kind
from rpcmq.wire.adoption import HERE_RECORD, Word, where_records

__all__ = [
    "KINDS",
    "RUNS",
    "assert_asked_for",
    "assert_nobody_starts_it",
    "consumer",
    "end",
    "goes_on",
    "linked_routers",
    "promise",
    "send",
    "send_again",
]

KINDS = pytest.mark.parametrize("kind", [Kind.REQUEST, Kind.CAST])
RUNS = (Kind.REQUEST, Kind.CAST)


def linked_routers() -> MeshNetwork:
    """Three routers that wait for nobody who may come back."""
    made = MeshNetwork(settings=Settings(recovery_seconds=0.0))
    made.advance(2.0)
    return made


def consumer(net: MeshNetwork, name: str, router: str, group: str = "") -> Process:
    process = net.process(name, router=router)
    process.register("jobs", credit=3, tag=0, group=group)
    net.advance(1.0)
    return process


def send(process: Process, kind: Kind, flags: int = 0) -> Call:
    return process._message(kind, "jobs", "run", b"", ttl=60, flags=flags)


def goes_on(process: Process, call: Call, kind: Kind, router: str) -> None:
    """Let the sender go on at another router, and send again what it has heard nothing of."""
    process.move(router)
    send_again(process, call, kind)


def send_again(process: Process, call: Call, kind: Kind) -> None:
    """Send again what has been sent to another router."""
    process._message(kind, "jobs", "run", b"", key=call.key, hops=1, flags=Flag.RESENT, ttl=60)


def end(process: Process, message: Message) -> None:
    if message.kind is Kind.CAST:
        process.settle(message)
    else:
        process.reply(message, b"done")


def promise(*processes: Process) -> None:
    """Say of all that they were asked for that they have not had it."""
    for process in processes:
        for message in process.got(Kind.WHERE):
            for key, stamp in where_records(message.message):
                process.send(Kind.HERE, HERE_RECORD.pack(key, stamp, Word.NOT_HAD), consumer=0)


def assert_nobody_starts_it(net: MeshNetwork, call: Call, kind: Kind, asker: str, *others: Process) -> None:
    for _ in range(12):
        net.advance(1.0)
        promise(*others)
    assert [message for process in others for message in process.got(*RUNS)] == []
    if kind is Kind.REQUEST:
        assert call.end.outcome == Outcome.LINK_LOST and "node" in call.end.body["text"]
    else:
        drops = net.router_of(asker).dispatch.requests.drops.totals
        assert drops == {"cast": {"consumer lost": 1}}


def assert_asked_for(net: MeshNetwork, process: Process, message: Message) -> None:
    """The process is asked for a message that it has ended, says so to whoever asks, and is not given it again."""
    net.advance(0.1)
    ((key, stamp),) = [record for each in process.got(Kind.WHERE) for record in where_records(each.message)]
    process.send(Kind.HERE, HERE_RECORD.pack(key, stamp, Word.ANSWERED), consumer=0)
    end(process, Message(message.message[: STAMP.start] + stamp + message.message[STAMP.stop :]))
    net.advance(0.1)
    assert process.got(*RUNS) == []
