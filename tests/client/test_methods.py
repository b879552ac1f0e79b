"""The methods of an endpoint that are served."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Callable
from types import ModuleType
from typing import Any

import pytest

from rpcmq.client.methods import check_endpoint, find_method, public_methods
from rpcmq.client.service import Service
from rpcmq.errors import UsageError


def module_of(text: str) -> ModuleType:
    module = ModuleType("served")
    exec(text, module.__dict__)
    return module


def names_of(endpoint: object) -> list[str]:
    return [name for name, _ in public_methods(endpoint)]


MODULE = """
import functools, json
from os import listdir
from sys import exit
from json import loads

def greet(ctx, name): return name
def _hidden(ctx): pass
@functools.lru_cache
def cached(ctx): pass
class Greeter: pass
number = 3
"""


def test_a_module_serves_what_it_defines_and_nothing_that_it_imports():
    module = module_of(MODULE)
    assert names_of(module) == ["cached", "greet"]
    for name in ("listdir", "exit", "loads", "_hidden", "Greeter", "number", "functools", "nothing"):
        assert find_method(module, name) is None
    assert find_method(module, "greet") is module.greet


def test_all_says_what_a_module_serves():
    module = module_of(MODULE + "__all__ = ['listdir', 'greet', '_hidden', 'Greeter', 'number', 'nothing']\n")
    assert names_of(module) == ["greet", "listdir"]


class Base:
    def inherited(self, ctx: Any) -> None:
        """Of a base class."""


class Endpoint(Base):
    attribute = 5

    class Nested:
        pass

    def method(self, ctx: Any) -> None:
        pass

    @staticmethod
    def static(ctx: Any) -> None:
        pass

    def _hidden(self, ctx: Any) -> None:
        pass

    @property
    def broken(self) -> None:
        raise RuntimeError("is not to be computed")


def test_an_object_serves_its_own_and_inherited_methods():
    assert {name for name in ("inherited", "method", "static") if find_method(Endpoint(), name)} == {
        "inherited", "method", "static",
    }  # fmt: skip
    for name in ("_hidden", "__init__", "Nested", "attribute"):
        assert find_method(Endpoint(), name) is None


def as_is(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapper(*args: Any) -> Any:
        return function(*args)

    return wrapper


class AsyncMethod:
    async def method(self, ctx: Any) -> None:
        pass


class AsyncGenerator:
    async def method(self, ctx: Any) -> AsyncIterator[int]:
        yield 1


class AsyncStatic:
    @staticmethod
    async def method(ctx: Any) -> None:
        pass


class AsyncWrapped:
    @as_is
    async def method(self, ctx: Any) -> None:
        pass


@pytest.mark.parametrize("endpoint", [AsyncMethod, AsyncGenerator, AsyncStatic, AsyncWrapped])
def test_async_methods_are_refused_when_the_service_is_made(endpoint: type):
    with pytest.raises(UsageError, match=f"{endpoint.__name__}: method 'method' cannot be served: it is async"):
        Service("compute", endpoint())


def test_an_async_function_of_a_module_is_refused_if_it_would_be_served():
    with pytest.raises(UsageError, match="served: method 'later' cannot be served: it is async"):
        check_endpoint(module_of("async def later(ctx): pass\n"))
    check_endpoint(module_of("from asyncio import sleep\nasync def _later(ctx): pass\ndef now(ctx): pass\n"))
    check_endpoint(module_of("async def later(ctx): pass\ndef now(ctx): pass\n__all__ = ['now']\n"))
    check_endpoint(Endpoint())
