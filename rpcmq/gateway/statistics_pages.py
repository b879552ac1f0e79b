"""Counts of the gateway over HTTP: for Prometheus, as JSON, and whether it is well."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import gevent

from rpcmq.gateway.http import BadRequest, Gate, HttpRequest, answer
from rpcmq.gateway.listener import end_connection, read_request, send_refusal
from rpcmq.gateway.statistics import METRICS_TYPE, metrics_text

__all__ = ["StatisticsPages"]


class StatisticsPages:
    """Serves ``/metrics``, ``/varz`` and ``/healthz``.

    Args:
        statistics: of the gateway.
        gate: knows its names.
        seconds: that a request may take.
    """

    def __init__(self, statistics: Callable[[], Mapping[str, Any]], gate: Gate, seconds: float) -> None:
        self._statistics = statistics
        self._gate = gate
        self._seconds = seconds

    def serve(self, sock: Any, peer: tuple[Any, ...]) -> None:
        """Answer the request that comes over ``sock``."""
        try:
            with gevent.Timeout(self._seconds, TimeoutError):
                try:
                    request = read_request(sock)
                    if request is not None:
                        self._gate.check(request)
                        sock.sendall(self._answer(request))
                except BadRequest as error:
                    send_refusal(sock, error)
                end_connection(sock)
        except OSError:
            pass  # who asks has left, or is slow

    def _answer(self, request: HttpRequest) -> bytes:
        statistics, head_only = self._statistics(), request.method == "HEAD"
        match request.path:
            case "/metrics":
                return answer(200, metrics_text(statistics).encode(), METRICS_TYPE, head_only)
            case "/varz":
                return answer(200, json.dumps(statistics).encode(), "application/json", head_only)
            case "/healthz":
                status, text = (503, b"stopping\n") if statistics["is_draining"] else (200, b"ok\n")
                return answer(status, text, head_only=head_only)
            case _:
                raise BadRequest(404, "the pages are /metrics, /varz and /healthz")
