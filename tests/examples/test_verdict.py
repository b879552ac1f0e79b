"""The demo's own check finds what it is to find: each falsified book is told from the true one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from examples.demo.kills import felt
from examples.demo.users import Boot, Told
from examples.demo.verdict import Books, Killed, added_up, check

KILLED = Killed("node-2", "router-a", "biller-1")


def true_users() -> Any:
    """Three boots: one on each of node-1 and node-2, one failed."""
    return SimpleNamespace(
        started=Counter(create_instance=3, reboot_instance=5),
        ok=Counter(create_instance=2, reboot_instance=5),
        told=[Told("create_instance", "LinkLost", "node-2 went away")],
        ends=Counter({0: 1, 1: 1, 2: 1}),
        hosts={1: "node-1", 2: "node-2"},
    )


def true_books() -> Books:
    """Of node-2, which was killed: one reboot run, one lost with it, one waiting."""
    books = Books.__new__(Books)
    books.live = ["node-1"]
    books.calls_in_flight = 0
    boots = [f"create_instance {number}" for number in (1, 2, 3)]
    reboots = [f"reboot_instance {number}" for number in (1, 2, 3, 4, 5)]
    runs = [f"run_instance {number}" for number in (1, 2, 3)]
    books.ledgers = {
        "api": Counter(boots + reboots),
        "scheduler": Counter(runs),
        "node-1": Counter([runs[0], *reboots[:2]]),
        "node-2": Counter([runs[1], reboots[2]]),
    }
    books.waiting = Counter({"compute.node-2": 1})
    books.done = {"node-1": {"boots": 1, "reboots": 2, "rules": 1}}
    books.sent = {"compute.node-1": 2, "compute.node-2": 3}
    books.rules = 1
    books.listed = [{"id": 1, "host": "node-1"}]
    books.billed = [1, 2]
    books.charges = Counter({1: 1, 2: 1})
    books.bills = [
        {"ready": 0, "postponed": 0, "running": 0, "dead": 0, "counters": {"done": 2, "lost": 1}},
        {"ready": 0, "postponed": 0, "running": 0, "dead": 0, "counters": {}},
    ]
    return books


def wrong(users: Any, books: Books, events: int = 1, lost: int = 0, killed: Killed = KILLED) -> set[str]:
    """First words of what is found wrong."""
    findings = check(users, books, Counter({"node-1": events}), lost, killed)
    return {finding.text.partition(":")[0] for finding in findings if not finding.is_ok}


def test_true_books_agree() -> None:
    assert wrong(true_users(), true_books()) == set()


@pytest.mark.parametrize(
    ("expected", "falsify"),
    [
        ("boots", lambda users, books: users.ends.update([2])),
        ("boots", lambda users, books: users.told.clear()),
        ("lost calls", lambda users, books: users.told.append(Told("reboot_instance", "LinkLost", "router-a died"))),
        ("lost calls", lambda users, books: [books.ledgers["api"].pop(f"create_instance {n}") for n in (1, 2)]),
        ("lost calls", lambda users, books: books.ledgers["api"].pop("reboot_instance 5")),
        ("doubled calls and casts", lambda users, books: books.ledgers["node-1"].update(["run_instance 2"])),
        ("doubled calls and casts", lambda users, books: books.ledgers["scheduler"].update(["run_instance 3"])),
        ("doubled calls and casts", lambda users, books: books.ledgers["api"].update(["reboot_instance 4"])),
        ("casts", lambda users, books: books.done["node-1"].update(reboots=3)),
        ("casts", lambda users, books: books.done["node-1"].update(reboots=1)),
        ("casts", lambda users, books: books.sent.update({"compute.node-2": 67})),
        ("casts", lambda users, books: books.waiting.update({"compute.node-2": 2})),
        ("fanout", lambda users, books: books.done["node-1"].update(rules=0)),
        ("billing", lambda users, books: books.billed.append(3)),
        ("billing", lambda users, books: books.charges.update({1: 1})),
        ("billing", lambda users, books: books.charges.pop(2)),
        ("billing", lambda users, books: books.charges.update({3: 1})),
        ("billing", lambda users, books: books.bills[1].update(dead=1)),
        ("billing", lambda users, books: books.bills[1].update(ready=1)),
        ("billing", lambda users, books: books.bills[0]["counters"].update(done=1)),
        ("instances", lambda users, books: books.listed.clear()),
        ("instances", lambda users, books: books.listed.append({"id": 1, "host": "node-1"})),
        ("instances", lambda users, books: books.listed.append({"id": 2, "host": "node-1"})),
        ("instances", lambda users, books: books.listed.extend({"id": i, "host": "node-1"} for i in (3, 4))),
        ("open calls in the routers that live", lambda users, books: setattr(books, "calls_in_flight", 1)),
    ],
)
def test_falsified_books_do_not(expected: str, falsify: Callable[[Any, Books], object]) -> None:
    users, books = true_users(), true_books()
    falsify(users, books)
    assert wrong(users, books) == {expected}


def test_a_boot_that_may_have_run_may_be_found() -> None:
    books = true_books()
    books.listed.append({"id": 3, "host": "node-1"})
    assert wrong(true_users(), books) == set()


def test_events_may_be_lost_only_where_the_subscriber_was_told_so() -> None:
    assert wrong(true_users(), true_books(), events=0) == {"events"}
    assert wrong(true_users(), true_books(), events=0, lost=1) == set()
    assert wrong(true_users(), true_books(), events=2, lost=1) == {"events"}


def test_events_may_die_with_the_router_that_had_them() -> None:
    killed = KILLED._replace(told_through_it=("node-1",))
    assert wrong(true_users(), true_books(), events=0, killed=killed) == set()
    assert wrong(true_users(), true_books(), events=2, killed=killed) == {"events"}


def test_tables_of_two_routers_are_added_up() -> None:
    def row(calls: int, p50: float | None) -> dict[str, Any]:
        latency = {"p50": p50}
        return {"topic": "api", "method": "m", "calls": calls, "casts": 0, "errors": 1, "latency_us": latency}

    assert added_up([row(2, 5.0), row(0, None), row(3, 7.0)]) == [row(5, 7.0) | {"errors": 2}]


def test_the_death_of_a_router_is_felt_by_the_boots_under_way() -> None:
    boots = [Boot(0.0, 1.0), Boot(0.5, 1.5), Boot(1.6, 4.0), Boot(3.0, 4.25)]
    text = felt(boots, killed=2.0)
    assert "1 boots were under way" in text and "they took 2.40 s at most (in the median before: 1.00 s)" in text
    assert "without any answer was 2.50 s (before: 0.50 s)" in text
    assert felt(boots[:2], killed=2.0).startswith("too few boots")
