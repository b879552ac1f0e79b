"""``rpcmq syslog``."""

from __future__ import annotations

from contextlib import suppress
from time import monotonic
from typing import Any

import click

from rpcmq.cli.options import State, connects, log_options, make_client, positive

__all__ = ["syslog_command"]

#: Seconds that the router has to acknowledge the last events, where the stop has taken all its time.
_LAST_SECONDS = 1.0


class _Statistics:
    """Counts and rates of a front end, as a service."""

    def __init__(self, front_end: Any) -> None:
        self._front_end = front_end

    def statistics(self, ctx: Any) -> dict[str, Any]:
        """Counts and rates of each transport since the start."""
        found: dict[str, Any] = self._front_end.statistics()
        return found


@click.command("syslog")
@click.option("--config", "path", metavar="FILE", help="TOML file with settings.")
@click.option("--tcp", metavar="HOST:PORT", help="Where messages over TCP are taken; '': nowhere.  [tcp.bind]")
@click.option("--udp", metavar="HOST:PORT", help="Where messages over UDP are taken; '': nowhere.  [udp.bind]")
@click.option("--topic", "template", metavar="TEMPLATE", help="Topic of a message's event.  [event.topic]")
@click.option(
    "--serve",
    "service",
    default="syslog",
    show_default=True,
    metavar="TOPIC",
    help="Serve the method 'statistics' there; '': nowhere.",
)
@click.option(
    "--drain-seconds", type=positive, default=10.0, show_default=True, help="How long a stop publishes what has come."
)
@click.option(
    "--timeout", type=positive, default=30.0, show_default=True, help="Seconds to wait for the router at start."
)
@log_options
@connects
@click.pass_obj
def syslog_command(
    state: State,
    path: str | None,
    tcp: str | None,
    udp: str | None,
    template: str | None,
    service: str,
    drain_seconds: float,
    timeout: float,
    log_format: str,
    log_level: str,
) -> None:
    """Take messages of syslog (RFC 5424) over TCP and UDP, and publish each as an event.

    A message from app sshd of host node-3 with priority auth.err has the topic
    syslog.auth.err.sshd.node-3, unless event.topic says otherwise; watch with rpcmq sub 'syslog.#'.
    Over TCP nothing is lost: while the router takes no events, nothing is read. Over UDP a sender that
    floods loses its own messages, and not those of others. SIGTERM and SIGINT stop it when what has
    come is published.
    """
    import logging

    from gevent.event import Event

    from rpcmq.cli.stopping import ended_by_signals
    from rpcmq.client import Service
    from rpcmq.server.limits import raise_open_files
    from rpcmq.server.log import log_event, start_logging
    from rpcmq.syslog import FrontEnd, load_settings

    options = {"tcp.bind": tcp, "udp.bind": udp, "event.topic": template}
    settings = load_settings(path, options)
    start_logging(log_format, log_level)
    raise_open_files()
    log = logging.getLogger("rpcmq.syslog")
    with make_client(state, timeout) as client:
        front_end = FrontEnd(client, settings)
        counts = Service(service, _Statistics(front_end), client=client) if service else None
        if counts:
            counts.start(timeout)
        front_end.start()
        where = {name: f"{host}:{port}" for name, (host, port) in front_end.addresses.items()}
        text = "takes messages at " + (" and ".join(f"{at} ({name})" for name, at in where.items()) or "no address")
        text += f"; events to {', '.join(client.config.router)}"
        # A signal ends the wait, and nothing else.
        with suppress(KeyboardInterrupt, SystemExit), ended_by_signals():
            log_event(log, logging.INFO, "listening", text, **where)
            Event().wait()
        lost = _stop(front_end, counts, client, drain_seconds)
        text = (
            f"stopped; {lost} message(s) lost, or not acknowledged by the router"
            if lost
            else "stopped; all that had come is published"
        )
        log_event(log, logging.WARNING if lost else logging.INFO, "stopped", text, lost=lost)


def _stop(front_end: Any, counts: Any, client: Any, seconds: float) -> int:
    """Stop all of them within ``seconds``, about; return how many messages were lost, or were not acknowledged."""
    end = monotonic() + seconds
    lost: int = front_end.stop(seconds)
    if counts:
        counts.stop(max(0.0, end - monotonic()))
    client.close(linger_seconds=max(_LAST_SECONDS, end - monotonic()))
    # Published, and the router has not said that it has them.
    return lost + int(client.at_risk)
