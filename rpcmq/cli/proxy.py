"""``rpcmq proxy``."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from rpcmq.cli.options import State, connects, log_options, make_client, positive
from rpcmq.errors import ConfigError

if TYPE_CHECKING:
    from rpcmq.proxy.settings import ProxySettings

__all__ = ["proxy_command"]

_ROLES = ("all", "front", "fetch")


@click.command("proxy")
@click.option("--config", "path", metavar="FILE", help="TOML file with settings.")
@click.option(
    "--role",
    type=click.Choice(_ROLES),
    default="all",
    show_default=True,
    help="front: front ends only; fetch: a fetcher only; all: both, and a router of their own unless one is named.",
)
@click.option("--https", metavar="HOST:PORT", help="Where HTTPS is served; '': nowhere.  [front.https]")
@click.option("--http", metavar="HOST:PORT", help="Where plain HTTP is served; '': nowhere.  [front.http]")
@click.option("--admin", metavar="HOST:PORT", help="Where purges and metrics are served; '': nowhere.  [front.admin]")
@click.option("--processes", type=int, metavar="N", help="Front ends, each a process.  [front.processes]")
@click.option("--check", is_flag=True, help="Only read the settings and certificates, and say what is wrong.")
@click.option("--demo", is_flag=True, help="Serve a small site of its own, with a certificate of its own, to try it.")
@click.option("--number", type=int, hidden=True, help="Of this front end among those of one command.")
@click.option("--parent", type=int, hidden=True, help="The process with which this one ends.")
@click.option(
    "--timeout", type=positive, default=30.0, show_default=True, help="Seconds to wait for the router at start."
)
@log_options
@connects
@click.pass_obj
def proxy_command(
    state: State,
    path: str | None,
    role: str,
    https: str | None,
    http: str | None,
    admin: str | None,
    processes: int | None,
    check: bool,
    demo: bool,
    number: int | None,
    parent: int | None,
    timeout: float,
    log_format: str,
    log_level: str,
) -> None:
    """Serve sites from a cache, over HTTPS: an HTTP reverse proxy.

    Front ends answer clients, fetchers ask the origins; a router is between them, so that both can
    be added and removed while the others serve. Everything is set in one TOML file. SIGTERM and
    SIGINT stop it when what runs has been answered; SIGHUP loads the certificates anew and opens
    the access log anew. Try it with rpcmq proxy --demo.
    """
    try:
        import httptools  # noqa: F401
    except ImportError:
        raise click.UsageError("rpcmq proxy needs more packages: pip install 'rpcmq[proxy]'") from None
    from rpcmq.proxy.settings import load_settings
    from rpcmq.server.log import start_logging

    if demo:
        if path is not None:
            raise click.UsageError("--demo has settings of its own: leave out --config")
        from rpcmq.cli.proxy_demo import run_demo

        start_logging(log_format, "warning" if log_level == "info" else log_level)
        run_demo(https or "127.0.0.1:0", admin or "127.0.0.1:0", timeout)
        return
    if path is None:
        raise click.UsageError("name the file with the settings: --config FILE; or try --demo")
    options = {"front.https": https, "front.http": http, "front.admin": admin, "front.processes": processes}
    settings = load_settings(path, options)
    if settings.router.urls and state.router is None:
        state.router = ",".join(settings.router.urls)
    if check:
        _check(settings)
        return
    start_logging(log_format, log_level)
    from rpcmq.cli.proxy_processes import end_with, run_processes
    from rpcmq.server.limits import raise_open_files

    raise_open_files()  # each connection is one
    if parent is not None:
        end_with(parent)
    if role == "fetch":
        _run_fetcher(state, settings, timeout)
    elif role == "front" and (number is not None or settings.front.processes == 1):
        _run_front_end(state, settings, number or 0, timeout)
    else:
        log = ["--log-format", log_format, "--log-level", log_level]
        given = [text for key, value in options.items() if value is not None for text in _option(key, value)]
        run_processes(state, settings, role, ["--config", path, "--timeout", str(timeout), *log, *given])


def _option(key: str, value: Any) -> tuple[str, str]:
    return "--" + key.partition(".")[2], str(value)


def _check(settings: ProxySettings) -> None:
    from rpcmq.proxy.fetcher.origins import Origins
    from rpcmq.proxy.http.tls import Certificates

    wrong = []
    checks: list[Callable[[], object]] = [partial(Origins, site) for site in settings.sites]
    if settings.front.https:
        checks += [partial(Certificates, (each,)) for each in settings.certificates]
        checks.append(partial(Certificates, settings.certificates))
    for check in checks:
        try:
            check()
        except ConfigError as error:
            wrong.append(str(error))
    if wrong:
        raise ConfigError("\n".join(dict.fromkeys(wrong)))
    click.echo(f"ok: {len(settings.sites)} site(s), {len(settings.certificates)} certificate(s)")


def _run_fetcher(state: State, settings: ProxySettings, timeout: float) -> None:
    import logging
    import os
    import re
    import socket

    from gevent.event import Event

    from rpcmq.cli.stopping import ended_by_signals
    from rpcmq.proxy.fetcher.service import Fetcher
    from rpcmq.server.log import log_event

    log = logging.getLogger("rpcmq.proxy")
    name = re.sub(r"[^A-Za-z0-9_-]", "-", socket.gethostname()) + f"-{os.getpid()}"
    with make_client(state, timeout) as client:
        fetcher = Fetcher(client, settings, name)
        fetcher.start(timeout)
        log_event(log, logging.INFO, "fetching", f"fetcher {name} serves topic {settings.fetch.topic}", name=name)
        # A signal ends the wait, and nothing else.
        with suppress(KeyboardInterrupt, SystemExit), ended_by_signals():
            Event().wait()
        fetcher.stop(settings.front.drain_seconds)


def _run_front_end(state: State, settings: ProxySettings, number: int, timeout: float) -> None:
    import logging
    import signal

    import gevent
    from gevent.event import Event

    from rpcmq.cli.stopping import ended_by_signals

    if settings.cache.mongodb:
        from gevent import monkey

        # Before its driver makes a socket or a lock: these are then gevent's.
        monkey.patch_all()
    from rpcmq.proxy.front.front_end import FrontEnd, store_of
    from rpcmq.proxy.http.tls import pass_over_bad_names
    from rpcmq.server.log import log_event

    pass_over_bad_names()
    log = logging.getLogger("rpcmq.proxy")
    with ExitStack() as stack:
        client = stack.enter_context(make_client(state, timeout))
        front_end = FrontEnd(client, settings, store_of(settings), number)
        front_end.start()
        gevent.signal_handler(signal.SIGHUP, front_end.reload)
        where = {name: f"{host}:{port}" for name, (host, port) in front_end.addresses.items()}
        text = "serves " + ", ".join(f"{name} at {address}" for name, address in where.items())
        log_event(log, logging.INFO, "listening", text, **where)
        # A signal ends the wait, and nothing else.
        with suppress(KeyboardInterrupt, SystemExit), ended_by_signals():
            Event().wait()
        broken = front_end.stop()
        text = f"stopped; {broken} request(s) broken off" if broken else "stopped; all requests were answered"
        log_event(log, logging.WARNING if broken else logging.INFO, "stopped", text, broken=broken)
