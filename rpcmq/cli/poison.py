"""``rpcmq poison``: the calls that have killed consumers, their stories, and releasing them."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

import click

from rpcmq.cli.options import State, connects, json_option, make_client, positive
from rpcmq.cli.output import Output, add_row, print_folded, print_json, table
from rpcmq.cli.text import plain
from rpcmq.errors import CallError, RpcError

__all__ = ["poison_command"]

_POISON_KIND = 0x81
#: Digits of a fingerprint that are shown in tables, and that errors name.
_SHORT = 12
_timeout_option = click.option("--timeout", type=positive, default=5.0, show_default=True, help="Seconds.")
#: Columns without which the table is shown where it does not fit, in that order.
_SPARE = ("bytes", "chance")


@click.group("poison")
def poison_command() -> None:
    """Show the calls that have killed consumers, and release them from quarantine.

    The router must have a [[node]] of type "poison": docs/operations/poison.md says what it does.
    """


@poison_command.command("ls")
@_timeout_option
@json_option
@connects
@click.pass_obj
def ls_command(state: State, timeout: float) -> None:
    """List the calls that are quarantined, and those that are suspect.

    With keys this needs the right "node" on "poison.show".
    """
    answer = _ask(state, timeout, "show", "")
    if state.json:
        print_json(answer)
    elif answer["calls"]:
        print_folded(Output(), _table(answer["calls"]), *_SPARE)
        if any(row["revoked"] for row in answer["calls"]):
            click.echo("`rpcmq poison release --revoked` releases those with the mark *, for deaths of revoked keys")
    else:
        click.echo(plain(f"no call is quarantined or suspect at router {answer['router']}"))


@poison_command.command("show")
@click.argument("fingerprint")
@_timeout_option
@json_option
@connects
@click.pass_obj
def show_command(state: State, fingerprint: str, timeout: float) -> None:
    """Tell the story of the call with this FINGERPRINT: which consumers it has killed, when, and where.

    The first digits of a fingerprint are enough. With keys this needs the right "node" on "poison.show".
    """
    if not fingerprint:
        raise click.UsageError("give the first digits of a FINGERPRINT; `rpcmq poison ls` lists them")
    answer = _ask(state, timeout, "show", fingerprint)
    if state.json:
        print_json(answer)
        return
    for row in answer["calls"]:
        _print_story(row)


@poison_command.command("release")
@click.argument("fingerprint", required=False)
@click.option("--all", "everything", is_flag=True, help="Release all that are quarantined.")
@click.option(
    "--revoked",
    is_flag=True,
    help="Release those that would not be quarantined without the deaths of consumers whose keys the router lets in "
    "no more: whoever had such a key may have let them die on purpose.",
)
@_timeout_option
@json_option
@connects
@click.pass_obj
def release_command(state: State, fingerprint: str | None, everything: bool, revoked: bool, timeout: float) -> None:
    """Let the call with this FINGERPRINT through again, and begin to judge it anew.

    Release it when its cause is mended: if it kills again it is quarantined again. The first digits of a fingerprint
    are enough. It is noted in the router's log. With keys this needs the right "node" on "poison.release".
    """
    if bool(fingerprint) + everything + revoked != 1:
        raise click.UsageError("give a FINGERPRINT, --all or --revoked")
    answer = _ask(state, timeout, "release", fingerprint or "", revoked)
    if answer.get("not_kept"):
        text = f"the release is not on the disk ({answer['not_kept']}): router {answer['router']} may forget it"
        click.echo(plain(f"rpcmq: warning: {text} when it ends"), err=True)
    if state.json:
        print_json(answer)
        return
    for row in answer["calls"]:
        click.echo(plain(f"released {_what(row)}: it had killed {len(row['kills'])}, {row['stopped']} were stopped"))
    if not answer["calls"]:
        why = " for deaths of revoked keys" if revoked else ""
        click.echo(plain(f"no call is quarantined at router {answer['router']}{why}"))


def _ask(state: State, timeout: float, verb: str, fingerprint: str, revoked: bool = False) -> dict[str, Any]:
    asked = json.dumps({"do": verb, "fingerprint": fingerprint.lower(), "revoked": revoked}).encode()
    with make_client(state, timeout) as client:
        try:
            answer: dict[str, Any] = json.loads(client.ask_node(_POISON_KIND, asked, timeout))
        except CallError as error:
            if "has no node" not in str(error):
                raise
            text = 'this router has no node of type "poison": add [[node]] with type = "poison" to its configuration'
            raise RpcError(text) from None
    return answer


def _what(row: dict[str, Any]) -> str:
    return f"{row['fingerprint'][:_SHORT]} ({row['method']!r} of {_place(row)!r})"


def _place(row: dict[str, Any]) -> str:
    topic = f"{row['topic']}.{row['server']}" if row["server"] else str(row["topic"])
    return f"{row['exchange']}/{topic}" if row["exchange"] else topic


def _table(rows: list[dict[str, Any]]) -> Any:
    made = table("Calls", "fingerprint", "state", "topic", "method", ">bytes", ">kills", ">chance", ">stopped", "since")
    for row in rows:
        state = f"{row['state']}{'*' if row['revoked'] else ''}"
        cells = [row["fingerprint"][:_SHORT], state, _place(row), row["method"], row["size_bytes"]]
        kills = sum(not kill.get("explained") for kill in row["kills"])
        cells += [kills, f"{row['chance']:.1g}", row["stopped"], _time(row["since_ms"])]
        add_row(made, cells, "red" if row["state"] == "quarantined" else "")
    return made


def _print_story(row: dict[str, Any]) -> None:
    place = f"{row['method']!r} of {_place(row)!r}, {row['size_bytes']} bytes of {row['format']}"
    click.echo(plain(f"{row['fingerprint']}: {place}"))
    is_stopped = row["state"] == "quarantined"
    more = f"{row['stopped']} stopped" if is_stopped else f"by chance with a probability of {row['chance']:.1g}"
    click.echo(plain(f"{row['state']} since {_time(row['since_ms'])}, {more}"))
    if row.get("doubtful"):  # routers of earlier versions do not say
        click.echo("doubtful, as others died without it: let through when nobody has died at its topic for a minute")
    for kill in row["kills"]:
        names = ("host", "pid", "program", "key", "router")
        where = ", ".join(f"{name} {kill[name]}" for name in names if kill.get(name))
        where += " (its key is revoked)" if kill.get("key") in row["revoked_keys"] else ""
        did = "was beside a quarantined call that killed" if kill.get("explained") else "killed"
        click.echo(plain(f"  {_time(kill['at_ms'])} {did} {kill['consumer']} {kill['seconds']:g} s after it got it"))
        click.echo(plain(f"      {where}; call {kill['id']} of {kill['caller']}"))


def _time(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000).strftime("%Y-%m-%d %H:%M:%S")
