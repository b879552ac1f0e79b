"""The demo's own check finds what it is to find: each falsified book is told from the true one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from examples.demo.users import Told
from examples.demo.verdict import Books, check


def row(topic: str, method: str, calls: int = 0, casts: int = 0, **outcomes: int) -> dict[str, Any]:
    errors = sum(n for name, n in outcomes.items() if name != "ok")
    return {
        "topic": topic, "method": method, "calls": calls, "casts": casts, "errors": errors, "outcomes": outcomes,
    }  # fmt: skip


def true_users() -> Any:
    """Three boots: one on each of node-1 and node-2, one failed."""
    return SimpleNamespace(
        started=Counter(create_instance=3),
        ok=Counter(create_instance=2),
        told=[Told("create_instance", "LinkLost", "node-2 went away")],
        ends=Counter({0: 1, 1: 1, 2: 1}),
        hosts={1: "node-1", 2: "node-2"},
    )


def true_books() -> Books:
    """Of node-2, which was killed: one reboot run, one lost with it, one waiting."""
    books = Books.__new__(Books)
    books.live = ["node-1"]
    books.calls_in_flight = 0
    books.methods = [
        row("api", "create_instance", calls=3, ok=2, remote_error=1),
        row("compute.node-1", "reboot_instance", casts=2, ok=2),
        row("compute.node-2", "reboot_instance", casts=3, ok=1, link_lost=1),
        row("compute", "refresh_security_rules", casts=1, ok=2),
    ]
    books.waiting = {"compute.node-2": 1}
    books.done = {"node-1": {"boots": 1, "reboots": 2, "rules": 1}}
    books.sent = {"compute.node-1": 2, "compute.node-2": 3}
    books.listed = [{"id": 1, "host": "node-1"}]
    return books


def wrong(users: Any, books: Books, events: int = 1, lost: int = 0) -> set[str]:
    """First words of what is found wrong."""
    findings = check(users, books, Counter({"node-1": events}), lost)
    return {finding.text.partition(":")[0] for finding in findings if not finding.is_ok}


def test_true_books_agree() -> None:
    assert wrong(true_users(), true_books()) == set()


@pytest.mark.parametrize(
    ("expected", "falsify"),
    [
        ("boots", lambda users, books: users.ends.update([2])),
        ("boots", lambda users, books: users.told.clear()),
        ("boots", lambda users, books: books.methods[0].update(calls=4)),
        ("casts", lambda users, books: books.done["node-1"].update(reboots=3)),
        ("casts", lambda users, books: books.done["node-1"].update(reboots=1)),
        ("casts", lambda users, books: books.waiting.clear()),
        ("fanout", lambda users, books: books.done["node-1"].update(rules=0)),
        ("instances", lambda users, books: books.listed.clear()),
        ("instances", lambda users, books: books.listed.append({"id": 1, "host": "node-1"})),
        ("instances", lambda users, books: books.listed.append({"id": 2, "host": "node-1"})),
        ("instances", lambda users, books: books.listed.extend({"id": i, "host": "node-1"} for i in (3, 4))),
        ("open calls in the router", lambda users, books: setattr(books, "calls_in_flight", 1)),
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
