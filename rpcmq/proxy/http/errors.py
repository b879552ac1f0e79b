"""Messages of HTTP that cannot be served or used."""

from __future__ import annotations

__all__ = ["ClientGone", "HttpError", "RefusedRequest", "TruncatedBody"]


class HttpError(Exception):
    """A peer that does not follow HTTP, or stops."""


class RefusedRequest(HttpError):
    """A request that is answered with an error, after which its connection is closed.

    Attributes:
        status: of the answer.
        text: a sentence for the client that names the fault.
    """

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status
        self.text = text


class ClientGone(HttpError):
    """The client's connection ended before its response had been sent."""


class TruncatedBody(HttpError):
    """A body ended before its end; nothing of it may be stored."""
