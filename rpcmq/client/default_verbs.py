"""Verbs as functions of a module: those of its default client."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Concatenate, Generic, ParamSpec, TypeVar

__all__ = ["DefaultVerbs"]

C = TypeVar("C")
P = ParamSpec("P")
T = TypeVar("T")


class DefaultVerbs(Generic[C]):
    """Makes functions of verbs, as those of the client that ``client()`` returns at each call."""

    def __init__(self, client: Callable[[], C]) -> None:
        self._client = client

    def function(self, verb: Callable[Concatenate[C, P], T]) -> Callable[P, T]:
        """``verb`` of the default client, with its signature and docstring."""
        client = self._client

        @wraps(verb)
        def of_the_default(*args: P.args, **options: P.kwargs) -> T:
            return verb(client(), *args, **options)

        signature = inspect.signature(verb)
        _, *parameters = signature.parameters.values()
        of_the_default.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        return of_the_default
