"""``rpcmq purge`` and ``rpcmq kick``: what an operator changes in a running router."""

from __future__ import annotations

import click

from rpcmq.cli.exit_codes import ExitCode
from rpcmq.cli.options import State, connects, json_option, make_client, positive
from rpcmq.cli.text import counted, plain

__all__ = ["kick_command", "purge_command"]


@click.command("purge")
@click.argument("topic")
@click.option("--group", default="", metavar="NAME", help="Purge this group of TOPIC.")
@click.option("--forget", is_flag=True, help="Also have the router forget TOPIC, if nobody consumes it.")
@click.option("--timeout", type=positive, default=30.0, show_default=True, help="Seconds.")
@json_option
@connects
@click.pass_obj
def purge_command(state: State, topic: str, group: str, forget: bool, timeout: float) -> int | None:
    """Drop the calls and casts that wait for TOPIC and its servers.

    What consumers have begun goes on. Calls end with CallCancelled; all are counted as "purged"
    (rpcmq ls --dropped). TOPIC.HOST is only what waits for that server. The exit code is 1 if the
    router does not know TOPIC. With keys this needs the right "admin" on "control.purge".
    """
    with make_client(state, timeout) as client:
        answer = client.purge(topic, group=group, forget=forget, timeout=timeout)
    if state.json:
        from rpcmq.cli.output import print_json

        print_json({"topic": topic, **answer})
    elif answer["known"]:
        forgotten = "; the topic is forgotten" if answer["forgotten"] else ""
        text = f"purged {topic!r}: {counted(answer['casts'], 'cast')}, {counted(answer['calls'], 'call')}{forgotten}"
        click.echo(plain(text))
    else:
        click.echo(plain(f"rpcmq: the router does not know {topic!r}"), err=True)
    return None if answer["known"] else ExitCode.FAILED


@click.command("kick")
@click.argument("identity")
@click.option("--timeout", type=positive, default=5.0, show_default=True, help="Seconds.")
@json_option
@connects
@click.pass_obj
def kick_command(state: State, identity: str, timeout: float) -> int | None:
    """End the links of the process IDENTITY (rpcmq ls lists them), as if it had gone.

    Calls that it has end with LinkLost; what it has not begun goes to others. If it lives it connects
    again: to keep it out, revoke its key (rpcmq keys revoke). The exit code is 1 if there is no such
    process. With keys this needs the right "admin" on "control.kick".
    """
    with make_client(state, timeout) as client:
        links = client.kick(identity, timeout)
    if state.json:
        from rpcmq.cli.output import print_json

        print_json({"identity": identity, "links": links})
    elif links:
        click.echo(plain(f"ended {counted(links, 'link')} of {identity!r}"))
    else:
        click.echo(plain(f"rpcmq: no process has the identity {identity!r}"), err=True)
    return None if links else ExitCode.FAILED
