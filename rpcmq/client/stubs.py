"""Stubs: remote methods that are called as the methods of a class."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ParamSpec, TypedDict, TypeVar, Unpack

from rpcmq.client.hedging import HedgeAfter
from rpcmq.client.interface import Interface, Method
from rpcmq.client.options import CallOptions
from rpcmq.client.request import current_request
from rpcmq.client.retry import Retry
from rpcmq.errors import UsageError
from rpcmq.payload.bounded_text import short_repr
from rpcmq.wire import Address

__all__ = ["RemoteMethod", "StubOptions", "as_cast", "as_fanout", "make_stub", "with_options"]

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S")

#: The options that each verb takes.
_TAKEN = {
    "call": (
        "timeout",
        "idempotent",
        "mandatory",
        "retry",
        "sign_of_life",
        "direct",
        "first_of",
        "hedge_after",
        "exception_wins",
    ),
    "multicall": ("timeout", "mandatory"),
    "cast": ("timeout", "idempotent", "mandatory", "confirm", "ttl"),
    "fanout_cast": ("timeout", "confirm"),
}


class StubOptions(TypedDict, total=False):
    """The fields of :class:`CallOptions` as keywords, and ``on_progress``, as :meth:`Client.call` takes it."""

    timeout: float | None
    idempotent: bool | None
    mandatory: bool | None
    retry: Retry | int | bool | None
    sign_of_life: float | None
    direct: bool | None
    confirm: bool | None
    ttl: float | None
    first_of: int | None
    hedge_after: HedgeAfter | None
    exception_wins: bool | None
    on_progress: Callable[[Any], None] | None


def make_stub(
    service: Callable[..., S],
    topic: str | Address,
    client: Callable[[], Any],
    options: StubOptions,
    *,
    awaitable: bool = False,
) -> S:
    """A stub of ``service``; see :meth:`Client.stub`.

    Args:
        client: returns the client to send with, each time that a method is called.
        awaitable: the verbs of that client are ``async``, and so are the methods of ``service``.
    """
    if not isinstance(topic, str | Address):
        raise UsageError(f"topic must be a str or an Address, not {type(topic).__name__}: {short_repr(topic)}")
    stub: Any = _Stub(
        Interface.of(service), _Route(client, topic, CallOptions(), None, awaitable).with_options(options)
    )
    return stub  # type: ignore[no-any-return]


def as_cast(method: Callable[P, object], /) -> Callable[P, None]:
    """A method of a stub, to be told rather than asked: it is sent by :meth:`Client.cast`.

    So ``as_cast(compute.reboot)(ctx, instance_id="i-1")``.

    Raises:
        UsageError: it is no method of a stub.
    """
    return _method_of("as_cast", method).sent_by("cast")


def as_fanout(method: Callable[P, object], /) -> Callable[P, int | None]:
    """A method of a stub, to be told to all consumers of its topic: it is sent by :meth:`Client.fanout_cast`.

    Raises:
        UsageError: it is no method of a stub.
    """
    return _method_of("as_fanout", method).sent_by("fanout_cast")


def with_options(remote: R, /, **options: Unpack[StubOptions]) -> R:
    """A stub, or a method of one, with other options; those that are not given stay as they are.

    So ``with_options(compute.migrate, timeout=600, on_progress=print)(ctx, instance_id="i-1")``.

    Raises:
        UsageError: it is neither, or an option is unknown or wrong.
    """
    if not isinstance(remote, _Stub | RemoteMethod):
        raise UsageError(f"with_options takes a stub or a method of one, not {short_repr(remote)}")
    changed: Any = remote._with(options)
    return changed  # type: ignore[no-any-return]


@dataclass(frozen=True, slots=True)
class _Route:
    """The way of a stub's messages."""

    client: Callable[[], Any]
    topic: str | Address
    options: CallOptions
    on_progress: Callable[[Any], None] | None
    awaitable: bool

    def with_options(self, given: StubOptions) -> _Route:
        said: dict[str, Any] = dict(given)
        on_progress = said.pop("on_progress", None) or self.on_progress
        unknown = said.keys() - CallOptions.__dataclass_fields__.keys()
        if unknown:
            known = ", ".join(StubOptions.__annotations__)
            raise UsageError(f"unknown option {min(unknown)!r}; a stub's options are {known}")
        return replace(self, options=CallOptions(**said).or_else(self.options), on_progress=on_progress)


class RemoteMethod:
    """A method of a stub. Calling it sends a message, and returns or raises what comes of that.

    Args:
        method: as the class of the service declares it.
        verb: that of the client by which it is sent.
    """

    def __init__(self, method: Method, route: _Route, verb: str) -> None:
        if method.is_async != route.awaitable:
            other = (
                "async, so its stub is one of rpcmq.aio"
                if method.is_async
                else "not async, as rpcmq.aio's stubs need it"
            )
            raise UsageError(f"{method.shown} is {other}; a Protocol can declare it as this caller needs it")
        self._method, self._route, self._verb = method, route, verb
        options = {name: value for name in _TAKEN[verb] if (value := getattr(route.options, name)) is not None}
        if verb == "call" and route.on_progress is not None:
            options["on_progress"] = route.on_progress
        self._options = options
        self.__name__, self.__qualname__, self.__doc__ = method.name, method.shown, method.doc
        self.__signature__ = method.signature

    def __call__(self, *args: Any, **named: Any) -> Any:
        """Send it.

        Raises:
            TypeError: the method does not take these arguments; nothing was sent.
        """
        ctx, values = self._method.bind(args, named)
        options = self._options
        if "timeout" in options and (request := current_request()) is not None and request.remaining is not None:
            # As of a default: it is no reason to wait longer than the caller of ours does.
            options = {**options, "timeout": max(0.001, min(options["timeout"], request.remaining))}
        send = getattr(self._route.client(), self._verb)
        return send(ctx, self._route.topic, {"method": self._method.name, "args": values}, **options)

    def __repr__(self) -> str:
        return f"<{self._verb} of {self.__qualname__} on {str(self._route.topic)!r}>"

    def sent_by(self, verb: str) -> RemoteMethod:
        """The same method, sent by another verb."""
        return RemoteMethod(self._method, self._route, verb)

    def _with(self, options: StubOptions) -> RemoteMethod:
        return RemoteMethod(self._method, self._route.with_options(options), self._verb)


class _Stub:
    """An object with the methods of a class, which are run elsewhere. All its own names are private."""

    def __init__(self, interface: Interface, route: _Route) -> None:
        self._interface, self._route = interface, route

    def __getattr__(self, name: str) -> Any:
        if name in ("_interface", "_route"):  # while it is being copied
            raise AttributeError(name)
        method = self._interface.method(name)
        remote = RemoteMethod(method, self._route, "multicall" if method.is_stream else "call")
        self.__dict__[name] = remote
        return remote

    def __dir__(self) -> list[str]:
        return self._interface.names()

    def __repr__(self) -> str:
        return f"<stub of {self._interface.name} on {str(self._route.topic)!r}>"

    def _with(self, options: StubOptions) -> _Stub:
        return _Stub(self._interface, self._route.with_options(options))


def _method_of(verb: str, method: object) -> RemoteMethod:
    if not isinstance(method, RemoteMethod):
        raise UsageError(f"{verb} takes a method of a stub, not {short_repr(method)}")
    return method
