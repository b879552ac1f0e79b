"""Was anything lost, or done twice? The books of the users, the services and the routers are compared."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from time import monotonic
from typing import Any, NamedTuple

import gevent

import rpcmq
from examples.demo.exceptions import CloudError
from examples.demo.users import Users

_SETTLE_SECONDS = 20.0
#: Requests that a node is given before it has begun with them: a service's concurrency.
_GIVEN = 64
#: The cloud's own errors are answers; they are lost by nobody.
_ANSWERS = {error.__name__ for error in CloudError.__subclasses__()}
#: What is read from one service after the other is not carried over when a router dies: it ends with LinkLost.
_STREAMS = ("list_instances",)


class Finding(NamedTuple):
    """One thing that was checked."""

    is_ok: bool
    text: str


class Killed(NamedTuple):
    """The processes that the demo has killed, and the nodes whose events went through that router."""

    node: str
    router: str
    biller: str
    told_through_it: Sequence[str] = ()


class Books:
    """The counts of the routers, the nodes and the api, read when nothing is under way any more.

    Args:
        clients: one at each router that lives.
        live: the nodes that live.
        ledgers: how often each service has begun each request.
        bills: the queue of bills at each owner, when it has come to rest.
        charges: how often each instance was charged for.
    """

    def __init__(
        self, clients: Sequence[rpcmq.Client], live: list[str], ledgers: Mapping[str, Counter[str]],
        bills: Sequence[Mapping[str, Any]], charges: Mapping[int, int],
    ) -> None:  # fmt: skip
        self.live = live
        self.bills = bills
        self.charges = charges
        self.ledgers = ledgers
        self.calls_in_flight = _wait_until_idle(clients, live)
        self.methods = added_up(row for client in clients for row in client.query("methods")["methods"])
        self.waiting = Counter[str]()
        for queue in _queues(clients):
            self.waiting[queue["name"]] += queue["queued"]
        client = clients[0]
        self.done = {host: _call(client, f"compute.{host}", "count_done") for host in live}
        self.sent: dict[str, int] = _call(client, "api", "count_sent")
        self.rules: int = _call(client, "api", "count_rules")
        self.billed: list[int] = _call(client, "api", "list_billed")
        self.listed = [item for host in live for item in _listed(client, host)]

    def begun(self, *services: str) -> Counter[str]:
        """How often any of ``services`` has begun each request."""
        return sum((self.ledgers.get(name, Counter()) for name in services), Counter[str]())


def added_up(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows of several routers as one for each method: counts are added, and of times the longest is kept."""
    methods: dict[tuple[str, str], dict[str, Any]] = {}
    for row in rows:
        if not (row["calls"] or row["casts"]):
            continue  # a router that has only passed them on to its processes
        first = methods.setdefault((row["topic"], row["method"]), row)
        if first is not row:
            for name in ("calls", "casts", "errors"):
                first[name] += row[name]
            times = first["latency_us"]
            first["latency_us"] = {name: max(times[name] or 0, row["latency_us"][name] or 0) for name in times}
    return list(methods.values())


def check(users: Users, books: Books, boot_events: Counter[str], events_lost: int, killed: Killed) -> list[Finding]:
    """Everything that must be true at the end.

    Args:
        boot_events: ``compute.instance.create.end`` events received, by the node that sent them.
        events_lost: as the subscription counts them.
    """
    findings = [_boots(users), _lost(users, books, killed), _doubled(books, killed)]
    findings += [*_casts(books), _instances(users, books), *_bills(books, killed)]
    for host in books.live:
        booted, seen = books.done[host]["boots"], boot_events[host]
        text = f"events: {host} booted {booted}, {seen} events of that came"
        # An event that a router had acknowledged and not passed on dies with it.
        may_miss = seen <= booted and host in killed.told_through_it
        if may_miss and seen < booted:
            text += f"; {booted - seen} died with {killed.router}"
        findings.append(Finding(seen == booted or seen < booted <= seen + events_lost or may_miss, text))
    text = f"open calls in the routers that live: {books.calls_in_flight}"
    return [*findings, Finding(books.calls_in_flight == 0, text)]


def _boots(users: Users) -> Finding:
    started, ok = users.started["create_instance"], users.ok["create_instance"]
    errors = sum(told.method == "create_instance" for told in users.told)
    text = f"boots: {started} started = {ok} ok + {errors} errors, each ended once"
    once = len(users.ends) == started and set(users.ends.values()) == {1}
    return Finding(once and started == ok + errors, text)


def _lost(users: Users, books: Books, killed: Killed) -> Finding:
    """Calls that ended with an error of the transport, or well without having begun; the killed node's apart."""
    calls = sum(users.started.values())
    lost = [
        told
        for told in users.told
        if told.error not in _ANSWERS and killed.node not in told.text and told.method not in _STREAMS
    ]
    methods = Counter(each.split()[0] for each in books.begun("api"))
    unknown = sum(max(0, users.ok[method] - methods[method]) for method in ("create_instance", "reboot_instance"))
    text = f"lost calls: {len(lost) + unknown} of {calls}, beside those that {killed.node} had"
    text += "".join(f"; {told.method}: {told.error}: {told.text}" for told in lost[:3])
    return Finding(not lost and not unknown, text)


def _doubled(books: Books, killed: Killed) -> Finding:
    roles = [("api",), ("scheduler",), (*books.live, killed.node)]
    begun = [books.begun(*services) for services in roles]
    twice = [request for counts in begun for request, count in counts.items() if count > 1]
    text = f"doubled calls and casts: {len(twice)} of {sum(map(len, begun))} that services began"
    return Finding(not twice, text + "".join(f"; {request}" for request in twice[:3]))


def _casts(books: Books) -> list[Finding]:
    findings = []
    for topic, sent in sorted(books.sent.items()):
        host = topic.removeprefix("compute.")
        if host in books.live:
            run = books.done[host]["reboots"]
            findings.append(Finding(sent == run, f"casts: {sent} reboots sent to {host} = {run} run by it"))
        else:
            begun = sum(request.startswith("reboot_instance ") for request in books.begun(host))
            waiting = books.waiting[topic]
            given = sent - begun - waiting
            parts = f"{begun} begun by it + {given} given to it when it died + {waiting} kept for it"
            text = f"casts: {sent} reboots sent to {host} = {parts}"
            findings.append(Finding(0 <= given <= _GIVEN, text))
    run_by = [books.done[host]["rules"] for host in books.live]
    text = f"fanout: {books.rules} rule changes sent to all, run by the live nodes: {', '.join(map(str, run_by))}"
    return [*findings, Finding(set(run_by) == {books.rules}, text)]


def _bills(books: Books, killed: Killed) -> list[Finding]:
    """Each bill that was put ends once, and has had its effect once, however often it was begun."""
    put = len(books.billed)
    done, lost, dead = (
        sum(queue["counters"].get("done", 0) for queue in books.bills),
        sum(queue["counters"].get("lost", 0) for queue in books.bills),
        sum(queue["dead"] for queue in books.bills),
    )
    open_items = sum(queue[state] for queue in books.bills for state in ("ready", "postponed", "running"))
    text = f"billing: {put} bills put = {done} done + {dead} dead, at {len(books.bills)} queue servers"
    text += f"; {open_items} are open" if open_items else ""
    twice = [instance for instance, times in books.charges.items() if times != 1]
    missing = set(books.billed) - books.charges.keys()
    effects = f"billing: {len(books.charges)} instances charged, each once"
    effects += f"; {lost} bills that {killed.biller} had were given to another"
    return [
        Finding(put == done + dead and not open_items, text),
        Finding(not twice and not missing and len(books.charges) == put - dead, effects),
    ]


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


def _wait_until_idle(clients: Sequence[rpcmq.Client], live: list[str]) -> int:
    """Wait until the live nodes have done all they were given; the number of calls in flight then."""
    deadline = monotonic() + _SETTLE_SECONDS
    while True:
        calls: int = sum(client.query("summary")["calls_in_flight"] for client in clients)
        waiting = sum(topic["in_flight"] for client in clients for topic in client.query("topics")["topics"])
        waiting += sum(q["queued"] for q in _queues(clients) if q["name"].removeprefix("compute.") in live)
        if not calls + waiting or monotonic() > deadline:
            return calls
        gevent.sleep(0.1)


def _queues(clients: Sequence[rpcmq.Client]) -> list[dict[str, Any]]:
    return [queue for client in clients for topic in client.query("topics")["topics"] for queue in topic["queues"]]


def _call(client: rpcmq.Client, topic: str, method: str) -> Any:
    return client.call(None, topic, {"method": method}, timeout=10)


def _listed(client: rpcmq.Client, host: str) -> list[dict[str, Any]]:
    return list(client.multicall(None, f"compute.{host}", {"method": "list_instances"}, timeout=10))
