"""The context that other projects than Nova used."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable
from typing import Any


def generate_request_id() -> str:
    """A name for a request."""
    return f"req-{uuid.uuid4()}"


class RequestContext:
    """The user and roles of a request."""

    def __init__(
        self,
        auth_token: str | None = None,
        user: str | None = None,
        tenant: str | None = None,
        is_admin: bool = False,
        read_only: bool = False,
        show_deleted: bool = False,
        request_id: str | None = None,
    ) -> None:
        self.auth_token = auth_token
        self.user = user
        self.tenant = tenant
        self.is_admin = is_admin
        self.read_only = read_only
        self.show_deleted = show_deleted
        self.request_id = request_id or generate_request_id()

    def to_dict(self) -> dict[str, Any]:
        """All of it, made of what JSON has."""
        return dict(vars(self))


def get_admin_context(show_deleted: bool | str = "no") -> RequestContext:
    """A context that may do everything."""
    return RequestContext(is_admin=True, show_deleted=bool(show_deleted) and show_deleted != "no")


def get_context_from_function_and_args(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> RequestContext | None:
    """The first argument that is a context."""
    every = itertools.chain(kwargs.values(), args)
    return next((each for each in every if isinstance(each, RequestContext)), None)
