"""A web application that puts an item for each request, whatever the server runs it in."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any

import rpcmq
from rpcmq import rpc

rpc.configure(rpcmq.Client(os.environ["ROUTER"]))


def app(environ: dict[str, Any], start_response: Callable[..., object]) -> Iterable[bytes]:
    """Put an item that has the path."""
    invoice = environ["PATH_INFO"].strip("/")
    receipt = rpc.put(None, "billing", {"method": "charge", "args": {"invoice": invoice}}, id=invoice)
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [str(receipt).encode()]
