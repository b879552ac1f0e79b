"""Locks by name, among green threads and, if asked for, among the processes of a host."""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
import tempfile
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import gevent
from gevent.lock import BoundedSemaphore

from nova.openstack.common import local

_semaphores: weakref.WeakValueDictionary[str, BoundedSemaphore] = weakref.WeakValueDictionary()


class InterProcessLock:
    """A lock of a file; waiting for it lets other green threads go on."""

    def __init__(self, name: str) -> None:
        self.fname = name
        self._file: Any = None

    def __enter__(self) -> InterProcessLock:
        self._file = open(self.fname, "w")
        while True:
            try:
                fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return self
            except (PermissionError, BlockingIOError):
                gevent.sleep(0.01)

    def __exit__(self, *exc: object) -> None:
        fcntl.lockf(self._file, fcntl.LOCK_UN)
        self._file.close()


@contextlib.contextmanager
def lock(name: str, lock_file_prefix: str = "", external: bool = False, lock_path: str | None = None) -> Iterator[Any]:
    """Hold the lock ``name``; ``local.strong_store.locks_held`` tells so meanwhile.

    Args:
        external: among processes too, by a file in ``lock_path``.
    """
    semaphore = _semaphores.setdefault(name, BoundedSemaphore())
    with semaphore:
        held = local.strong_store.__dict__.setdefault("locks_held", [])
        held.append(name)
        try:
            if external and lock_path != "":
                folder = lock_path or tempfile.gettempdir()
                os.makedirs(folder, exist_ok=True)
                with InterProcessLock(os.path.join(folder, f"{lock_file_prefix}{name.replace('/', '_')}")) as both:
                    yield both
            else:
                yield semaphore
        finally:
            held.remove(name)


def synchronized(
    name: str, lock_file_prefix: str = "", external: bool = False, lock_path: str | None = None
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator: whoever calls it holds the lock ``name``."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def held(*args: Any, **kwargs: Any) -> Any:
            with lock(name, lock_file_prefix, external, lock_path):
                return function(*args, **kwargs)

        return held

    return decorate


def synchronized_with_prefix(lock_file_prefix: str) -> Callable[..., Any]:
    """:func:`synchronized` with that prefix."""
    return functools.partial(synchronized, lock_file_prefix=lock_file_prefix)
