"""Answers of fetchers to front ends, as they travel."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from rpcmq.proxy.messages import Headers

__all__ = ["ASKER", "Answer", "failure", "share_key"]

ASKER = frozenset(
    (
        "user-agent", "referer", "cookie", "via", "forwarded", "x-forwarded-for", "x-forwarded-host",
        "x-forwarded-proto", "x-real-ip", "x-request-id", "traceparent", "tracestate", "priority", "sec-ch-ua",
        "sec-fetch-mode",
    )
)  # fmt: skip
"""Fields of a request that say who asks, and which tell no responses apart unless these say so (Vary)."""


class Answer(NamedTuple):
    """An origin's response, or the reason why there is none. It travels as a list: few parts make it quick to check.

    Attributes:
        status: of the response.
        reason: its phrase; of a failure the reason of that.
        fields: names and values, as lines.
        body: the body, or its beginning.
        server: name of the fetcher that has the rest.
        token: by which it gives that; empty: there is none.
        ends_with_connection: whether only the end of its connection ended the body, so that nobody knows whether it is
            whole.
        failed: 502, 503 or 504, where there is no response; 0: there is one.
        lead: seconds by which the request was sent before it was asked for: it is the response to another one.
    """

    status: int
    reason: str
    fields: bytes = b""
    body: bytes = b""
    server: str = ""
    token: str = ""
    ends_with_connection: bool = False
    failed: int = 0
    lead: float = 0.0

    @property
    def headers(self) -> Headers:
        """Names and values."""
        lines = self.fields.decode("latin-1").split("\r\n")
        return Headers([(name, value) for name, _, value in (line.partition(": ") for line in lines) if name])

    def led_by(self, lead: float) -> Answer:
        """Return it for another request, which came ``lead`` seconds later."""
        return self._replace(lead=lead)

    def to_list(self) -> list[Any]:
        """Return it as a value that can be sent."""
        return list(self)

    @classmethod
    def of_list(cls, value: list[Any]) -> Answer:
        """Return the answer in ``value``."""
        return cls(*value)


def failure(status: int, text: str) -> Answer:
    """The answer where there is no response."""
    return Answer(0, text, failed=status)


def share_key(mark: str, method: str, target: str, fields: Iterable[tuple[str, str]]) -> str:
    """Return a text that is the same for requests that may have the same response, unless it varies by who asks.

    Args:
        mark: requests of different marks never share one.
    """
    alike = [f"{name.lower()}:{value}" for name, value in fields if name.lower() not in ASKER]
    return "\n".join((mark, method, target, *alike))
