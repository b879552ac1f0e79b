"""Configuration of gunicorn: its master calls before it forks its workers, and goes on to call while they serve."""

from __future__ import annotations

from typing import Any

from rpcmq import rpc


def when_ready(server: Any) -> None:
    rpc.call(None, "compute", {"method": "show", "args": {"instance_id": "i-1"}}, timeout=20)


def post_fork(server: Any, worker: Any) -> None:
    rpc.call(None, "compute", {"method": "show", "args": {"instance_id": "i-1"}}, timeout=20)
