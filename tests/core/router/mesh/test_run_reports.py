"""The dispatch log of a request's own router names the process that ran it elsewhere, and the time between the two."""

from __future__ import annotations

import pytest

from rpcmq.core.router.base_link import BaseLink
from rpcmq.core.router.mesh.run_reports import RunReports
from rpcmq.core.router.settings import Settings
from rpcmq.errors import Outcome
from rpcmq.log_format import Record
from rpcmq.testing.mesh_network import MeshNetwork, Process
from rpcmq.wire import Kind, has_names, pack, payload_of
from rpcmq.wire.run_report import MAX_RUNNERS
from tests.core.router.logged import Memory


class Logged:
    """A mesh of two routers; a has a dispatch log, and b has the service ``node``."""

    def __init__(self, is_logged: bool = True) -> None:
        self.sink = Memory()
        sinks = {"a": self.sink} if is_logged else {}
        self.net = MeshNetwork(("a", "b"), Settings(recovery_seconds=0.0), sinks=sinks)
        self.net.advance(2.0)
        self.api = self.net.process("api", router="a")
        self.node = self.net.process("node", router="b")
        self.node.register("compute", server="node-7", credit=4)
        self.net.advance(1.0)
        self.net.delay("a", "b", 0.020)

    def records(self) -> list[Record]:
        self.net.advance(1.0)
        return sorted(record for record in self.sink.entries() if record.outcome is not None)

    def one(self) -> Record:
        (record,) = self.records()
        return record


@pytest.fixture
def mesh() -> Logged:
    return Logged()


def call(mesh: Logged, seconds: float, node: Process | None = None) -> None:
    """A call whose consumer takes ``seconds`` for it."""
    node = node or mesh.node
    mesh.api.request("compute", "reboot", ttl=30)
    mesh.net.advance(0.1)
    request = node.take(Kind.REQUEST)
    mesh.net.advance(seconds)
    node.reply(request, b"done")
    mesh.net.advance(0.1)


def test_the_log_names_the_process_its_router_and_the_time_between_routers(mesh: Logged) -> None:
    call(mesh, 0.5)
    record = mesh.one()
    assert (record.server, record.server_identity, record.server_router) == ("node-7", "node", "b")
    assert record.home_us is not None and record.service_us is not None
    assert record.between_us == 40_000
    assert record.service_us == record.home_us + 40_000


def test_the_caller_gets_the_answer_without_the_report(mesh: Logged) -> None:
    made = mesh.api.request("compute", "reboot", ttl=30)
    mesh.net.advance(0.1)
    mesh.node.reply(mesh.node.take(Kind.REQUEST), b"done")
    mesh.net.advance(0.1)
    assert made.end.payload == b"done"
    assert made.end.kind == Kind.REPLY
    assert not has_names(made.end.message)


def test_an_error_of_the_method_keeps_its_class(mesh: Logged) -> None:
    mesh.api.request("compute", "reboot", ttl=30)
    mesh.net.advance(0.1)
    request = mesh.node.take(Kind.REQUEST)
    mesh.node.send(Kind.FAULT, b"no", key=request.key, format=1, consumer=request.header.consumer, method=b"ValueError")
    mesh.net.advance(0.1)
    record = mesh.one()
    assert (record.error_class, record.outcome, record.server_identity) == ("ValueError", Outcome.REMOTE_ERROR, "node")
    assert record.between_us == 40_000


def test_a_cast_is_reported_with_its_settlement(mesh: Logged) -> None:
    for _ in range(3):
        mesh.api.cast("compute", "reboot")
    mesh.net.advance(0.1)
    for _ in range(3):
        mesh.node.settle(mesh.node.take(Kind.CAST))
    mesh.net.advance(0.1)
    records = mesh.records()
    assert [(each.server_identity, each.server_router, each.between_us) for each in records] == [
        ("node", "b", 40_000)
    ] * 3


def test_of_a_request_that_ran_here_there_is_no_time_between_routers(mesh: Logged) -> None:
    here = mesh.net.process("here", router="a")
    here.register("compute", server="node-1", credit=4)
    mesh.net.advance(1.0)
    call(mesh, 0.5, here)
    record = mesh.one()
    assert (record.server, record.server_identity) == ("node-1", "here")
    assert (record.server_router, record.home_us, record.between_us) == (None, None, None)


def test_of_a_call_that_timed_out_only_the_router_is_known(mesh: Logged) -> None:
    call(mesh, 0.5)
    mesh.api.request("compute", "reboot", ttl=2)
    mesh.net.advance(3.0)
    record = mesh.records()[-1]
    assert record.outcome == Outcome.TIMEOUT
    assert (record.server, record.server_identity, record.server_router) == ("", "", "b")
    assert record.between_us is None


@pytest.mark.parametrize(("is_logged", "told"), [(True, 1), (False, 0)])
def test_a_name_is_told_once_and_no_router_without_a_log_is_told_any(is_logged: bool, told: int) -> None:
    mesh = Logged(is_logged)
    for _ in range(5):
        call(mesh, 0.0)
    assert sum(map(len, runners_at(mesh, "a").values())) == told
    assert mesh.net.link(mesh.api).counters["malformed reply"] == 0


def runners_at(mesh: Logged, router: str) -> dict[BaseLink, dict[int, tuple[str, str]]]:
    parts = mesh.net.hosts[router].router.mesh.parts
    return next(part for part in parts if isinstance(part, RunReports))._runners


def test_names_beyond_the_bound_are_told_again_with_other_numbers(
    mesh: Logged, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rpcmq.core.router.mesh.run_reports.MAX_RUNNERS", 1)
    call(mesh, 0.0)
    other = mesh.net.process("other", router="b")
    other.register("volume", server="node-8", credit=4)
    mesh.net.advance(1.0)
    mesh.api.request("volume", "attach", ttl=30)
    mesh.net.advance(0.1)
    other.reply(other.take(Kind.REQUEST), b"done")
    mesh.net.advance(0.1)
    call(mesh, 0.0)
    assert [each.server_identity for each in mesh.records()] == ["node", "other", "node"]
    assert len(next(iter(runners_at(mesh, "a").values()))) == 1


@pytest.mark.parametrize(
    "message",
    [
        pack(Kind.RUNNER, b"x", sequence=MAX_RUNNERS + 1),
        pack(Kind.RUNNER, b"x"),
        pack(Kind.RUNNER, b"", sequence=1),
        pack(Kind.RUNNER, b"x" * 256, sequence=1),
    ],
)
def test_a_name_that_breaks_the_bounds_is_refused(mesh: Logged, message: bytes) -> None:
    assert len(payload_of(message)) <= 256
    link = mesh.net.hosts["a"].router.links.by_identity("b", "mesh")
    assert link is not None
    with pytest.raises(Exception, match="RUNNER"):
        link.handlers[Kind.RUNNER](mesh.net.now, link, message)
