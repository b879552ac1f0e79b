"""The router's answer to a call that it has not carried out."""

from __future__ import annotations

from rpcmq.errors import Outcome
from rpcmq.testing.network import Call
from rpcmq.wire import Kind

__all__ = ["error_of"]


def error_of(call: Call) -> tuple[Outcome, str, dict[str, object]]:
    body = call.end.body
    assert call.end.kind is Kind.ERROR
    return Outcome(body["outcome"]), body["text"], body["details"]
