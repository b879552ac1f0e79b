"""Runs the demo: ``python -m examples.demo --help``. Exit code 0 if nothing was lost or done twice."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from contextlib import ExitStack
from math import inf
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from typing import Any

import gevent
from rich.console import Console

import rpcmq
from examples.demo import report
from examples.demo.billing import QUEUE, read_charges
from examples.demo.bills import settled
from examples.demo.cluster import NODES, ROUTERS, Cluster, ClusterFailed, exit_on_signals
from examples.demo.kills import felt
from examples.demo.latency import write_report
from examples.demo.ledger import read_ledgers
from examples.demo.users import Told, Users
from examples.demo.verdict import Books, Killed, check

#: A router with a third of the users, the api and a node at it; that node's events go through it.
_KILLED = Killed("node-2", "router-a", "biller-1", ("node-1",))
_EVENT_SECONDS = 3.0
_REPORT = Path("build/demo")


class Events:
    """A subscriber: counts what the services say has happened."""

    def __init__(self, client: rpcmq.Client) -> None:
        self.counts: Counter[str] = Counter()
        self.boots: Counter[str] = Counter()
        self.told: list[Told] = []
        self._subscription = client.subscribe("notifications.*.*.instance.#", self._on_event)

    @property
    def lost(self) -> int:
        """Events that came faster than they were taken."""
        lost: int = self._subscription.lost
        return lost

    def _on_event(self, ctx: Any, topic: str, event: dict[str, Any]) -> None:
        kind, payload = event["event_type"], event["payload"]
        self.counts[kind] += 1
        if kind == "compute.instance.create.end":
            self.boots[event["publisher_id"]] += 1
        elif kind == "scheduler.instance.reschedule":
            self.told.append(Told("run_instance (rescheduled)", payload["error"], payload["text"]))

    def wait_for_boots(self, expected: dict[str, int]) -> None:
        """Events come a little after the answers; wait for the last ones, but not for ever."""
        deadline = monotonic() + _EVENT_SECONDS
        while any(self.boots[host] < n for host, n in expected.items()) and monotonic() < deadline:
            gevent.sleep(0.02)


class Kills:
    """Kills a router, later a biller and then a node, when so many boots have ended."""

    def __init__(self, console: Console, cluster: Cluster, boots: int) -> None:
        self._console = console
        self._cluster = cluster
        self._router_at = max(1, boots * 2 // 5)
        self._biller_at = max(2, boots // 2)
        self._node_at = max(3, boots * 3 // 5)
        #: When the router was killed (seconds, by ``monotonic``).
        self.router_killed = inf

    def on_boot(self, ended: int) -> None:
        """Look whether it is time; ``ended`` boots have ended."""
        if ended == self._router_at:
            self.router_killed = monotonic()
            self._kill(_KILLED.router, ended, "all that was at it goes on at the other two")
        elif ended == self._biller_at:
            self._kill(_KILLED.biller, ended, "the other one gets what it had, when the lease is over")
        elif ended == self._node_at:
            self._kill(_KILLED.node, ended, "two nodes go on")

    def _kill(self, name: str, ended: int, text: str) -> None:
        pid = self._cluster.kill(name)
        self._console.print(f"kill -9 {pid}: {name} is gone after {ended} boots; {text}")


def run(console: Console, cluster: Cluster, options: argparse.Namespace) -> bool:
    """The demo on a running cluster; whether all checks hold."""
    console.print(f"{options.users} users boot {options.instances} instances; seed {options.seed}")
    for name, pid in cluster.pids.items():
        console.print(f"  {name:<15} pid {pid}  {cluster.place(name)}")
    kills = Kills(console, cluster, options.instances)
    with ExitStack() as stack:
        clients = {name: stack.enter_context(cluster.client(name)) for name in ROUTERS}
        at_live_routers = [client for name, client in clients.items() if name != _KILLED.router]
        events = Events(at_live_routers[0])
        with report.progress(console, "boots", options.instances) as advance:

            def on_boot(ended: int) -> None:
                advance(ended)
                kills.on_boot(ended)

            users = Users(list(clients.values()), options.users, options.instances, options.seed, on_boot)
            users.run()
        live = [node for node in NODES if node != _KILLED.node]
        bills = settled(cluster.urls[ROUTERS[-1]], QUEUE)
        books = Books(at_live_routers, live, read_ledgers(cluster.logs), bills, read_charges(cluster.logs))
        events.wait_for_boots({host: done["boots"] for host, done in books.done.items()})
        findings = check(users, books, events.boots, events.lost, _KILLED)
        print_report(console, users, books, events)
        console.print(felt(users.boots, kills.router_killed) + ".", soft_wrap=True)
        report.print_findings(console, findings)
    return all(finding.is_ok for finding in findings)


def print_report(console: Console, users: Users, books: Books, events: Events) -> None:
    """Print the report, the most interesting facts first."""
    report.print_told(console, users.told + events.told)
    again = ", ".join(f"{count} by {host}" for host, count in sorted(users.done_again.items()))
    console.print(
        f"verify_image is marked idempotent: {users.done_again.total()} that {_KILLED.node} had were done again"
        f" ({again or 'it had none'}), and their callers did not notice.\n"
    )
    report.print_methods(console, books.methods)
    report.print_events(console, events.counts, events.lost)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m examples.demo", description="A small cloud on rpcmq.")
    parser.add_argument("--instances", type=int, default=4000, help="how many are booted (%(default)s)")
    parser.add_argument("--users", type=int, default=48, help="how many ask at once (%(default)s)")
    parser.add_argument("--seed", type=int, default=7, help="of all that is random (%(default)s)")
    parser.add_argument(
        "--report", type=Path, default=_REPORT, metavar="DIR", help="where the latency report goes (%(default)s)"
    )
    parser.add_argument("--no-report", action="store_true", help="leave the latency report out: it takes some seconds")
    options = parser.parse_args()
    if options.instances < 1 or options.users < 1:
        parser.error("--instances and --users must be at least 1")
    console = report.new_console()
    exit_on_signals()
    started = monotonic()
    try:
        with TemporaryDirectory(prefix="rpcmq-demo-log-") as log:
            with Cluster(options.seed, None if options.no_report else Path(log)) as cluster:
                is_ok = run(console, cluster, options)
                cluster.keep_logs = not is_ok
            if not options.no_report:
                console.print("\nThe routers' dispatch log of all that, as a report:\n")
                is_ok = write_report(Path(log), options.report) and is_ok
    except SystemExit:
        console.print("interrupted; all processes were stopped")
        raise
    except ClusterFailed as error:
        console.print(str(error), markup=False)
        return 1
    console.print(f"{'Done' if is_ok else 'FAILED'} in {monotonic() - started:.1f} s.")
    if not is_ok:
        console.print(f"The logs of the processes are in {cluster.logs}")
    return 0 if is_ok else 1


if __name__ == "__main__":
    sys.exit(main())
