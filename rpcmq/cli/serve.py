"""``rpcmq serve``."""

from __future__ import annotations

import importlib
import inspect
import os
import sys
from typing import Any

import click

from rpcmq.cli.options import State, connects, log_options, make_client, positive
from rpcmq.payload.bounded_text import short_repr

__all__ = ["serve_command"]


def load_endpoint(path: str) -> Any:
    """The object that ``module:Object`` names; a class is instantiated, ``module`` alone is itself.

    Raises:
        click.UsageError: there is none.
    """
    module_name, _, attributes = path.partition(":")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        found: Any = importlib.import_module(module_name)
    except ImportError as error:
        raise click.UsageError(f"{path!r}: cannot import {module_name!r}: {error}") from error
    for name in attributes.split(".") if attributes else ():
        try:
            found = getattr(found, name)
        except AttributeError:
            owner = f"module {module_name!r}" if inspect.ismodule(found) else short_repr(found)
            raise click.UsageError(f"{path!r}: {owner} has no {name!r}") from None
    if not inspect.isclass(found):
        return found
    try:
        return found()
    except TypeError as error:
        raise click.UsageError(f"{path!r}: cannot be made without arguments: {error}") from error


@click.command("serve")
@click.argument("endpoint", metavar="MODULE[:OBJECT]")
@click.option("--topic", required=True, help="Topic to serve.")
@click.option("--host", help="Name of this server: TOPIC.HOST is its own topic.  [default: the host's name]")
@click.option(
    "--concurrency", type=click.IntRange(1, 65535), help="Requests run at once.  [default: 64; in threads 16]"
)
@click.option(
    "--drain-seconds", type=positive, default=30.0, show_default=True, help="How long a stop waits for what runs."
)
@click.option(
    "--timeout", type=positive, default=30.0, show_default=True, help="Seconds to wait for the router at start."
)
@log_options
@connects
@click.pass_obj
def serve_command(
    state: State,
    endpoint: str,
    topic: str,
    host: str | None,
    concurrency: int | None,
    drain_seconds: float,
    timeout: float,
    log_format: str,
    log_level: str,
) -> None:
    """Serve the public methods of MODULE:OBJECT, which is found from the current directory.

    OBJECT is a class, which is made without arguments, or any object. Without it, the module's own
    functions are served, not those that it imports; where it has __all__, that says which. Names that
    begin with an underscore are not served, async methods are refused. A method gets the request
    context first; rpcmq.rpc uses the service's own connection in it. SIGTERM and SIGINT stop it:
    what runs may finish, and a second one ends it at once. Each request runs in a greenlet; with
    RPCMQ_SHELL=threads in a thread, where it may block.
    """
    import logging

    from rpcmq import rpc
    from rpcmq.client import Service
    from rpcmq.client.methods import public_methods
    from rpcmq.config import load_client_config
    from rpcmq.server.log import log_event, start_logging

    served = load_endpoint(endpoint)
    if not any(public_methods(served)):
        raise click.UsageError(
            f"{endpoint!r}: there is nothing to serve: it has no public function or method of its own"
        )
    start_logging(log_format, log_level)
    log = logging.getLogger("rpcmq.serve")
    made = make_client(state, timeout, shell=None, call_timeout=load_client_config(os.environ).timeout)
    # What the methods send goes the same way, with the same keys, as what they are asked.
    rpc.configure(made)
    service = Service(
        topic,
        served,
        host=host,
        client=made,
        concurrency=concurrency,
        drain_seconds=drain_seconds,
    )
    with service.client as client:
        service.start(timeout)
        where = {"topic": str(service.address), "router": ", ".join(client.config.router), "identity": client.identity}
        text = f"serving {where['topic']} on {where['router']} as {where['identity']}"
        log_event(log, logging.INFO, "serving", text, **where)
        service.wait()
        log_event(log, logging.INFO, "stopped", "stopped")
