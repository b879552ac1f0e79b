"""Exceptions that several projects had."""

from __future__ import annotations

from typing import Any


class Error(Exception):
    """Root of the older ones."""

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message)


class ApiError(Error):
    """An answer of the API."""

    def __init__(self, message: str = "Unknown", code: Any = "Unknown") -> None:
        self.api_message = message
        self.code = code
        super().__init__(f"{code}: {message}")


class OpenstackException(Exception):
    """Root of those that say their text once, with places for keywords."""

    msg_fmt = "An unknown exception occurred"

    def __init__(self, **kwargs: Any) -> None:
        template = getattr(self, "message", self.msg_fmt)
        try:
            self._error_string = template % kwargs
        except Exception:
            # At least the text itself goes out.
            self._error_string = template
        super().__init__(self._error_string)

    def __str__(self) -> str:
        return self._error_string


class NotFound(Error):
    """It is not there."""


class Duplicate(Error):
    """It is there already."""


class NotAuthorized(Error):
    """It is not allowed."""


class NotEmpty(Error):
    """It has something in it."""


class Invalid(Error):
    """It is wrong."""


class MalformedRequestBody(OpenstackException):
    """A request cannot be read."""

    msg_fmt = "Malformed message body: %(reason)s"


class InvalidContentType(OpenstackException):
    """A request is of a kind that is not taken."""

    msg_fmt = "Invalid content type %(content_type)s"
