"""Was anything lost, or done twice? Three books are compared: the users', the nodes' and the router's."""

from __future__ import annotations

from collections import Counter
from time import monotonic
from typing import Any, NamedTuple

import gevent

import rpcmq
from examples.demo.users import Users

_SETTLE_SECONDS = 20.0


class Finding(NamedTuple):
    """One thing that was checked."""

    is_ok: bool
    text: str


class Books:
    """The counts of the router, the nodes and the api, read when nothing is under way any more."""

    def __init__(self, client: rpcmq.Client, live: list[str]) -> None:
        self.live = live
        self.calls_in_flight = _wait_until_idle(client, live)
        self.methods: list[dict[str, Any]] = client.query("methods")["methods"]
        self.waiting = {queue["name"]: queue["queued"] for queue in _queues(client)}
        self.done = {host: _call(client, f"compute.{host}", "count_done") for host in live}
        self.sent: dict[str, int] = _call(client, "api", "count_sent")
        self.listed = [item for host in live for item in _listed(client, host)]

    def row(self, topic: str, method: str) -> dict[str, Any]:
        """The router's row for a method of a topic."""
        empty = {"calls": 0, "casts": 0, "errors": 0, "outcomes": {}}
        return next((r for r in self.methods if (r["topic"], r["method"]) == (topic, method)), empty)


def check(users: Users, books: Books, boot_events: Counter[str], events_lost: int) -> list[Finding]:
    """Everything that must be true at the end.

    Args:
        boot_events: ``compute.instance.create.end`` events received, by the node that sent them.
        events_lost: as the subscription counts them.
    """
    findings = [_boots(users, books), *_casts(books), _instances(users, books)]
    for host in books.live:
        booted, seen = books.done[host]["boots"], boot_events[host]
        text = f"events: {host} booted {booted}, {seen} events of that came"
        findings.append(Finding(seen == booted or seen < booted <= seen + events_lost, text))
    findings.append(Finding(books.calls_in_flight == 0, f"open calls in the router: {books.calls_in_flight}"))
    return findings


def _boots(users: Users, books: Books) -> Finding:
    started, ok = users.started["create_instance"], users.ok["create_instance"]
    errors = sum(told.method == "create_instance" for told in users.told)
    row = books.row("api", "create_instance")
    text = (
        f"boots: {started} started = {ok} ok + {errors} errors, each ended once; "
        f"the router counted {row['calls']} = {row['outcomes'].get('ok', 0)} + {row['errors']}"
    )
    once = len(users.ends) == started and set(users.ends.values()) == {1}
    same = (row["calls"], row["outcomes"].get("ok", 0), row["errors"]) == (started, ok, errors)
    return Finding(once and started == ok + errors and same, text)


def _casts(books: Books) -> list[Finding]:
    findings = []
    for topic, sent in sorted(books.sent.items()):
        host = topic.removeprefix("compute.")
        outcomes = books.row(topic, "reboot_instance")["outcomes"]
        if host in books.live:
            run = books.done[host]["reboots"]
            findings.append(Finding(sent == run, f"casts: {sent} reboots sent to {host} = {run} run by it"))
        else:
            run, lost = outcomes.get("ok", 0), outcomes.get("link_lost", 0)
            waiting = books.waiting.get(topic, 0)
            parts = f"{run} run + {lost} lost with it + {waiting} kept for it"
            text = f"casts: {sent} reboots sent to {host} = {parts}, says the router"
            findings.append(Finding(sent == run + lost + waiting, text))
    rules = books.row("compute", "refresh_security_rules")["casts"]
    run_by = [books.done[host]["rules"] for host in books.live]
    text = f"fanout: {rules} rule changes sent to all, run by the live nodes: {', '.join(map(str, run_by))}"
    return [*findings, Finding(set(run_by) == {rules}, text)]


def _instances(users: Users, books: Books) -> Finding:
    known = {i for i, host in users.hosts.items() if host in books.live}
    listed = [item["id"] for item in books.listed if users.hosts.get(item["id"], item["host"]) == item["host"]]
    # Who was told that a boot may have run must not be surprised to find that it did.
    unsure = sum(t.method == "create_instance" and t.error in ("CallTimeout", "LinkLost") for t in users.told)
    more = len(set(listed) - known)
    text = f"instances: users know of {len(known)} on the live nodes, these list {len(books.listed)}"
    text += f", {more} of them from boots that 'may have run'" if more else ""
    once = len(listed) == len(set(listed)) == len(books.listed)
    return Finding(once and known <= set(listed) and more <= unsure, text)


def _wait_until_idle(client: rpcmq.Client, live: list[str]) -> int:
    """Wait until the live nodes have done all they were given; the number of calls in flight then."""
    deadline = monotonic() + _SETTLE_SECONDS
    while True:
        calls: int = client.query("summary")["calls_in_flight"]
        topics = client.query("topics")["topics"]
        waiting = sum(topic["in_flight"] for topic in topics)
        waiting += sum(q["queued"] for q in _queues(client) if q["name"].removeprefix("compute.") in live)
        if not calls + waiting or monotonic() > deadline:
            return calls
        gevent.sleep(0.1)


def _queues(client: rpcmq.Client) -> list[dict[str, Any]]:
    return [queue for topic in client.query("topics")["topics"] for queue in topic["queues"]]


def _call(client: rpcmq.Client, topic: str, method: str) -> Any:
    return client.call(None, topic, {"method": method}, timeout=10)


def _listed(client: rpcmq.Client, host: str) -> list[dict[str, Any]]:
    return list(client.multicall(None, f"compute.{host}", {"method": "list_instances"}, timeout=10))
