"""A router, and legacy programs on it; those of a module stay until it is done."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from rpcmq.testing.processes import RouterProcess
from tests.compat.across.interpreter import Interpreter

_numbers = itertools.count(1)


@pytest.fixture(scope="package")
def router() -> Iterator[str]:
    """URL of a router of its own process, for all of these tests."""
    with RouterProcess(router_recovery_seconds=0) as process:
        yield process.url


@pytest.fixture(scope="module")
def program(router: str) -> Iterator[Callable[..., Interpreter]]:
    """Starts legacy programs; they run until the module is done."""
    with ExitStack() as stack:
        yield lambda era=None, first="": stack.enter_context(Interpreter(router, era, first))


@pytest.fixture
def topic() -> str:
    """A topic that no other test uses."""
    return f"topic{next(_numbers)}"
