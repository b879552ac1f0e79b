"""The methods of a service as its class declares them: how arguments get their names, and which are streams."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from functools import lru_cache
from inspect import Parameter, Signature
from types import SimpleNamespace
from typing import Any, get_origin, get_type_hints

from rpcmq.errors import UsageError
from rpcmq.payload.bounded_text import short_repr

__all__ = ["Interface", "Method"]

_STREAMS = frozenset({"Iterator", "Generator"})
_ASYNC_STREAMS = frozenset({"AsyncIterator", "AsyncGenerator"})
_REST = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
_POSITIONAL = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD, Parameter.VAR_POSITIONAL)


class Method:
    """A method of a service, as a caller sees it: ``name(ctx, ...)``.

    Args:
        shown: its name in errors, for example ``"ComputeManager.reboot"``.
        function: what the class has.
        signature: of what is called, ``ctx`` first.

    Attributes:
        is_stream: it yields, or says that it returns an iterator.
        is_async: it is ``async``, or its items are.

    Raises:
        UsageError: it cannot be called by rpcmq.
    """

    def __init__(self, name: str, shown: str, function: Any, signature: Signature) -> None:
        self.name, self.shown, self.signature = name, shown, signature
        self.doc = inspect.getdoc(function)
        returned = _kind_of(signature.return_annotation, function)
        is_async_stream = inspect.isasyncgenfunction(function) or returned in _ASYNC_STREAMS
        self.is_stream = is_async_stream or inspect.isgeneratorfunction(function) or returned in _STREAMS
        self.is_async = is_async_stream or inspect.iscoroutinefunction(function)
        if is_async_stream and inspect.iscoroutinefunction(function):
            raise UsageError(f"{shown} is a stream that never yields: declare it with 'def', or let its body yield")
        parameters = list(signature.parameters.values())
        if not parameters or parameters[0].kind not in _POSITIONAL:
            raise UsageError(
                f"{shown}{signature} has no parameter for the context: rpcmq calls it as method(ctx, **args)"
            )
        for each in parameters[1:]:
            if each.kind is Parameter.POSITIONAL_ONLY:
                raise UsageError(
                    f"{shown}{signature}: arguments travel by name, which {each.name!r} cannot be given by"
                )
        self._ctx = parameters[0].name
        self._rest = {each.kind: each.name for each in parameters if each.kind in _REST}
        self._order = tuple(each.name for each in parameters if each.kind in _POSITIONAL)
        self._known = {each.name for each in parameters}
        self._needed = {each.name for each in parameters if each.default is Parameter.empty}
        self._is_plain = not self._rest and parameters[0].kind is Parameter.POSITIONAL_OR_KEYWORD

    def bind(self, args: Sequence[Any], named: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
        """The context, and the other arguments by name; those that are left to their defaults are not there.

        Raises:
            TypeError: the method cannot be called so.
        """
        if self._is_plain and len(args) <= len(self._order):
            # Five times as fast as Signature.bind, which finds the words where something is wrong.
            values = {**dict(zip(self._order, args, strict=False)), **named}
            if len(values) == len(args) + len(named) and self._needed <= values.keys() <= self._known:
                return values.pop(self._ctx, None), values
        try:
            values = self.signature.bind(*args, **named).arguments
        except TypeError as error:
            raise TypeError(f"{self.shown}{self.signature}: {error}") from None
        ctx = values.pop(self._ctx, None)
        return (ctx, values) if not self._rest else self._unpacked(ctx, values)

    def _unpacked(self, ctx: Any, values: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        """The same of a method that takes any number of arguments."""
        more = values.pop(self._rest.get(Parameter.VAR_POSITIONAL, ""), ())
        if self._ctx == self._rest.get(Parameter.VAR_POSITIONAL):
            ctx, *more = ctx or (None,)
        if more:
            raise TypeError(f"{self.shown}{self.signature}: too many positional arguments: what *args take has no name")
        named = values.pop(self._rest.get(Parameter.VAR_KEYWORD, ""), {})
        return ctx, {**values, **named}


class Interface:
    """The public methods of a class: an implementation, an abstract class or a Protocol.

    Args:
        declared: the class.

    Raises:
        UsageError: it is no class, or has no public methods.
    """

    def __init__(self, declared: type) -> None:
        self._declared = declared
        self.name = declared.__qualname__
        self._methods: dict[str, Method] = {}
        if not self.names():
            raise UsageError(f"{self.name} has no public method, so nothing could be called on it")

    @classmethod
    def of(cls, declared: object) -> Interface:
        """The interface that ``declared`` is, made once for each class."""
        # Of a generic class with its arguments the class.
        declared = get_origin(declared) or declared
        if not isinstance(declared, type):
            raise UsageError(
                f"a stub is made from a class: the service's own, an abstract one or a Protocol; not from "
                f"{short_repr(declared)}"
            )
        return _interface(declared)

    def names(self) -> list[str]:
        """The names of the public methods."""
        return [name for name in dir(self._declared) if not name.startswith("_") and self._found(name) is not None]

    def method(self, name: str) -> Method:
        """The public method ``name``.

        Raises:
            AttributeError: there is none.
            UsageError: it cannot be called by rpcmq.
        """
        known = self._methods.get(name)
        if known is None:
            known = self._methods[name] = self._new_method(name)
        return known

    def _new_method(self, name: str) -> Method:
        found = None if name.startswith("_") else self._found(name)
        if found is None:
            near = get_close_matches(name, names := self.names(), n=3)
            hint = f"did you mean {' or '.join(near)}?" if near else f"it has {', '.join(names[:20])}"
            private = " (names that begin with _ are not served)" if name.startswith("_") else ""
            raise AttributeError(f"{self.name} has no public method {name!r}{private}; {hint}", name=name)
        shown = f"{self.name}.{name}"
        function, drop = found
        try:
            signature = inspect.signature(function)
        except (TypeError, ValueError):
            raise UsageError(f"{shown} has no signature, so its arguments cannot be named; use client.call") from None
        parameters = list(signature.parameters.values())
        if drop and parameters and parameters[0].kind is not Parameter.VAR_POSITIONAL:
            signature = signature.replace(parameters=parameters[1:])
        return Method(name, shown, inspect.unwrap(function), signature)

    def _found(self, name: str) -> tuple[Callable[..., Any], bool] | None:
        """The function behind the attribute ``name``, and whether its first parameter is ``self``; None: no method."""
        static = inspect.getattr_static(self._declared, name, None)
        if isinstance(static, staticmethod):
            return static.__func__, False
        if isinstance(static, classmethod):
            return static.__func__, True
        if not callable(static) and not isinstance(static, property):
            # One that becomes a function as it is looked up, as that of functools.partialmethod.
            static = getattr(self._declared, name, None)
        if not callable(static) or isinstance(static, type):
            return None
        return static, hasattr(type(static), "__get__")


@lru_cache(maxsize=256)
def _interface(declared: type) -> Interface:
    return Interface(declared)


def _kind_of(annotation: Any, function: Any) -> str:
    """The name of the class that ``annotation`` says is returned, without its module and arguments."""
    if isinstance(annotation, str):
        scope = getattr(inspect.unwrap(function), "__globals__", {})
        try:
            annotation = get_type_hints(SimpleNamespace(__annotations__={"return": annotation}), scope)["return"]
        except Exception:
            # A name that is imported for type checkers only. So the text has to say it.
            return annotation.partition("[")[0].rpartition(".")[2].strip()  # type: ignore[no-any-return]
    return getattr(get_origin(annotation) or annotation, "__name__", "")
