"""``python -m examples.web``: a router, a service and a gateway, and the address of a page to play with."""

from __future__ import annotations

import argparse
import math
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from time import monotonic
from typing import Any

import gevent
from gevent.event import Event

from rpcmq import Client, ExceptionRegistry, Service, current_request
from rpcmq.adapters.rights import parse_right
from rpcmq.gateway import Gateway, Token, load_settings
from rpcmq.gateway.tokens import VERBS, edited_tokens, hash_of, new_secret
from rpcmq.testing import router

NODES = ("node-1", "node-2", "node-3")


class Disks:
    """The service behind the page."""

    def free(self, ctx: Any, node: str) -> dict[str, Any]:
        """The free space of a node."""
        if node not in NODES:
            raise LookupError(f"no such node: {node}")
        return {"node": node, "gib": Decimal(f"{_free(node):.2f}"), "at": datetime.now(UTC)}

    def check(self, ctx: Any, steps: int = 40) -> Iterator[dict[str, Any]]:
        """Check a disk, block by block."""
        for step in range(steps):
            gevent.sleep(0.05)
            yield {"block": step + 1, "of": steps}

    def scrub(self, ctx: Any, seconds: float = 20.0) -> str:
        """Take a long time, unless the caller has gone."""
        request: Any = current_request()
        end = monotonic() + seconds
        while monotonic() < end and not request.cancelled:
            gevent.sleep(0.05)
        return "done"


def _free(node: str) -> float:
    return 50 + 40 * math.sin(monotonic() / 7 + NODES.index(node) * 2)


def _report(client: Client) -> None:
    """Publish the free space of all nodes, for ever."""
    while True:
        for node in NODES:
            client.publish(None, f"disk.{node}", {"gib": round(_free(node), 1)})
            gevent.sleep(0.3)


def main() -> None:
    """Serve the page until Ctrl-C."""
    options = argparse.ArgumentParser(prog="python -m examples.web", description=__doc__)
    options.add_argument("--bind", default="127.0.0.1:7790", help="where the page is served (default: %(default)s)")
    bind = options.parse_args().bind
    with tempfile.TemporaryDirectory() as folder, router() as started:
        tokens = str(Path(folder) / "tokens.toml")
        secret = new_secret()
        rights = (parse_right("call:disk,backup", VERBS, VERBS), parse_right("subscribe:disk.#", VERBS, VERBS))
        with edited_tokens(tokens) as known:
            known.append(Token("page", hash_of(secret), rights))
        settings = load_settings(
            None, {"listen.bind": bind, "access.tokens": tokens, "pages.folder": str(Path(__file__).parent)}
        )
        registry = ExceptionRegistry(defaults=False)
        with (
            Client(started.url, shell="gevent", format="json", exceptions=registry) as client,
            Service("disk", Disks(), client=client),
        ):
            gateway = Gateway(client, settings)
            gateway.start()
            reports = gevent.spawn(_report, client)
            # Behind the '#' the token stays in the browser: no server and no log sees it.
            print(f"Open {gateway.url}/#token={secret}", flush=True)
            try:
                Event().wait()
            except KeyboardInterrupt:
                pass  # the usual end
            reports.kill()
            gateway.stop(1.0)


if __name__ == "__main__":
    main()
