"""The public methods of an endpoint, as a service runs them for the calls and casts of its topic."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

from rpcmq.client.methods import find_method, public_methods
from rpcmq.core.process.task import Task
from rpcmq.errors import UnknownMethod, UsageError
from rpcmq.payload.remote_exception import mark_not_run
from rpcmq.wire import Address

__all__ = ["ServedMethods", "check_context"]

_BUILTIN = "rpcmq."


class Named(Protocol):
    """A client, as far as its service shows it."""

    @property
    def identity(self) -> str:
        """The name under which the router knows this process."""


def check_context(context: Any) -> None:
    """Raise unless request contexts can be made into ``context``, or into nothing but a dict.

    Raises:
        UsageError: it is a class without ``from_dict()``.
    """
    if context is not None and not callable(getattr(context, "from_dict", None)):
        raise UsageError(f"context {context!r} has no from_dict()")


class ServedMethods:
    """The methods of ``endpoint``, and those that rpcmq adds.

    Args:
        endpoint, address, host, client, context: of the service.
    """

    def __init__(self, endpoint: Any, address: Address, host: str, client: Named, context: Any) -> None:
        self._endpoint = endpoint
        self._address = address
        self._host = host
        self._client = client
        self._context = context
        self._methods: dict[str, Callable[..., Any]] = {}

    def invoke(self, task: Task, body: dict[str, Any]) -> Any:
        """Call the method that ``task`` asks for, with the context and arguments in ``body``.

        Raises:
            UnknownMethod: there is none.
            Exception: what it raises.
        """
        return self.bound(task, body)()

    def bound(self, task: Task, body: dict[str, Any]) -> partial[Any]:
        """The method that ``task`` asks for, with the context and arguments in ``body``.

        Raises:
            UnknownMethod: there is none.
        """
        return self.named(task.method, body)

    def named(self, name: str, body: dict[str, Any]) -> partial[Any]:
        """The method ``name``, with the context and arguments in ``body``.

        Raises:
            UnknownMethod: there is none.
        """
        ctx, args = body.get("context"), body.get("args") or {}
        if self._context is not None and ctx is not None:
            ctx = self._context.from_dict(ctx)
        method = self._methods.get(name) or self._find(name)
        return partial(method, ctx, **args)

    def has(self, name: str) -> bool:
        """Return whether the endpoint has the public method ``name``."""
        return name in self._methods or find_method(self._endpoint, name) is not None

    def _find(self, name: str) -> Callable[..., Any]:
        builtin = {"rpcmq.describe": self._describe, "rpcmq.ping": self._ping}
        method = builtin.get(name) if name.startswith(_BUILTIN) else None
        if method is None:
            method = find_method(self._endpoint, name)
        if method is None:
            raise mark_not_run(
                UnknownMethod(f"{self._address.topic!r} has no public method {name!r} (on {self._address})")
            )
        self._methods[name] = method
        return method

    def _ping(self, ctx: Any) -> dict[str, Any]:
        return {"identity": self._client.identity, "pid": os.getpid(), "server": self._host}

    def _describe(self, ctx: Any) -> dict[str, Any]:
        methods = []
        for name, found in public_methods(self._endpoint):
            try:
                signature = str(inspect.signature(found))
            except (TypeError, ValueError):
                signature = "(...)"
            methods.append({"name": name, "signature": signature, "doc": inspect.getdoc(found) or ""})
        return {
            "topic": self._address.topic,
            "server": self._host,
            "endpoint": type(self._endpoint).__qualname__,
            "methods": methods,
        }
