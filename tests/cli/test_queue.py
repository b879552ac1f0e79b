"""``rpcmq queue`` as an operator types it, over two routers with a queue server each."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from rpcmq import Client, Reject, Worker
from rpcmq.cli.doctor_queues import queue_problems
from rpcmq.cli.output import Output
from rpcmq.errors import AccessDenied
from rpcmq.testing import InProcessRouter, eventually, routers
from tests.queue_server.queue_servers import QueueServerProcess
from tests.server.daemons import router as daemon

pytestmark = pytest.mark.integration

Invoke = Callable[..., SimpleNamespace]
PAGE = (Path(__file__).parents[2] / "docs" / "queues.md").read_text(encoding="utf-8")


class Billing:
    """Charges invoices."""

    def charge(self, ctx: Any, invoice: int) -> None:
        """Charge it, unless it is negative."""
        if invoice < 0:
            raise ValueError("negative")
        if invoice == 0:
            raise Reject("nothing to charge")


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[InProcessRouter]]:
    """The routers a and b, each with a queue server, and c without."""
    where = tmp_path_factory.mktemp("queues")
    with ExitStack() as stack:
        found = stack.enter_context(routers(3))
        for router, name in zip(found, "ab", strict=False):
            stack.enter_context(QueueServerProcess(router.url, where / name, name))
        with Client(found[2].url) as client:
            eventually(lambda: _answers(client, "a") and _answers(client, "b"))
        yield found


def _answers(client: Client, owner: str) -> bool:
    from rpcmq.client.queue.queue_servers import QueueServers
    from rpcmq.errors import NoConsumer

    try:
        return bool(QueueServers(client, 5).look(owner, "queues")["owner"] == owner)
    except NoConsumer:
        return False


def put(router: InProcessRouter, queue: str, *invoices: int, **options: Any) -> None:
    with Client(router.url) as client:
        client.put_many(None, queue, [{"method": "charge", "args": {"invoice": each}} for each in invoices], **options)


def answer_of(ended: SimpleNamespace, code: int = 0) -> dict[str, Any]:
    assert (ended.returncode, ended.stderr) == (code, "")
    answer: dict[str, Any] = json.loads(ended.stdout)
    return answer


def row_of(invoke: Invoke, router: InProcessRouter, queue: str, owner: str = "a") -> dict[str, Any]:
    rows = answer_of(invoke("queue", "show", queue, "--json", "--router", router.url))["owners"]
    return next(row for row in rows if row["owner"] == owner)


def test_queues_of_all_owners_side_by_side(system: list[InProcessRouter], invoke: Invoke) -> None:
    put(system[0], "listed", 1, 2)
    put(system[1], "listed", 1, delay=1000)
    for router in system:
        ended = invoke("queue", "ls", "--router", router.url)
        assert (ended.returncode, ended.stderr) == (0, "")
        rows = [line.split() for line in ended.stdout.splitlines()]
        assert [row[:2] + row[3:7] for row in rows if row and row[0] == "listed" and row[1] == "b"] == [
            ["listed", "b", "0", "1", "0", "0"]
        ]
    owners = answer_of(invoke("queue", "ls", "--json", "--router", system[2].url))["owners"]
    known = {(owner["owner"], row["queue"]): row for owner in owners for row in owner["queues"]}
    assert (known["a", "listed"]["ready"], known["b", "listed"]["postponed"]) == (2, 1)
    only = answer_of(invoke("queue", "ls", "--json", "--owner", "b", "--router", system[0].url))["owners"]
    assert [owner["owner"] for owner in only] == ["b"]


def test_periodic_items_are_listed_and_removed(system: list[InProcessRouter], invoke: Invoke) -> None:
    pytest.importorskip("cronsim", reason="cronsim is not installed: make setup")
    at = ("--router", system[2].url)
    message = {"method": "charge", "args": {"invoice": 1}}
    with Client(system[1].url) as client:
        client.declare_periodic(None, "by night", "nightly", "0 3 * * *", message, zone="Asia/Tokyo", missed="skip")
        client.declare_periodic(None, "by day", "daily", "0 15 * * *", message)
    rows = answer_of(invoke("queue", "periodic", "by night", "--json", *at))["periodic"]
    assert [(row["owner"], row["name"], row["missed"], row["last"]) for row in rows] == [("b", "nightly", "skip", None)]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT03:00:00\+09:00", rows[0]["next"])
    ended = invoke("queue", "periodic", *at)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "nightly" in ended.stdout and "daily" in ended.stdout and "0 3 * * *" in ended.stdout
    ended = invoke("queue", "periodic", "by night", "--remove", "nightly", *at)
    assert (ended.returncode, ended.stdout) == (0, "by night of b: periodic item nightly is put no more\n")
    ended = invoke("queue", "periodic", "by night", "--remove", "nightly", *at)
    assert ended.returncode == 1 and "queue 'by night' has no periodic item 'nightly'" in ended.stderr
    ended = invoke("queue", "periodic", "--remove", "nightly", *at)
    assert ended.returncode == 2 and "--remove needs the QUEUE" in ended.stderr
    assert invoke("queue", "periodic", "by night", *at).stdout == "no periodic items\n"
    assert "no router has a queue 'nowhere'" in invoke("queue", "periodic", "nowhere", *at).stderr


class Narrow(Output):
    """Prints as on a terminal of 80 columns."""

    def __init__(self, stderr: bool = False) -> None:
        super().__init__(stderr)
        self.width = 80


@pytest.fixture
def narrow(invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> Invoke:
    """Runs commands as in a terminal of 80 columns."""
    for module in ("queue", "queue_periodic"):
        monkeypatch.setattr(f"rpcmq.cli.{module}.Output", Narrow)
    return invoke


def test_a_narrow_terminal_shows_the_times_of_a_periodic_item_and_why_it_is_not_put(
    system: list[InProcessRouter], invoke: Invoke, narrow: Invoke
) -> None:
    pytest.importorskip("cronsim", reason="cronsim is not installed: make setup")
    at = ("--router", system[0].url)
    queue, name = "accounts-of-the-north", "close-the-accounts-of-each-second"
    with Client(system[0].url) as client:
        message = {"method": "charge", "args": {"invoice": 1}}
        client.declare_periodic(None, queue, name, "* * * * * *", message, zone="America/Argentina/Buenos_Aires")
    eventually(lambda: _periodic(invoke, system[0], queue)["last"] is not None, 30.0)
    assert invoke("queue", "drain", queue, *at).returncode == 0
    eventually(lambda: _periodic(invoke, system[0], queue)["why"] != "", 30.0)
    ended = narrow("queue", "periodic", queue, *at)
    lines = ended.stdout.splitlines()
    assert ended.returncode == 0 and max(map(len, lines)) <= 80
    assert {"queue", "name", "next", "last"} <= set(lines[1].split())
    assert len(re.findall(r" \d{4}-\d\d-\d\d \d\d:\d\d:\d\d", lines[2])) == 2
    told = f"{name} of {queue} of a: queue '{queue}' takes no new items: it is draining;"
    assert told in " ".join(ended.stdout.split())
    assert invoke("queue", "periodic", queue, "--remove", name, *at).returncode == 0


def _periodic(invoke: Invoke, router: InProcessRouter, queue: str) -> dict[str, Any]:
    (row,) = answer_of(invoke("queue", "periodic", queue, "--json", "--router", router.url))["periodic"]
    return dict(row)


def test_a_narrow_terminal_shows_what_items_wait_for(
    system: list[InProcessRouter], invoke: Invoke, narrow: Invoke
) -> None:
    queue = "accounts-of-the-south"
    put(system[0], queue, 1)
    why = f"no worker on queue {queue}"
    eventually(lambda: row_of(invoke, system[0], queue)["why"] == why)
    ended = narrow("queue", "ls", "--router", system[0].url)
    assert ended.returncode == 0 and max(map(len, ended.stdout.splitlines())) <= 80
    assert f"{queue} of a: {why}" in ended.stdout.splitlines()


def test_what_items_wait_for(system: list[InProcessRouter], invoke: Invoke) -> None:
    put(system[0], "lonely", *range(12))
    eventually(lambda: row_of(invoke, system[2], "lonely")["why"] == "no worker on queue lonely")
    row = row_of(invoke, system[2], "lonely")
    assert (row["ready"], row["running"], row["state"]) == (12, 0, "waits")
    ended = invoke("queue", "show", "lonely", "--router", system[1].url)
    assert ended.stdout.startswith("lonely of a: 12 items wait since ") and "no worker on queue lonely" in ended.stdout


def test_a_queue_that_stands_still_is_told_of(tmp_path: Path, system: list[InProcessRouter], invoke: Invoke) -> None:
    with routers(1) as (lone,), QueueServerProcess(lone.url, tmp_path / "a", "a") as server:
        at = ("--router", lone.url)
        put(lone, "still", 1, 2)
        assert invoke("queue", "set", "still", "alarm=2", *at).returncode == 0
        server.expect(
            r"queue 'still' stands still: 2 item\(s\) wait, none has moved for .* s: no worker on queue still"
        )
        assert row_of(invoke, lone, "still")["state"] == "stands still"
        findings = [each["text"] for each in _findings(invoke, lone) if each["about"] == "queue still"]
        assert len(findings) == 1 and "no worker on queue still" in findings[0]
        with Worker("still", Billing(), router=lone.url):
            eventually(lambda: row_of(invoke, lone, "still")["state"] == "idle")


def test_what_has_ended_and_how_long_it_took(system: list[InProcessRouter], invoke: Invoke) -> None:
    with Worker("worked", Billing(), router=system[0].url):
        put(system[0], "worked", 1, 2, 0)
        eventually(lambda: row_of(invoke, system[0], "worked")["counters"].get("dead") == 1)
    row = row_of(invoke, system[0], "worked")
    assert row["counters"] | {"given": 3, "done": 2, "rejected": 1} == row["counters"] and row["state"] == "idle"
    assert (row["times"]["working"]["count"], row["times"]["whole"]["count"]) == (3, 2)
    assert row["times"]["waiting"]["p50"] <= row["times"]["waiting"]["max"]
    assert (row["ready"], row["running"], row["dead"]) == (0, 0, 1)
    found = system[0].query("methods")["methods"]
    (seen,) = [each for each in found if (each["topic"], each["method"]) == ("rpcmq.work/worked", "charge")]
    assert seen["outcomes"] == {"ok": 2, "remote_error": 1}, "by the item's method, and what failed as a failure"


def test_an_owner_that_is_gone_is_shown_with_its_heir(
    system: list[InProcessRouter], invoke: Invoke, tmp_path: Path
) -> None:
    # Of routers of its own: each later command would wait for it once it is gone for good.
    with routers(2) as (its_own, other), QueueServerProcess(its_own.url, tmp_path / "gone", "gone"):
        show = ("queue", "ls", "--json", "--router", other.url)
        eventually(lambda: "gone" in [each["owner"] for each in answer_of(invoke(*show))["owners"]])


def test_doctor_tells_of_dead_items_and_of_paused_queues(system: list[InProcessRouter], invoke: Invoke) -> None:
    at = ("--router", system[0].url)
    with Worker("ill", Billing(), router=system[0].url):
        put(system[0], "ill", 0)
        eventually(lambda: row_of(invoke, system[0], "ill")["dead"] == 1)
    assert invoke("queue", "pause", "ill", *at).returncode == 0
    put(system[0], "ill", 1)
    findings = [each for each in _findings(invoke, system[0]) if each["about"] == "queue ill"]
    assert [each["level"] for each in findings] == ["warning", "warning"]
    assert "1 waiting item" in findings[0]["text"] and "paused by an operator" in findings[0]["text"]
    assert (findings[1]["text"], findings[1]["todo"]) == ("1 dead item", "rpcmq queue dead ill tells the reasons")
    assert not [each for each in _findings(invoke, system[2]) if "queue" in each["about"]]


def test_doctor_tells_of_answers_of_the_store_that_could_not_be_used() -> None:
    class Stub:
        def call(self, *args: Any, **options: Any) -> dict[str, Any]:
            return {"store": {"waits_for": "", "faults": 2}, "queues": []}

    ((about, text, todo),) = queue_problems(cast(Client, Stub()), "a", 1.0)
    assert about == "queues" and text.startswith("2 answers of their store could not be used") and "log of a" in todo


def _findings(invoke: Invoke, router: InProcessRouter) -> list[dict[str, Any]]:
    ended = invoke("doctor", "--json", "--router", router.url)
    findings: list[dict[str, Any]] = json.loads(ended.stdout)["findings"]
    return findings


def test_a_paused_queue_gives_nothing_until_it_is_resumed(system: list[InProcessRouter], invoke: Invoke) -> None:
    at = ("--router", system[2].url)
    put(system[0], "paused", -1, delay=1000)
    ended = invoke("queue", "pause", "paused", *at)
    assert (ended.returncode, ended.stdout) == (0, "paused of a: paused\n")
    assert "was paused already" in invoke("queue", "pause", "paused", *at).stdout
    with Worker("paused", Billing(), router=system[0].url):
        put(system[0], "paused", 1)
        row = row_of(invoke, system[0], "paused")
        assert (row["state"], row["ready"], row["running"]) == ("paused", 1, 0)
        assert row["why"] == "paused by an operator: rpcmq queue resume paused"
        assert answer_of(invoke("queue", "resume", "paused", "--json", *at))["owners"] == [
            {"owner": "a", "changed": True}
        ]
        eventually(lambda: row_of(invoke, system[0], "paused")["counters"].get("done") == 1)


def test_settings_change_while_it_runs(system: list[InProcessRouter], invoke: Invoke) -> None:
    at = ("--router", system[0].url)
    ended = invoke("queue", "set", "fresh", "attempts=2", "backoff=0", *at)
    assert ended.returncode == 1 and "no router has a queue 'fresh'" in ended.stderr
    ended = invoke("queue", "set", "fresh", "attempts=2", "backoff=0", "--create", "--owner", "a", *at)
    assert (ended.returncode, ended.stdout) == (0, "fresh of a: attempts=2, backoff=0\n")
    with Worker("fresh", Billing(), router=system[0].url):
        put(system[0], "fresh", -7)
        eventually(lambda: row_of(invoke, system[0], "fresh")["dead"] == 1)
    row = row_of(invoke, system[0], "fresh")
    assert row["counters"]["failed"] == 2 and row["settings"]["attempts"] == 2
    for wrong, text in (("attempts=0", "attempts must be"), ("speed=1", "no setting 'speed'; there are attempts")):
        ended = invoke("queue", "set", "fresh", wrong, *at)
        assert ended.returncode == 2 and text in ended.stderr
    assert invoke("queue", "set", "fresh", "attempts", *at).returncode == 2


def test_a_queue_that_nobody_has(system: list[InProcessRouter], invoke: Invoke) -> None:
    put(system[0], "known", 1, delay=1000)
    for command in (["show", "bilings"], ["pause", "bilings"]):
        ended = invoke("queue", *command, "--router", system[1].url)
        assert (ended.returncode, ended.stdout) == (1, "")
        assert "no router has a queue 'bilings'; there are " in ended.stderr and "known" in ended.stderr


def test_a_router_without_a_queue_server(system: list[InProcessRouter], invoke: Invoke) -> None:
    ended = invoke("queue", "ls", "--owner", "c", "--router", system[2].url)
    assert ended.returncode == 5 and "router 'c' has no queue server" in ended.stderr


# But for the one that asks no router.
@pytest.mark.parametrize("command", re.findall(r"^rpcmq (queue (?!salvage)[^#|\n]+)", PAGE, re.MULTILINE))
def test_the_commands_of_the_page_are_understood(command: str, invoke: Invoke) -> None:
    ended = invoke(*command.split(), "--timeout", "0.05", "--router", "tcp://127.0.0.1:1")
    assert ended.returncode == 3, "it fails where it needs a router, not before"


def test_a_mesh_without_queues(system: list[InProcessRouter], invoke: Invoke) -> None:
    with routers(1) as (lone,):
        ended = invoke("queue", "ls", "--json", "--router", lone.url)
        assert ended.returncode == 5 and json.loads(ended.stderr)["error"] == "NoConsumer"


def test_a_queue_server_that_does_not_answer_is_named(
    system: list[InProcessRouter], tmp_path: Path, invoke: Invoke
) -> None:
    with routers(1) as (lone,), QueueServerProcess(lone.url, tmp_path / "a", "a") as server:
        put(lone, "listed", 1, delay=1000)
        server.pause()
        ended = invoke("queue", "ls", "--timeout", "0.5", "--router", lone.url)
        assert ended.returncode == 1 and "the queue server of a does not answer: " in ended.stdout
        ended = invoke("queue", "periodic", "--timeout", "0.5", "--router", lone.url)
        assert ended.returncode == 1 and ended.stdout.startswith("the queue server of a does not answer: ")
        server.resume()


def test_the_right_to_look_is_not_the_right_to_change_or_to_put(tmp_path: Path, invoke: Invoke) -> None:
    keys = str(tmp_path / "keys")
    assert invoke("init", keys).returncode == 0
    rights = {
        "viewer": ["call:rpcmq.queue.admin/look.#", "admin:addresses"],
        "operator": ["call:rpcmq.queue.admin/look.#,change.#", "admin:addresses"],
        "web": ["call:rpcmq.queue/billing.#,rpcmq.queues.#"],
    }
    for name, allowed in rights.items():
        flags = [flag for right in allowed for flag in ("--allow", right)]
        assert invoke("keys", "add", name, *flags, "--keys", keys).returncode == 0
    with daemon("--keys", keys, "--queue-dir", str(tmp_path / "queue")) as running:
        env = {name: {"RPCMQ_ROUTER": running.url, "RPCMQ_KEY_FILE": f"{keys}/{name}.key"} for name in rights}
        message = {"method": "charge", "args": {"invoice": 1}}
        with Client(running.url, key_file=f"{keys}/web.key") as client:
            assert client.put(None, "billing", message, timeout=60).is_new
        assert [row["queue"] for row in _listed(invoke, env["viewer"])] == ["billing"]
        refused = [("web", "ls"), ("viewer", "pause", "billing"), ("viewer", "drop", "billing", "--all")]
        for name, *command in refused:
            ended = invoke("queue", *command, "--json", env=env[name])
            assert ended.returncode == 9 and json.loads(ended.stderr)["error"] == "AccessDenied", ended.stderr
        assert invoke("queue", "pause", "billing", env=env["operator"]).returncode == 0
        with (
            Client(running.url, key_file=f"{keys}/operator.key") as client,
            pytest.raises(AccessDenied, match="no right to call 'rpcmq"),
        ):
            client.put(None, "billing", message, timeout=5)


def _listed(invoke: Invoke, env: dict[str, str]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = answer_of(invoke("queue", "ls", "--json", env=env))["owners"][0]["queues"]
    return rows
