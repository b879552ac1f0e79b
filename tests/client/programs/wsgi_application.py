"""A web application that uses rpcmq.rpc and knows nothing of gevent. The request's path says what it is to do."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any

from rpcmq import rpc

if os.environ.get("CALL_BEFORE_FORK"):  # as with --preload: in the master, which forks its workers afterwards
    rpc.call(None, "compute", {"method": "add", "args": {"a": 0}})


def application(environ: dict[str, Any], start_response: Callable[..., object]) -> Iterable[bytes]:
    verb, _, value = environ["PATH_INFO"].strip("/").partition("/")
    if verb == "call":
        answer = rpc.call(None, "compute", {"method": "add", "args": {"a": int(value)}}, timeout=20)
    else:
        rpc.cast(None, "compute", {"method": "note", "args": {"value": int(value)}})
        answer = "accepted"
    start_response("200 OK" if verb == "call" else "202 Accepted", [("Content-Type", "text/plain")])
    return [f"{answer} {os.getpid()} {rpc.client().identity}".encode()]
