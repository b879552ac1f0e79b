"""The methods that a class declares, and how arguments get their names."""

# mypy: disable-error-code="empty-body"

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import pytest

from rpcmq.client.interface import Interface
from rpcmq.errors import UsageError

if TYPE_CHECKING:
    from collections import abc as only_for_checkers

Instances = Iterator[str]
T = TypeVar("T", contravariant=True)


class Manager:
    """Has each kind of method."""

    limit = 5

    class Nested:
        pass

    def __init__(self, name: str) -> None:
        self.name = name

    def reboot(self, ctx: Any, instance_id: str, hard: bool = False) -> str:
        """Reboot an instance."""
        return instance_id

    def named_only(self, ctx: Any, *, zone: str) -> None: ...
    def optional_context(self, ctx: Any = None, n: int = 0) -> None: ...
    def open(self, ctx: Any, /, n: int, **more: Any) -> None: ...
    def anything(self, *args: Any, **more: Any) -> None: ...
    def star(self, ctx: Any, *more: Any) -> None: ...
    def positional(self, ctx: Any, n: int, /) -> None: ...
    def nothing(self) -> None: ...

    @staticmethod
    def static(ctx: Any, n: int) -> int:
        return n

    @classmethod
    def of_class(cls, ctx: Any, n: int) -> int:
        return n

    @functools.lru_cache  # noqa: B019
    def cached(self, ctx: Any, n: int) -> int:
        return n

    partial = functools.partialmethod(reboot, hard=True)

    @functools.cached_property
    def lazy(self) -> int:
        return 1

    @property
    def size(self) -> int:
        return 1

    def _private(self, ctx: Any) -> None: ...

    def yields(self, ctx: Any):
        yield 1

    def says_iterator(self, ctx: Any) -> Iterator[int]: ...
    def says_generator(self, ctx: Any) -> Generator[int, None, None]: ...
    def says_alias(self, ctx: Any) -> Instances: ...
    def says_unknown(self, ctx: Any) -> only_for_checkers.Iterator[int]: ...
    def says_list(self, ctx: Any) -> list[Iterator[int]]: ...
    async def waits(self, ctx: Any) -> int: ...
    def says_async(self, ctx: Any) -> AsyncIterator[int]: ...

    async def yields_async(self, ctx: Any) -> AsyncIterator[int]:
        yield 1

    async def never_yields(self, ctx: Any) -> AsyncIterator[int]: ...


MANAGER = Interface(Manager)


@pytest.mark.parametrize(
    ("name", "args", "named", "bound"),
    [
        ("reboot", (1, "i-1"), {}, (1, {"instance_id": "i-1"})),
        ("reboot", (1,), {"hard": True, "instance_id": "i-1"}, (1, {"instance_id": "i-1", "hard": True})),
        ("reboot", (), {"instance_id": "i-1", "ctx": 1}, (1, {"instance_id": "i-1"})),
        ("named_only", (1,), {"zone": "a"}, (1, {"zone": "a"})),
        ("optional_context", (), {}, (None, {})),
        ("optional_context", (), {"n": 3}, (None, {"n": 3})),
        ("open", (1, 2), {"ctx": 3, "more": 4}, (1, {"n": 2, "ctx": 3, "more": 4})),
        ("anything", (1,), {"a": 2}, (1, {"a": 2})),
        ("anything", (), {}, (None, {})),
        ("star", (1,), {}, (1, {})),
        ("static", (1, 2), {}, (1, {"n": 2})),
        ("of_class", (1, 2), {}, (1, {"n": 2})),
        ("cached", (1, 2), {}, (1, {"n": 2})),
        ("partial", (1, "i-1"), {}, (1, {"instance_id": "i-1"})),
    ],
)
def test_arguments_get_the_names_of_the_parameters(name, args, named, bound):
    assert MANAGER.method(name).bind(args, named) == bound


@pytest.mark.parametrize(
    ("name", "args", "named", "why"),
    [
        ("reboot", (1,), {}, "missing a required argument: 'instance_id'"),
        ("reboot", (), {"instance_id": "i"}, "missing a required argument: 'ctx'"),
        ("reboot", (1, "i", True, 4), {}, "too many positional arguments"),
        ("reboot", (1, "i"), {"instance_id": "i"}, "multiple values for argument 'instance_id'"),
        ("reboot", (1, "i"), {"hrad": True}, "got an unexpected keyword argument 'hrad'"),
        ("named_only", (1, "a"), {}, "too many positional arguments"),
        ("star", (1, 2), {}, "too many positional arguments"),
        ("anything", (1, 2), {}, "too many positional arguments"),
    ],
)
def test_wrong_arguments_are_a_type_error_with_the_signature(name, args, named, why):
    with pytest.raises(TypeError, match=rf"^Manager\.{name}\(.*\).*: .*{why}"):
        MANAGER.method(name).bind(args, named)


def test_streams_are_known_by_their_body_or_annotation():
    streams = {name for name in MANAGER.names() if name not in BROKEN and MANAGER.method(name).is_stream}
    assert streams == {
        "yields", "says_iterator", "says_generator", "says_alias", "says_unknown", "says_async", "yields_async",
    }  # fmt: skip
    is_async = {name for name in MANAGER.names() if name not in BROKEN and MANAGER.method(name).is_async}
    assert is_async == {"waits", "says_async", "yields_async"}


BROKEN = {
    "positional": "'n' cannot be given by",
    "nothing": "no parameter for the context",
    "never_yields": "declare it with 'def'",
}


@pytest.mark.parametrize("name", list(BROKEN))
def test_a_method_that_cannot_be_called_over_rpc_is_refused(name):
    with pytest.raises(UsageError, match=BROKEN[name]):
        MANAGER.method(name)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("rebot", "Manager has no public method 'rebot'; did you mean reboot?"),
        ("zzz", "Manager has no public method 'zzz'; it has anything, cached, "),
        ("_private", r"no public method '_private' \(names that begin with _ are not served\)"),
        ("limit", "no public method 'limit'"),
        ("Nested", "no public method 'Nested'"),
        ("size", "no public method 'size'"),
        ("lazy", "no public method 'lazy'"),
    ],
)
def test_other_attributes_are_no_methods(name, text):
    with pytest.raises(AttributeError, match=text):
        MANAGER.method(name)


class Api(Protocol):
    def list_instances(self, ctx: Any, zone: str) -> Iterator[str]: ...


class Generic(Protocol[T]):
    def list_instances(self, ctx: Any, zone: T) -> Iterator[str]: ...


class AbstractApi(ABC):
    @abstractmethod
    def list_instances(self, ctx: Any, zone: str) -> Iterator[str]: ...


class Derived(AbstractApi):
    def further(self, ctx: Any) -> None: ...


@pytest.mark.parametrize("declared", [Api, Generic[str], AbstractApi, Derived])
def test_protocols_and_abstract_classes_declare_methods_too(declared: Callable[..., Any]):
    method = Interface.of(declared).method("list_instances")
    assert method.is_stream and method.bind((None, "a"), {}) == (None, {"zone": "a"})


def test_documentation_and_signature_are_those_of_the_class():
    method = MANAGER.method("reboot")
    assert method.doc == "Reboot an instance."
    assert str(method.signature).startswith("(ctx: 'Any', instance_id: 'str', hard: 'bool' = False)")


def test_what_is_no_class_with_methods_is_refused():
    with pytest.raises(UsageError, match="a stub is made from a class"):
        Interface.of(Manager("a"))
    with pytest.raises(UsageError, match="Nested has no public method"):
        Interface.of(Manager.Nested)
