"""``rpcmq ls`` and ``rpcmq describe``: what the router and a service say of themselves."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import click
from rich.table import Table

from rpcmq.cli.exit_codes import ExitCode
from rpcmq.cli.mesh_links import LINKS_SPARE, links_table
from rpcmq.cli.mesh_routers import ask_all
from rpcmq.cli.options import State, connects, json_option, make_client, positive
from rpcmq.cli.output import Output, add_row, joined, print_folded, print_json, table
from rpcmq.cli.text import counted, microseconds, plain
from rpcmq.errors import ProtocolError
from rpcmq.wire.bodies import CONSUMER_ROLE

__all__ = ["describe_command", "ls_command"]

_VIEWS = (
    "overview", "summary", "processes", "topics", "calls", "methods", "dropped", "stats", "keys", "stuck", "mesh",
    "addresses",
)  # fmt: skip

#: Columns of a table without which it is shown where it does not fit, in that order.
_SPARE = {
    "Router": ("id",),
    "Processes": ("silent s", "to send", "for s", "type"),
    "Topics": ("bytes", "dropped"),
    "Consumers": ("settled", "queued", "oldest s"),
    "Calls": ("attempt", "server"),
    "Stuck": ("attempt", "kind", "which is", "caller"),
    "Dropped": ("last s ago", "sender", "consumer"),
    "Keys": ("connects", "links", "owner"),
    "Methods": ("p90", "max", "casts"),
    "Links": LINKS_SPARE,
}


@click.command("ls")
@click.option(
    "--view",
    type=click.Choice(_VIEWS),
    metavar="VIEW",
    default="overview",
    show_default=True,
    help=f"What to list: {', '.join(_VIEWS)}.",
)
@click.option("--stuck", is_flag=True, help="List only what has made no progress for over 10 s.")
@click.option("--dropped", is_flag=True, help="List what was dropped since the router's start: where, why, whose.")
@click.option(
    "--mark-after", type=positive, default=30.0, show_default=True, help="Seconds after which work in flight is marked."
)
@click.option("--mesh", "all_routers", is_flag=True, help="Ask each router of the mesh.")
@click.option("--timeout", type=positive, default=5.0, show_default=True, help="Seconds.")
@json_option
@connects
@click.pass_obj
def ls_command(
    state: State, view: str, stuck: bool, dropped: bool, mark_after: float, all_routers: bool, timeout: float
) -> int | None:
    """List processes, topics, consumers, their credit, and what is in flight.

    Marked are processes that do not answer or are slow to take events, consumers whose work has been
    in flight for long, and topics where messages wait with nobody to take them.

    With --mesh it is that of each router of the mesh, with the router's name before each row; the exit code is 1 if
    one does not answer.
    """
    if stuck and dropped:
        raise click.UsageError("--stuck and --dropped do not go together")
    view = "stuck" if stuck else "dropped" if dropped else view
    if all_routers:
        return _list_mesh(state, view, mark_after, timeout)
    with make_client(state, timeout) as client:
        answer = client.query(view, timeout)
    if state.json:
        print_json(answer)
        return None
    _print(Output(), _shown(answer, mark_after))
    return None


def _list_mesh(state: State, view: str, mark_after: float, timeout: float) -> int | None:
    answers = ask_all(state, view, timeout)
    if state.json:
        routers = [{"router": name, "answer": answer} for name, answer in answers.by_router.items()]
        print_json({"routers": routers, "silent": answers.silent_rows()})
    else:
        output = Output()
        shown = {name: _shown(answer, mark_after) for name, answer in answers.by_router.items()}
        _print(output, joined(shown))
        for name, text in answers.silent.items():
            output.print(plain(f"router {name} does not answer: {text}"), style="red", markup=False)
    return ExitCode.FAILED if answers.silent else None


def _print(output: Output, shown: Iterable[Table | str]) -> None:
    for each in shown:
        if isinstance(each, str):
            output.print(each, markup=False)
        else:
            print_folded(output, each, *_SPARE.get(str(each.title), ()))


def _shown(answer: dict[str, Any], mark_after: float) -> Iterator[Table | str]:
    yield from _tables(answer, mark_after)
    if answer.get("truncated"):
        yield f"... and {answer['truncated']} more"


def _tables(answer: dict[str, Any], stuck: float) -> Iterator[Table | str]:
    if "peers" in answer:
        yield links_table({answer["router"]: answer})
    elif "router" in answer:
        yield _summary(answer)
        yield from _log_problem(answer)
        for warning in answer.get("warnings", ()):
            yield f"WARNING: {plain(warning)}"
        if answer.get("refused"):
            yield "refused: " + ", ".join(f"{count} {plain(what)}" for what, count in answer["refused"].items())
    if isinstance(answer.get("dropped"), list):
        yield _dropped(answer["dropped"])
        yield _totals(answer["totals"]) or "nothing was dropped"
    elif totals := _totals(answer.get("dropped", {})):
        yield f"{totals}; rpcmq ls --dropped says where"
    if "outcomes" in answer:
        yield from _stats(answer)
    if "processes" in answer:
        yield _processes(answer["processes"])
    if "topics" in answer and isinstance(answer["topics"], list):
        yield _topics(answer["topics"])
        yield _consumers(answer["topics"], stuck)
    if isinstance(answer.get("calls"), list):
        yield _calls(answer["calls"], stuck)
    if "addresses" in answer:
        yield _addresses(answer["addresses"])
    if "keys" in answer:
        yield _keys(answer["keys"])
    if "methods" in answer:
        yield _methods(answer["methods"])
    if isinstance(answer.get("stuck"), list):
        yield _stuck(answer["stuck"])


def _totals(totals: dict[str, dict[str, int]]) -> str:
    """Verb -> reason -> count, as a line; empty if nothing was dropped."""
    counts = [
        f"{counted(count, verb)} {reason}" for verb, reasons in totals.items() for reason, count in reasons.items()
    ]
    return f"dropped: {plain(', '.join(counts))}" if counts else ""


def _dropped(rows: list[dict[str, Any]]) -> Table:
    made = table("Dropped", "topic", "method", "verb", "reason", ">count", ">last s ago", "sender", "consumer")
    for row in rows:
        cells = (row["topic"], row["method"], row["verb"], row["reason"], row["count"], f"{row['last_seconds']:.0f}")
        add_row(made, (*cells, row["sender"], row["consumer"]))
    return made


def _stats(answer: dict[str, Any]) -> Iterator[Table]:
    made = table("Totals", "what", ">count")
    add_row(made, ("calls", answer["calls"]))
    add_row(made, ("casts", answer["casts"]))
    for group in ("outcomes", "published", "refused", "counters"):
        for name, count in answer[group].items():
            add_row(made, (f"{group}: {name}", count))
    yield made


def _summary(answer: dict[str, Any]) -> Table:
    made = table("Router", "name", ">id", ">up", ">links", ">calls in flight", "state")
    state = "draining" if answer["draining"] else "serving"
    up = f"{answer['uptime_seconds']:.0f} s"
    add_row(made, (answer["router"], answer["router_id"], up, answer["links"], answer["calls_in_flight"], state))
    return made


def _log_problem(answer: dict[str, Any]) -> Iterator[str]:
    """Yield a line if the dispatch log has dropped records."""
    state = answer.get("dispatch_log")
    if state and (state["dropped"] or state["problem"]):
        why = f": {plain(state['problem'])}" if state["problem"] else ""
        yield f"dispatch log: {state['dropped']} records dropped, {state['records']} written{why}"


def _processes(rows: list[dict[str, Any]]) -> Table:
    made = table(
        "Processes", "identity", "type", ">for s", ">silent s", ">calls", ">in flight", ">to send", "consumes", "mark"
    )
    for row in rows:
        marks = [] if row["state"] in ("answering", "quiet") else [str(row["state"])]
        if row.get("slow"):
            marks.append(f"slow: {row['queued']} events wait")
        if lost := sum(row.get("dropped", {}).values()):
            marks.append(f"{lost} events lost")
        consumes = ", ".join(row["consumers"] + row.get("patterns", []))
        add_row(
            made,
            (
                row["identity"],
                f"{row['queue_type']} (consumer)" if row.get("role") == CONSUMER_ROLE else row["queue_type"],
                f"{row['connected_seconds']:.0f}",
                f"{row['silent_seconds']:.0f}",
                row["calls"],
                row["in_flight"],
                row["to_send"],
                consumes,
                ", ".join(marks),
            ),
            "yellow" if marks else "",
        )
    return made


def _name(row: dict[str, Any]) -> str:
    name = f"{row['topic']} (group {row['group']})" if row["group"] else str(row["topic"])
    return f"{row['exchange']}/{name}" if row["exchange"] else name


def _topics(rows: list[dict[str, Any]]) -> Table:
    made = table("Topics", "topic", ">consumers", ">in flight", ">queued", ">bytes", "dropped", "mark")
    for row in rows:
        consumers, elsewhere = row["consumers"], sum(row.get("elsewhere", {}).values())
        mark = ""
        if not consumers and not elsewhere:
            seen = row["last_seen_seconds"]
            mark = f"no consumer, last seen {seen:.0f} s ago" if row["registered"] else "no consumer, never seen"
        elif row["queued"] and not elsewhere and not any(c["state"] == "answering" for c in consumers):
            mark = "no consumer answers"
        dropped = ", ".join(f"{count} {reason}" for reason, count in row["dropped"].items())
        cells = (
            _name(row),
            len(consumers) + elsewhere,
            row["in_flight"],
            row["queued"],
            row["queued_bytes"],
            dropped,
            mark,
        )
        add_row(made, cells, "red" if mark and row["queued"] else "yellow" if mark else "")
    return made


def _addresses(rows: list[dict[str, Any]]) -> Table:
    made = table("Addresses", "address", ">consumers", "at routers")
    for row in rows:
        name = _name(row | {"topic": f"{row['topic']}.{row['server']}" if row["server"] else row["topic"]})
        at_routers = ", ".join(f"{router}: {count}" for router, count in row["consumers"].items() if count)
        count = sum(row["consumers"].values())
        add_row(made, (name, count, at_routers or "none, remembered"), "" if count else "yellow")
    return made


def _consumers(topics: list[dict[str, Any]], stuck: float) -> Table:
    made = table(
        "Consumers", "topic", "server", "identity", ">credit", ">in flight", ">oldest s", ">settled", ">queued", "mark"
    )
    for topic in topics:
        for row in topic["consumers"]:
            mark = _consumer_mark(row, stuck)
            oldest = f"{row['oldest_seconds']:.1f}" if row["in_flight"] else ""
            add_row(
                made,
                (
                    _name(topic),
                    row["server"],
                    row["identity"],
                    row["credit"],
                    _running(row),
                    oldest,
                    row["settled"],
                    row["queued"],
                    mark,
                ),
                "red" if mark.startswith("stuck") else "yellow" if mark else "",
            )
    return made


def _consumer_mark(row: dict[str, Any], stuck: float) -> str:
    if row["in_flight"] and row["oldest_seconds"] >= stuck:
        return "stuck"
    if row["state"] != "answering":
        return str(row["state"])
    return "slow: no credit left" if _running(row) >= row["credit"] else ""


def _running(row: dict[str, Any]) -> int:
    """Count all that the consumer runs, settled casts included; an earlier router tells only what is in flight."""
    return int(row["in_flight"] + row.get("occupied", 0))


def _calls(rows: list[dict[str, Any]], stuck: float) -> Table:
    made = table("Calls", "caller", "topic", "method", ">for s", "state", "server", ">attempt")
    for row in rows:
        cells = (row["caller"], row["topic"], row["method"], f"{row['seconds']:.1f}", row["state"], row["server"])
        add_row(made, (*cells, row["attempt"]), "red" if row["seconds"] >= stuck else "")
    return made


def _keys(rows: list[dict[str, Any]]) -> Table:
    made = table("Keys", "name", "owner", "expires", ">links", ">connects", ">seen s ago", "never used", "refused")
    for row in rows:
        seen = row["last_seen_seconds"]
        unused = [f"{','.join(r['verbs'])} {','.join(r['topics'])}" for r in row["rights"] if not r["used"]]
        refused = ", ".join(f"{count} {what}" for what, count in row["refused"].items())
        shown = "never" if seen is None else f"{seen:.0f}"
        cells = (row["name"], row["owner"], row["expires"], row["links"], row["connects"], shown, "; ".join(unused))
        add_row(made, (*cells, refused), "yellow" if refused else "")
    return made


def _methods(rows: list[dict[str, Any]]) -> Table:
    made = table("Methods", "topic", "method", ">calls", ">casts", ">errors", ">p50", ">p90", ">p99", ">max", "ended")
    for row in rows:
        ended = ", ".join(f"{count} {outcome}" for outcome, count in row["outcomes"].items() if outcome != "ok")
        quantiles = [microseconds(value) for value in row["latency_us"].values()]
        cells = (row["topic"], row["method"], row["calls"], row["casts"], row["errors"], *quantiles)
        add_row(made, (*cells, microseconds(row["max_us"]), ended), "yellow" if row["errors"] else "")
    return made


def _stuck(rows: list[dict[str, Any]]) -> Table:
    made = table("Stuck", "kind", "caller", "topic", "method", "state", "with", "which is", ">for s", ">attempt", "why")
    for row in rows:
        cells = [row[name] for name in ("kind", "caller", "topic", "method", "state", "server", "server_state")]
        add_row(made, (*cells, f"{row['seconds']:.1f}", row["attempt"], row.get("why", "")), "red")
    return made


@click.command("describe")
@click.argument("topic")
@click.option("--timeout", type=positive, default=10.0, show_default=True, help="Seconds.")
@json_option
@connects
@click.pass_obj
def describe_command(state: State, topic: str, timeout: float) -> None:
    """Show the methods that are served on TOPIC: signatures and docstrings, asked of one consumer."""
    with make_client(state, timeout) as client:
        answer = client.describe(topic, timeout)
    _check_description(topic, answer)
    if state.json:
        print_json(answer)
        return
    echo: Callable[[str], None] = click.echo
    echo(plain(f"{answer['topic']}: {answer['endpoint']} on {answer['server']}"))
    for method in answer["methods"]:
        echo(f"\n  {plain(method['name'])}{plain(method['signature'])}")
        for line in method["doc"].splitlines():
            echo(f"      {plain(line)}".rstrip())


def _check_description(topic: str, answer: Any) -> None:
    """Validate the answer to ``rpcmq.describe``: any program may consume the topic.

    Raises:
        ProtocolError: it is no description.
    """
    problem = _describe_mismatch(answer, ("topic", "server", "endpoint"))
    methods = answer.get("methods") if not problem else None
    if not problem and not isinstance(methods, list):
        problem = "its 'methods' is no list"
    for method in methods if isinstance(methods, list) else ():
        problem = problem or _describe_mismatch(method, ("name", "signature", "doc"))
    if problem:
        text = f"the consumer of {topic!r} answered 'rpcmq.describe' with something that is no description: {problem}"
        raise ProtocolError(text, "body")


def _describe_mismatch(value: Any, members: tuple[str, ...]) -> str:
    """Say why ``value`` is not a mapping with text ``members``; empty if it is."""
    if not isinstance(value, dict):
        return f"a {type(value).__name__} in place of a mapping"
    wrong = next((name for name in members if not isinstance(value.get(name), str)), None)
    return f"its {wrong!r} is missing or no text" if wrong else ""
