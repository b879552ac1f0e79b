"""``eventlet.corolocal.local`` and ``threading.local`` under the shim: attributes of a greenlet's own."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gevent
import pytest
from gevent.event import Event
from greenlet import greenlet

from compat.nova import greenlet_local
from compat.nova.greenlet_local import local
from tests.compat.test_finder import write
from tests.compat.test_run import output


class Value:
    """A class whose instances can be weakly referenced."""


class WeakLocal(local):
    """As the trees have it: weak references are stored, and each attribute that is read is called."""

    def __getattribute__(self, attr: str) -> Any:
        rval = local.__getattribute__(self, attr)
        if rval:
            rval = rval()
        return rval

    def __setattr__(self, attr: str, value: Any) -> None:
        local.__setattr__(self, attr, weakref.ref(value))


def elsewhere(function: Callable[[], Any]) -> Any:
    """Run ``function`` in a greenlet of its own; return its result or raise its exception."""
    return gevent.spawn(function).get(timeout=20)


def test_each_greenlet_has_its_own_attributes() -> None:
    data = local()
    data.name = "main"
    assert elsewhere(lambda: hasattr(data, "name")) is False
    assert elsewhere(lambda: setattr(data, "name", "other")) is None
    assert data.name == "main"
    assert data.__dict__ == vars(data) == {"name": "main"}
    del data.name
    with pytest.raises(AttributeError, match="'local' object has no attribute 'name'"):
        data.name  # noqa: B018
    with pytest.raises(AttributeError):
        del data.name


def test_a_subclass_that_calls_what_it_reads_works_in_every_greenlet() -> None:
    store = WeakLocal()

    def handler() -> bool:
        with pytest.raises(AttributeError):
            store.context  # noqa: B018
        context = Value()
        store.context = context
        gevent.sleep(0)
        return store.context is context

    assert all(each.get(timeout=20) for each in [gevent.spawn(handler) for _ in range(20)])


def test_what_nobody_else_holds_is_gone_from_a_weak_one() -> None:
    store = WeakLocal()

    def handler() -> Any:
        store.context = Value()
        gc.collect()
        return store.context

    assert elsewhere(handler) is None


def test_init_runs_again_for_each_greenlet_with_the_same_arguments() -> None:
    runs = []

    class Counted(local):
        shared = "of the class"

        def __init__(self, first: int, *, second: int) -> None:
            runs.append((first, second))
            self.sum = first + second

    data = Counted(1, second=2)
    data.sum += 10
    assert elsewhere(lambda: (data.sum, data.sum, data.shared)) == (3, 3, "of the class")
    assert (data.sum, runs) == (13, [(1, 2), (1, 2)])


def test_an_init_that_fails_is_tried_again() -> None:
    class Failing(local):
        fails = False

        def __init__(self) -> None:
            if Failing.fails:
                raise KeyError("not now")
            self.ready = True

    data = Failing()

    def handler() -> bool:
        Failing.fails = True
        with pytest.raises(KeyError):
            data.ready  # noqa: B018
        Failing.fails = False
        return data.ready

    assert elsewhere(handler) is True


def test_arguments_that_nothing_takes_are_refused() -> None:
    with pytest.raises(TypeError, match="arguments are not supported"):
        local(1)


def test_properties_and_slots_are_the_class_s() -> None:
    class Data(local):
        __slots__ = ("shared",)

        @property
        def doubled(self) -> int:
            return int(self.number * 2)

        @doubled.setter
        def doubled(self, value: int) -> None:
            self.number = value // 2

    data: Any = Data()
    data.doubled = 6
    data.shared = "all"
    assert (data.number, data.doubled) == (3, 6)
    assert elsewhere(lambda: (hasattr(data, "number"), data.shared)) == (False, "all")
    with pytest.raises(AttributeError, match="read-only"):
        data.__dict__ = {}


def test_the_values_of_a_greenlet_end_with_it_though_it_is_held() -> None:
    data = local()
    seen: list[weakref.ref[Value]] = []

    def handler() -> None:
        data.value = Value()
        seen.append(weakref.ref(data.value))

    held = [gevent.spawn(handler) for _ in range(10)]
    gevent.joinall(held, timeout=10, raise_error=True)
    gevent.sleep(0)
    assert [each() for each in seen] == [None] * 10


def test_the_values_of_a_plain_greenlet_end_with_the_object() -> None:
    data = local()
    seen: list[weakref.ref[Value]] = []

    def run() -> None:
        data.value = Value()
        seen.append(weakref.ref(data.value))

    plain = greenlet(run)
    plain.switch()
    assert plain.dead
    del plain
    gc.collect()
    assert seen[0]() is None


def test_a_local_that_is_dropped_takes_its_values_along() -> None:
    seen: list[weakref.ref[Any]] = []
    filled, go = Event(), Event()

    def handler() -> None:
        data = local()
        data.value = Value()
        seen.extend([weakref.ref(data), weakref.ref(data.value)])
        filled.set()
        del data
        go.wait(20)

    running = gevent.spawn(handler)
    filled.wait(20)
    gc.collect()
    assert [each() for each in seen] == [None, None] and not running.dead
    go.set()
    running.join(20)


def test_a_greenlet_that_outlives_many_locals_keeps_nothing_of_them() -> None:
    def handler() -> int:
        for _ in range(1000):
            local().value = Value()
        gc.collect()
        return len(greenlet_local._in_use[gevent.getcurrent()])

    assert elsewhere(handler) == 0


def test_attributes_of_the_class_are_everybody_s() -> None:
    """In Grizzly, ``strong_store`` is the class itself."""

    strong_store: Any = local
    strong_store.locks_held = ["a"]
    try:
        assert elsewhere(lambda: strong_store.locks_held + local().locks_held) == ["a", "a"]
    finally:
        del strong_store.locks_held
    assert not hasattr(local(), "locks_held")


# --- in programs ----------------------------------------------------------------------------------

TREES_OWN = """
import threading
import weakref
from eventlet import corolocal

class WeakLocal({base}):
    def __getattribute__(self, attr):
        rval = {base}.__getattribute__(self, attr)
        if rval:
            rval = rval()
        return rval

    def __setattr__(self, attr, value):
        value = weakref.ref(value)
        return {base}.__setattr__(self, attr, value)

store = WeakLocal()
weak_store = WeakLocal()
strong_store = {strong}
"""

PROGRAM = """
import eventlet
eventlet.monkey_patch()
import logging, threading, weakref
from eventlet import corolocal
from nova import context, flags, rpc, test
from nova.openstack.common import local

conf = flags.FLAGS
conf.fake_rabbit = True
ended = []

class Value(object):
    pass

class Manager(object):
    RPC_API_VERSION = "1.0"

    def look(self, context, name, inner=0):
        found = [local.store.context.to_dict()["request_id"] == context.to_dict()["request_id"]]
        found.append(hasattr(local.strong_store, "kept"))
        local.strong_store.kept = Value()
        ended.append(weakref.ref(local.strong_store.kept))
        eventlet.sleep(0.01)
        if inner:
            # In Essex, the latest context that was made is the greenlet's.
            ctxt = type(context).from_dict(dict(context.to_dict(), request_id=name + ".inner"))
            found += rpc.call(ctxt, "topic", {"method": "look", "args": {"name": name, "inner": inner - 1}})
        found.append(local.store.context.to_dict()["request_id"].startswith(name + "."))
        return found

manager = Manager()
conn = rpc.create_connection(new=True)
if %(era)r != "essex":
    from nova.rpc import dispatcher
    manager = dispatcher.RpcDispatcher([manager])
conn.create_consumer("topic", manager)
conn.consume_in_thread()
pool = eventlet.GreenPool()

def call(number):
    ctxt = context.RequestContext("user", "project", request_id="n%%d." %% number)
    return rpc.call(ctxt, "topic", {"method": "look", "args": {"name": "n%%d" %% number, "inner": 2}})

found = list(pool.imap(call, range(20)))
conn.close()
rpc.cleanup()
eventlet.sleep(0.05)
print(all(each == [True, False, True, False, True, False, True, True, True] for each in found) or found)
print(len(ended), len([each for each in ended if each() is not None]))
print(threading.local is corolocal.local, isinstance(local.strong_store, threading.local))
"""


@pytest.fixture
def program(tmp_path: Path) -> Callable[..., str]:
    def run(era: str, base: str, strong: str) -> str:
        tree = write(
            tmp_path / "tree",
            nova__="",
            nova__openstack__="",
            nova__openstack__common__="",
            nova__openstack__common__local=TREES_OWN.format(base=base, strong=strong),
        )
        return output("--tree", str(tree), "--era", era, "--", "-c", PROGRAM % {"era": era}, cwd=tmp_path)

    return run


@pytest.mark.integration
@pytest.mark.parametrize("base", ["corolocal.local", "threading.local"])
@pytest.mark.parametrize("era", ["essex", "folsom", "grizzly", "havana"])
def test_handlers_of_a_tree_whose_weak_local_hides_the_references(
    program: Callable[..., str], era: str, base: str
) -> None:
    assert program(era, base, f"{base}()") == "True\n60 0\nTrue True\n"
