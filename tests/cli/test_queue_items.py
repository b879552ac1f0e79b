"""The items of queues as an operator sees and changes them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rpcmq import Client, Worker
from rpcmq.client.queue.queue_servers import QueueServers
from rpcmq.errors import PutRefused
from rpcmq.testing import InProcessRouter, eventually, routers
from tests.cli.test_queue import Billing, Narrow, answer_of, put, row_of
from tests.queue_server.queue_servers import QueueServerProcess

pytestmark = pytest.mark.integration

Invoke = Callable[..., SimpleNamespace]


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[InProcessRouter]]:
    """The routers a and b, each with a queue server."""
    where = tmp_path_factory.mktemp("queues")
    with (
        routers(2) as found,
        QueueServerProcess(found[0].url, where / "a", "a"),
        QueueServerProcess(found[1].url, where / "b", "b"),
    ):
        yield found


def rows_of(invoke: Invoke, router: InProcessRouter, *command: str, owner: str = "a") -> list[dict[str, Any]]:
    owners = answer_of(invoke("queue", *command, "--json", "--router", router.url))["owners"]
    rows: list[dict[str, Any]] = next(each["items"] for each in owners if each["owner"] == owner)
    return rows


def bury(invoke: Invoke, router: InProcessRouter, queue: str, *invoices: int) -> None:
    """Have the items die: those with 0 are rejected, negative ones fail twice."""
    invoke("queue", "set", queue, "attempts=2", "backoff=0", "--create", "--owner", "a", "--router", router.url)
    put(router, queue, *invoices)
    with Worker(queue, Billing(), router=router.url):
        eventually(lambda: row_of(invoke, router, queue)["dead"] == len(invoices))


def test_peek_takes_nothing(system: list[InProcessRouter], invoke: Invoke) -> None:
    put(system[0], "peeked", 1, 2)
    with Client(system[0].url) as client:
        message = {"method": "charge", "args": {"invoice": 3}}
        client.put(None, "peeked", message, id="invoice-3", priority=5, key="account-1")
        client.put(None, "peeked", message, delay=1000)
    eventually(lambda: len(rows_of(invoke, system[0], "peek", "peeked", "--state", "ready")) == 3)
    at = ("--router", system[1].url)
    assert invoke("queue", "pause", "peeked", *at).returncode == 0
    first, *_ = rows_of(invoke, system[1], "peek", "peeked", "--state", "ready")
    assert first["method"] == "charge" and first["bytes"] > 0 and first["attempts"] == 0
    later = rows_of(invoke, system[1], "peek", "peeked", "--state", "postponed")
    assert [990 < row["due_in"] <= 1000 for row in later] == [True]
    ended = invoke("queue", "peek", "peeked", "--state", "ready", *at)
    lines = [line.split() for line in ended.stdout.splitlines()]
    assert ["5/1", "a", "invoice-3", "charge"] in [line[:4] for line in lines]
    decoded = rows_of(invoke, system[1], "peek", "peeked", "--state", "postponed", "--args")
    assert [(row["args"], row["context"]) for row in decoded] == [({"invoice": 3}, None)] and "body" not in decoded[0]
    assert '{"invoice": 3}' in invoke("queue", "peek", "peeked", "--state", "postponed", "--args", *at).stdout
    assert "has no items that are dead" in invoke("queue", "peek", "peeked", "--state", "dead", *at).stdout


@pytest.mark.parametrize("of", ["postponed", "ready"])
def test_peek_says_that_more_items_are_there_than_a_look_shows(
    system: list[InProcessRouter], invoke: Invoke, of: str
) -> None:
    queue = f"large-{of}"
    with Client(system[0].url) as client:
        for n in range(7):
            message = {"method": "charge", "args": {"invoice": f"{n}{'x' * (1 << 20)}"}}
            client.put(None, queue, message, delay=1000 if of == "postponed" else 0)
    eventually(lambda: row_of(invoke, system[0], queue)[of] == 7)
    at = ("--state", of, "--router", system[1].url)
    ended = invoke("queue", "peek", queue, *at)
    assert ended.stdout.count("charge") == 4 and ended.returncode == 0
    text = f"rpcmq: queue {queue} of a has more items that are {of}: 4 MiB of them are shown at the most\n"
    assert ended.stderr == text
    ended = invoke("queue", "peek", queue, "--json", *at)
    (owner,) = json.loads(ended.stdout)["owners"]
    assert (len(owner["items"]), owner["is_cut"], ended.stderr) == (4, True, text)
    ended = invoke("queue", "peek", queue, "--count", "4", *at)
    assert ended.stdout.count("charge") == 4 and ended.stderr == "", "as many as were asked for"


def test_peek_says_that_it_decodes_a_hundred_items_at_the_most(system: list[InProcessRouter], invoke: Invoke) -> None:
    put(system[0], "many", *range(1, 103))
    eventually(lambda: row_of(invoke, system[0], "many")["ready"] == 102)
    at = ("--count", "500", "--router", system[0].url)
    ended = invoke("queue", "peek", "many", "--args", *at)
    assert "queue many of a has more items that are ready: 100 items, or 4 MiB of them, are shown" in ended.stderr
    assert invoke("queue", "peek", "many", *at).stderr == ""


def test_peek_tells_the_reason_in_a_narrow_terminal_too(
    system: list[InProcessRouter], invoke: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    bury(invoke, system[0], "narrow", -5)
    monkeypatch.setattr("rpcmq.cli.queue_items.Output", Narrow)
    ended = invoke("queue", "peek", "narrow", "--state", "dead", "--args", "--router", system[0].url)
    lines = ended.stdout.splitlines()
    assert "ValueError" in ended.stdout and "negative" in ended.stdout and max(map(len, lines)) <= 80
    assert "Not shown, for they do not fit: key" in ended.stdout
    put(system[0], "narrow", 1)
    assert "reason" not in invoke("queue", "peek", "narrow", "--router", system[0].url).stdout


def test_the_longest_names_leave_the_others_readable(system: list[InProcessRouter], invoke: Invoke) -> None:
    longest, wide = f"{'i' * 250}-last", "\u65e5" * 85
    with Client(system[0].url) as client:
        client.put(None, "long", {"method": "m" * 255, "args": {}}, id=longest, key="k" * 255)
        client.put(None, "long", {"method": "charge", "args": {"invoice": 1}}, id=wide)
        client.put(None, "long", {"method": "charge", "args": {"invoice": 2}}, id="i" * 64)
    assert {row["id"] for row in rows_of(invoke, system[0], "peek", "long")} == {longest, wide, "i" * 64}
    shown = invoke("queue", "peek", "long", "--router", system[0].url).stdout
    assert f"{'i' * 45}...{'i' * 11}-last  " in shown and f" {'i' * 64} " in shown
    assert "i" * 65 not in shown and "m" * 65 not in shown and "k" * 65 not in shown
    assert max(map(len, shown.splitlines())) < 300
    bury(invoke, system[0], "long-dead")
    with Client(system[0].url) as client, Worker("long-dead", Billing(), router=system[0].url):
        client.put(None, "long-dead", {"method": "charge", "args": {"invoice": 0}}, id=longest)
        eventually(lambda: row_of(invoke, system[0], "long-dead")["dead"] == 1)
    dead = ("queue", "dead", "long-dead", "--router", system[0].url)
    assert f"...{'i' * 11}-last  " in invoke(*dead).stdout and longest not in invoke(*dead).stdout
    assert longest in invoke(*dead, "--traceback").stdout


@pytest.mark.parametrize("command", [("dead",), ("dead", "--traceback")])
def test_more_dead_items_than_one_answer_has_are_shown_each_once(
    system: list[InProcessRouter], invoke: Invoke, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    name = f"many-{len(command)}"
    bury(invoke, system[0], name, *[0] * 120)
    look, asked = QueueServers.look, []

    def in_parts(servers: QueueServers, owner: str, method: str, **args: Any) -> Any:
        asked.append((owner, args["most"]))
        return look(servers, owner, method, **{**args, "most": min(50, args["most"])})

    monkeypatch.setattr(QueueServers, "look", in_parts)
    rows = rows_of(invoke, system[1], *command, name, "--count", "110")
    assert len(rows) == len({row["item"] for row in rows}) == 110 and "mark" not in rows[0]
    assert [most for owner, most in asked if owner == "a"] == [110, 60, 10]
    assert len(rows_of(invoke, system[1], *command, name, "--count", "1000")) == 120


def test_dead_items_tell_their_stories(system: list[InProcessRouter], invoke: Invoke) -> None:
    bury(invoke, system[0], "deadly", 0, -3)
    rows = {row["reason"]: row for row in rows_of(invoke, system[1], "dead", "deadly", "--traceback")}
    assert sorted(rows) == ["failed: ValueError: negative", "rejected: nothing to charge"]
    story = rows["failed: ValueError: negative"]["story"]
    assert [each["outcome"] for each in story] == ["failed", "failed"]
    assert "in charge" in story[0]["text"] and story[0]["text"].endswith("ValueError: negative")
    ended = invoke("queue", "dead", "deadly", "--router", system[0].url)
    assert ended.returncode == 0 and "ValueError: negative" in ended.stdout and "Traceback" not in ended.stdout
    ended = invoke("queue", "dead", "deadly", "--traceback", "--router", system[0].url)
    assert ended.stdout.count("Traceback (most recent call last)") == 2 and ": rejected\n" in ended.stdout


def test_retry_puts_dead_items_again(system: list[InProcessRouter], invoke: Invoke) -> None:
    bury(invoke, system[0], "tried", -1, -2, -3)
    at = ("--router", system[1].url)
    name = rows_of(invoke, system[0], "dead", "tried")[0]["item"]
    ended = invoke("queue", "retry", "tried", name, *at)
    assert (ended.returncode, ended.stdout) == (0, "tried of a: 1 item put again\n")
    ended = invoke("queue", "retry", "tried", name, *at)
    assert (ended.returncode, ended.stdout) == (1, "tried of a: 0 items put again\n")
    no_such = "there is no such item: it has ended, or was never put"
    assert ended.stderr == f"rpcmq: item {name} of queue tried of a was not put again: {no_such}\n"
    other = rows_of(invoke, system[0], "dead", "tried")[0]["item"]
    ended = invoke("queue", "retry", "tried", other, "9/99", *at)
    assert (ended.returncode, ended.stdout) == (1, "tried of a: 1 item put again\n") and "item 9/99" in ended.stderr
    assert answer_of(invoke("queue", "retry", "tried", "--all", "--json", *at))["owners"] == [
        {"owner": "a", "items": 1, "missed": {}}
    ]
    for verb in (["retry"], ["drop"], ["move", "--to", "by-hand"]):
        ended = invoke("queue", verb[0], "tried", *verb[1:], "--all", *at)
        assert (ended.returncode, ended.stdout) == (0, "tried of a: no dead items: nothing to do\n")
    with Worker("tried", Billing(), router=system[0].url):
        eventually(lambda: row_of(invoke, system[0], "tried")["counters"]["failed"] == 12)
        eventually(lambda: row_of(invoke, system[0], "tried")["dead"] == 3)


def test_all_dead_items_are_changed_part_by_part_of_which_each_is_told(
    system: list[InProcessRouter], invoke: Invoke
) -> None:
    many = 2 * 1024 + 256 + 1
    items = [{"method": "charge", "args": {"invoice": number}} for number in range(many)]
    with Client(system[0].url) as client:
        client.put_many(None, "many", items, expires=0.001)
    with Worker("many", Billing(), router=system[0].url):
        eventually(lambda: row_of(invoke, system[0], "many")["dead"] == many, 120.0)
    ended = invoke("queue", "move", "many", "--to", "others", "--all", "--router", system[0].url)
    assert ended.stdout == f"many of a: {many} items moved to others\n"
    assert ended.stderr.splitlines() == [f"many of a: {count} items moved to others so far" for count in (1024, 2048)]


def test_an_item_that_is_named_twice_is_changed_once(system: list[InProcessRouter], invoke: Invoke) -> None:
    bury(invoke, system[0], "twice", 0, 0, 0)
    names = [row["item"] for row in rows_of(invoke, system[0], "dead", "twice")]
    verbs = {"retry": ([], "put again"), "drop": ([], "dropped"), "move": (["--to", "other"], "moved to other")}
    for name, (verb, (more, done)) in zip(names, verbs.items(), strict=True):
        ended = invoke("queue", verb, "twice", *more, name, name, "--router", system[1].url)
        assert (ended.returncode, ended.stdout, ended.stderr) == (0, f"twice of a: 1 item {done}\n", "")


def test_drop_forgets_dead_items(system: list[InProcessRouter], invoke: Invoke) -> None:
    bury(invoke, system[0], "dropped", 0, 0, 0)
    at = ("--router", system[0].url)
    names = [row["item"] for row in rows_of(invoke, system[0], "dead", "dropped")]
    assert invoke("queue", "drop", "dropped", *names[:2], *at).stdout == "dropped of a: 2 items dropped\n"
    assert [row["item"] for row in rows_of(invoke, system[0], "dead", "dropped")] == names[2:]
    assert invoke("queue", "drop", "dropped", "--all", *at).returncode == 0
    assert row_of(invoke, system[0], "dropped")["dead"] == 0


def test_where_nothing_is_moved_no_queue_is_made(system: list[InProcessRouter], invoke: Invoke) -> None:
    at = ("--router", system[0].url)
    put(system[0], "unmoved", 1)
    for which in (["--all"], ["0/1"]):
        invoke("queue", "move", "unmoved", *which, "--to", "typo", *at)
        eventually(lambda: "typo" not in invoke("queue", "ls", *at).stdout)
    assert "unmoved" in invoke("queue", "ls", *at).stdout


def test_items_move_to_another_queue(system: list[InProcessRouter], invoke: Invoke) -> None:
    at = ("--router", system[1].url)
    bury(invoke, system[0], "from", 0)
    ended = invoke("queue", "move", "from", "--all", "--to", "by-hand", *at)
    assert (ended.returncode, ended.stdout) == (0, "from of a: 1 item moved to by-hand\n")
    assert row_of(invoke, system[0], "from")["dead"] == 0
    eventually(lambda: (row := row_of(invoke, system[0], "by-hand"))["ready"] + row["postponed"] == 1)
    invoke("queue", "pause", "from", *at)
    put(system[0], "from", 1, 2)
    assert invoke("queue", "move", "from", "--ready", "--to", "by-hand", *at).returncode == 0
    eventually(lambda: row_of(invoke, system[0], "by-hand")["ready"] == 3)
    for wrong in (
        ["--to", "from", "--all"],
        ["--to", "x"],
        ["--to", "x", "--ready", "--all"],
        ["--to", "x", "17"],
        ["--to", "", "--all"],
    ):
        assert invoke("queue", "move", "from", *wrong, *at).returncode == 2


def test_an_item_of_several_owners_needs_the_owner(system: list[InProcessRouter], invoke: Invoke) -> None:
    for router in system:
        put(router, "shared", 1, delay=1000)
    at = ("--router", system[0].url)
    ended = invoke("queue", "drop", "shared", "0/1", *at)
    assert ended.returncode == 2 and "several routers have a queue 'shared' (a, b): say --owner" in ended.stderr
    ended = invoke("queue", "drop", "shared", "0/1", "--owner", "b", *at)
    assert (ended.returncode, ended.stdout) == (1, "shared of b: 0 items dropped\n")
    assert "was not dropped: it is postponed, not dead" in ended.stderr
    assert invoke("queue", "drop", "shared", *at).returncode == 2


def test_a_queue_that_drains_takes_nothing_and_ends_what_it_has(system: list[InProcessRouter], invoke: Invoke) -> None:
    at = ("--router", system[0].url)
    put(system[0], "drained", 1, 2)
    ended = invoke("queue", "drain", "drained", "--wait", "0.1", *at)
    assert (ended.returncode, ended.stdout) == (1, "drained of a: 2 items left\n")
    with pytest.raises(PutRefused, match="draining"):
        put(system[0], "drained", 3)
    with Worker("drained", Billing(), router=system[1].url):
        ended = invoke("queue", "drain", "drained", "--wait", "60", "--json", *at)
    assert answer_of(ended)["owners"] == [{"owner": "a", "items": 0}]
    assert invoke("queue", "resume", "drained", *at).stdout == "drained of a: resumed\n"
    put(system[0], "drained", 3)


def test_a_pause_and_settings_last_over_a_restart(
    system: list[InProcessRouter], tmp_path: Path, invoke: Invoke
) -> None:
    with routers(1) as (lone,), QueueServerProcess(lone.url, tmp_path / "a", "a") as server:
        put(lone, "paused", 1)
        assert invoke("queue", "pause", "paused", "--router", lone.url).returncode == 0
        assert invoke("queue", "set", "new", "attempts=7", "--create", "--router", lone.url).returncode == 0
        server.kill()
        server.wait()
        server.restart()
        show = ("queue", "show", "paused", "--json", "--router", lone.url)
        eventually(lambda: invoke(*show).returncode == 0)
        row = json.loads(invoke(*show).stdout)["owners"][0]
        assert (row["state"], row["is_paused"], row["ready"]) == ("paused", True, 1)
        row = json.loads(invoke("queue", "show", "new", "--json", "--router", lone.url).stdout)["owners"][0]
        assert row["settings"]["attempts"] == 7
