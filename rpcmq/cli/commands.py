"""The group of all commands of ``rpcmq``.

A command's module is imported when that command is asked for, so that ``rpcmq --help`` is quick and
``rpcmq router`` loads nothing that decodes payloads.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click

from rpcmq import __version__
from rpcmq.cli.exit_codes import EXIT_CODES_HELP, ExitCode, exit_code_for, report
from rpcmq.cli.lazy import LazyGroup
from rpcmq.cli.options import State
from rpcmq.cli.streams import drop_output, is_of_output, open_streams
from rpcmq.errors import RpcError, UsageError

__all__ = ["COMMANDS", "group", "run"]

#: Command -> (module that has it, what it does).
COMMANDS = {
    "router": ("router", "Run the router daemon."),
    "init": ("keys", "Make a router's keys, a client's key and a ready configuration."),
    "keys": ("keys", "Add, list and revoke the keys that may connect to a router."),
    "trust": ("trust", "Manage payload signing keys, and check trust policies."),
    "doctor": ("doctor", "Check a router's set-up and say what to do about what is wrong."),
    "call": ("verbs", "Call a method and print what it returns."),
    "cast": ("verbs", "Tell one consumer of a topic; no answer."),
    "fanout": ("verbs", "Tell all consumers of a topic; no answer."),
    "publish": ("events", "Send an event to all who subscribe to its topic."),
    "sub": ("events", "Print the events whose topics match a pattern."),
    "serve": ("serve", "Serve the public methods of an object on a topic."),
    "proxy": ("proxy", "Serve sites from a cache, over HTTPS: an HTTP reverse proxy."),
    "gateway": ("gateway", "Let browsers and other languages in: JSON over WebSocket."),
    "syslog": ("syslog", "Take messages of syslog, and publish each as an event."),
    "ls": ("listing", "List processes, topics, consumers, credit, and what is in flight."),
    "describe": ("listing", "Show the methods that are served on a topic."),
    "purge": ("controls", "Drop what waits for a topic."),
    "queue": ("queue", "Show the work queues and their items, and change something about them."),
    "mesh": ("mesh", "Show the routers of a mesh and their links; join or leave it."),
    "tap": ("tap", "Print copies of the calls and casts of a topic."),
    "poison": ("poison", "Show the calls that have killed consumers; release them from quarantine."),
    "node": ("node", "Show the nodes that are plugged into a router; start one over."),
    "kick": ("controls", "End the links of a process."),
    "ping": ("ping", "Measure round trips to the router or to the consumers of a topic."),
    "top": ("top", "Watch rates and latencies of each topic and method."),
    "ship": ("ship", "Turn a router's dispatch log into Parquet."),
    "latency": ("latency", "Analyse a dispatch log: how long messages took, and why."),
    "drill": ("drill", "Inject faults into a router, services and callers of its own, and check every message."),
    "bench": ("bench", "Measure calls and casts a second, and their latencies."),
    "version": ("version", "Print versions."),
}


class _Commands(LazyGroup):
    """The group of all commands; turns their errors into exit codes."""

    def invoke(self, ctx: click.Context) -> object:
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
            return result
        except BrokenPipeError:
            drop_output()
            return ExitCode.BROKEN_PIPE
        except click.ClickException:
            raise
        except Exception as error:
            code = exit_code_for(error)
            if code is None:
                raise
            report(error, code, ctx.obj.json)
            return code


@click.group(
    cls=_Commands, table=COMMANDS, epilog=EXIT_CODES_HELP, context_settings={"help_option_names": ["-h", "--help"]}
)
@click.option(
    "--router",
    metavar="URL",
    help="URL of the router, or of several, with commas.  [env: RPCMQ_ROUTER; default: tcp://127.0.0.1:7700]",
)
@click.version_option(__version__, prog_name="rpcmq")
@click.pass_context
def group(ctx: click.Context, router: str | None) -> None:
    """RPC for cloud controllers over ZeroMQ and gevent."""
    ctx.obj = State(router)


def run(arguments: Sequence[str] | None = None) -> int:
    """Run the command that ``arguments`` (default: those of the process) name; returns its exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    # What fails may do so before the command knows that it is to print JSON.
    as_json = "--json" in words[: words.index("--") if "--" in words else None]
    open_streams()
    try:
        code = group.main(words, prog_name="rpcmq", standalone_mode=False)
        sys.stdout.flush()
    except click.ClickException as error:
        code = error.exit_code
        if as_json:
            report(UsageError(error.format_message()), ExitCode(code), True)
        else:
            error.show()
    except (click.Abort, KeyboardInterrupt):
        code = ExitCode.INTERRUPTED
    except OSError as error:
        if not is_of_output(error):
            raise
        code = ExitCode.FAILED
        report(RpcError(f"standard output cannot be written: {error.strerror}"), code, as_json)
    return code or 0
