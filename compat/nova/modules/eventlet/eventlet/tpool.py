"""Functions that would block the hub, in native threads."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from functools import wraps
from typing import Any

from gevent.hub import get_hub
from gevent.monkey import get_original
from gevent.threadpool import ThreadPool

__all__ = ["Proxy", "execute", "killall", "set_num_threads"]

#: Threads, once there are any.
_size = 20
_pool: ThreadPool | None = None
#: Our threads, by their native number.
_threads: set[int] = set()
_get_ident: Callable[[], int] = get_original("_thread", "get_ident")


def execute(meth: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call ``meth`` in a native thread while other green threads go on; give or raise what it does.

    In such a thread already, it is called right there.
    """
    global _pool
    if _get_ident() in _threads:
        return meth(*args, **kwargs)
    if _pool is None or _pool.hub is not get_hub():
        _pool = ThreadPool(_size)
    value, exc_info = _pool.apply(_outcome, (meth, args, kwargs))
    if exc_info is not None:
        try:
            raise exc_info[1].with_traceback(exc_info[2])
        finally:
            del exc_info
    return value


def _outcome(meth: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any]:
    """Call it in a thread; an exception is a result too, as gevent would also print it."""
    ident = _get_ident()
    _threads.add(ident)
    try:
        return meth(*args, **kwargs), None
    except BaseException:
        return None, sys.exc_info()
    finally:
        # The number may be given to a thread of someone else, once this one has ended.
        _threads.discard(ident)


def killall() -> None:
    """End the threads; the next ``execute`` starts new ones."""
    global _pool
    pool, _pool = _pool, None
    if pool is not None:
        pool.kill()


def set_num_threads(nthreads: int) -> None:
    """Use that many threads, from now on."""
    global _size
    _size = nthreads
    if _pool is not None:
        _pool.maxsize = nthreads


class Proxy:
    """An object whose methods run in native threads.

    What an attribute or a method gives is wrapped likewise if it is an instance of a class in ``autowrap``,
    or comes from a name in ``autowrap_names``.
    """

    def __init__(
        self, obj: Any, autowrap: Iterable[type] | None = (), autowrap_names: Iterable[str] | None = ()
    ) -> None:
        self._obj = obj
        self._autowrap = tuple(autowrap or ())
        self._names = tuple(autowrap_names or ())

    def _call(self, name: str, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        result = execute(function, *args, **kwargs)
        if isinstance(result, self._autowrap) or name in self._names:
            return Proxy(result, self._autowrap, self._names)
        return result

    def __getattr__(self, name: str) -> Any:
        # Copying and unpickling ask before there is an object.
        if name.startswith("__") or "_obj" not in self.__dict__:
            raise AttributeError(name)
        value = getattr(self._obj, name)
        if not callable(value):
            wrap = isinstance(value, self._autowrap) or name in self._names
            return Proxy(value, self._autowrap, self._names) if wrap else value

        @wraps(value, updated=())
        def call(*args: Any, **kwargs: Any) -> Any:
            return self._call(name, value, args, kwargs)

        return call

    def __setattr__(self, name: str, value: Any) -> None:
        if name in ("_obj", "_autowrap", "_names"):
            super().__setattr__(name, value)
        else:
            setattr(self._obj, name, value)

    def __delattr__(self, name: str) -> None:
        delattr(self._obj, name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:  # noqa: D102
        return self._call("__call__", self._obj, args, kwargs)

    def __enter__(self) -> Any:
        return self._call("__enter__", self._obj.__enter__, (), {})

    def __exit__(self, *args: Any) -> Any:
        return self._call("__exit__", self._obj.__exit__, args, {})

    def __getitem__(self, key: Any) -> Any:
        return self._call("__getitem__", self._obj.__getitem__, (key,), {})

    def __setitem__(self, key: Any, value: Any) -> None:
        self._call("__setitem__", self._obj.__setitem__, (key, value), {})

    def __delitem__(self, key: Any) -> None:
        self._call("__delitem__", self._obj.__delitem__, (key,), {})

    def __contains__(self, key: Any) -> bool:
        return key in self._obj

    def __len__(self) -> int:
        return len(self._obj)

    def __iter__(self) -> Iterator[Any]:
        # An iterator (a cursor, a file) may block for each item.
        inner = self._call("__iter__", iter, (self._obj,), {})
        if isinstance(inner, Proxy):
            inner = inner._obj
        end = object()
        return iter(lambda: self._call("__next__", next, (inner, end), {}), end)

    def __next__(self) -> Any:
        end = object()
        item = self._call("__next__", next, (self._obj, end), {})
        if item is end:
            raise StopIteration
        return item

    #: Its name in Python 2.
    next = __next__

    def __eq__(self, other: object) -> bool:
        return bool(self._obj == (other._obj if isinstance(other, Proxy) else other))

    def __hash__(self) -> int:
        return hash(self._obj)

    def __bool__(self) -> bool:
        return bool(self._obj)

    def __repr__(self) -> str:
        return repr(self._obj)

    def __str__(self) -> str:
        return str(self._obj)

    def __copy__(self) -> Proxy:
        return Proxy(self._obj, self._autowrap, self._names)
