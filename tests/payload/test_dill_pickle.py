from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from gevent import subprocess

from rpcmq.errors import PayloadError, PayloadRefused
from rpcmq.payload import dill_pickle

ROOT = Path(__file__).parents[2]
FACTOR = 3


def run(code: str, data: bytes = b"") -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, input=data, capture_output=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode().strip()


def round_trip(value: Any) -> Any:
    return dill_pickle.loads(dill_pickle.dumps(value))


def test_lambda() -> None:
    assert round_trip({"f": lambda x: x + 1})["f"](1) == 2


def test_closure() -> None:
    step = 5

    def add(x: int) -> int:
        return x + step

    assert round_trip(add)(1) == 6


def test_class_defined_in_a_function() -> None:
    class Local:
        def __init__(self, x: int) -> None:
            self.x = x

        def twice(self) -> int:
            return 2 * self.x

    loaded = round_trip([Local(4)])[0]
    assert type(loaded).__name__ == "Local"
    assert loaded.twice() == 8


def test_another_process_needs_no_module_of_ours() -> None:
    data = dill_pickle.dumps(lambda x: x * FACTOR)
    code = (
        "import sys\n"
        "from rpcmq.payload import dill_pickle\n"
        "sys.path[:] = [p for p in sys.path if p]\n"
        "print(dill_pickle.loads(sys.stdin.buffer.read())(14))"
    )
    assert run(code, data) == "42"


def test_what_dill_refuses_is_named_with_its_path() -> None:
    def generator() -> Any:
        yield 1

    with pytest.raises(PayloadError, match=r"args\['a'\]\[1\]: .*generator"):
        dill_pickle.dumps({"args": {"a": [lambda: 0, generator()]}})


@pytest.mark.parametrize("data", [b"", b"garbage", b"\x80\x05N", b"\x80\x05cno_such_module\nx\n."])
def test_garbage_is_refused(data: bytes) -> None:
    with pytest.raises(PayloadRefused, match="dill cannot load the payload"):
        dill_pickle.loads(data)


def test_without_dill(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "dill", None)
    with pytest.raises(PayloadError, match="dill cannot be imported"):
        dill_pickle.dumps(1)
    with pytest.raises(PayloadRefused, match="dill cannot be imported"):
        dill_pickle.loads(b"")


def test_dill_is_imported_only_when_it_is_used() -> None:
    code = (
        "import sys, threading\n"
        "from rpcmq.payload import ALL, Codec\n"
        "codec = Codec(accepted=ALL)\n"
        "codec.decode(*codec.encode({'a': 1}))\n"
        "assert 'dill' not in sys.modules\n"
        "codec.decode(*codec.encode(lambda: 0))\n"
        "assert 'dill' in sys.modules\n"
        "print('lazy')"
    )
    assert run(code) == "lazy"


def test_locks_are_dills_own_affair() -> None:
    # dill carries a lock as a new one; pickle refuses it.
    assert type(round_trip(threading.Lock())) is type(threading.Lock())
