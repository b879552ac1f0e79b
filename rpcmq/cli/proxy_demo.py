"""``rpcmq proxy --demo``: origin, router, fetcher and front end in one process."""

from __future__ import annotations

from contextlib import ExitStack, suppress
from tempfile import TemporaryDirectory

import click
from gevent.event import Event

from rpcmq import Client
from rpcmq.cli.stopping import ended_by_signals
from rpcmq.config import load_router_config
from rpcmq.proxy.demo import DemoOrigin, demo_settings, make_certificate
from rpcmq.proxy.fetcher.service import Fetcher
from rpcmq.proxy.front.front_end import FrontEnd, store_of
from rpcmq.server.embedded import EmbeddedRouter

__all__ = ["run_demo"]


def run_demo(https: str, admin: str, timeout: float) -> None:
    """Serve until a signal comes.

    Args:
        https, admin: addresses to listen at; port 0 is any that is free.
        timeout: seconds that the start may take.

    Raises:
        ConfigError: an address is in use, or no certificate can be made.
    """
    # A signal ends the wait, and nothing else.
    with ExitStack() as stack, suppress(KeyboardInterrupt, SystemExit), ended_by_signals():
        folder = stack.enter_context(TemporaryDirectory(prefix="rpcmq-proxy-"))
        certificate = make_certificate(folder)
        origin = DemoOrigin()
        origin.start()
        stack.callback(origin.stop)
        router = EmbeddedRouter(load_router_config(None, {}, {"router.listen": "tcp://127.0.0.1:*"}))
        stack.callback(router.close)
        settings = demo_settings(certificate, origin.url, https, admin)
        fetcher_client = stack.enter_context(Client(router.url, shell="gevent", connect_timeout=timeout))
        fetcher = Fetcher(fetcher_client, settings, "demo")
        fetcher.start(timeout)
        stack.callback(fetcher.stop, 5.0)
        client = stack.enter_context(Client(router.url, shell="gevent", connect_timeout=timeout))
        front_end = FrontEnd(client, settings, store_of(settings))
        front_end.start()
        stack.callback(front_end.stop)
        port, admin_port = (front_end.addresses[name][1] for name in ("https", "admin"))
        click.echo(
            f"A site is served at https://localhost:{port}/. Try, more than once:\n\n"
            f"  curl -i --cacert {certificate.chain} https://localhost:{port}/\n\n"
            f"Cache-Status says where each answer comes from. Other pages: /slow, /never, /large (try curl -r 0-9).\n"
            f"Purge:    curl -X POST 'http://127.0.0.1:{admin_port}/purge?tag=demo'\n"
            f"Metrics:  curl http://127.0.0.1:{admin_port}/metrics\n"
            "Ctrl-C ends it."
        )
        Event().wait()
