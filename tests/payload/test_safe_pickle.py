from __future__ import annotations

import copyreg
import fractions
import gc
import io
import pickle
import sys
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rpcmq.errors import PayloadError, PayloadRefused
from rpcmq.payload.default_allow_list import DEFAULT_ALLOW_LIST
from rpcmq.payload.pickle_scan import check
from rpcmq.payload.safe_pickle import RestrictedLoader, dumps, refused_by_pickle
from tests.payload import hostile, samples
from tests.payload.samples import VALUES, same

SAMPLES = "tests.payload.samples:"
ALLOW = DEFAULT_ALLOW_LIST.allowing(
    *(SAMPLES + name for name in ("Instance", "Slotted", "Point", "Color", "Outer.Inner", "Keyed", "BadConstructor"))
)
loader = RestrictedLoader(ALLOW)

# An audit hook can't be taken out again, so there is one for all tests, which looks only inside
# `nothing_runs`.
_DANGEROUS = (
    "exec",
    "compile",
    "import",
    "open",
    "os.",
    "subprocess.",
    "socket.",
    "ctypes.",
    "marshal.",
    "shutil.",
)
_seen: list[str] | None = None


def _watch(event: str, args: tuple[Any, ...]) -> None:
    if _seen is not None and event.startswith(_DANGEROUS):
        _seen.append(f"{event} {args!r:.100}")


sys.addaudithook(_watch)


@contextmanager
def nothing_runs() -> Iterator[None]:
    """Fails if anything is executed, imported, opened or started inside."""
    global _seen
    # What earlier tests have left is not freed meanwhile, which may close something.
    gc.disable()
    seen: list[str] = []
    _seen = seen
    try:
        yield
    finally:
        _seen = None
        gc.enable()
    assert seen == []


def test_the_watch_works() -> None:
    with pytest.raises(AssertionError, match="compile"), nothing_runs():
        compile("pass", "here", "exec")


@given(VALUES)
def test_round_trip(value: Any) -> None:
    assert same(loader.loads(dumps(value)), value)


@pytest.mark.parametrize(
    "value",
    [
        samples.Instance("vm", 2),
        samples.Slotted("vm"),
        samples.Point(1, 2),
        samples.Color.RED,
        samples.Outer.Inner(),
        samples.Keyed(name="x"),
    ],
)
def test_allowed_classes(value: Any) -> None:
    loaded = loader.loads(dumps([value, value]))
    assert type(loaded[0]) is type(value)
    assert loaded[0] is loaded[1]
    assert loaded[0] == value or vars(loaded[0]) == vars(value)


def test_class_that_is_not_allowed_is_named_with_how_to_allow_it() -> None:
    data = dumps({"args": samples.Instance("vm")})
    with pytest.raises(PayloadRefused) as caught:
        RestrictedLoader().loads(data)
    assert "'tests.payload.samples:Instance'" in str(caught.value)
    assert "RPCMQ_ALLOW=tests.payload.samples:Instance" in str(caught.value)


def test_constructor_that_fails_is_a_refusal_that_says_why() -> None:
    with pytest.raises(PayloadRefused, match="LookupError: no bad here"):
        loader.loads(dumps(samples.BadConstructor.made()))


class UnprintableError(Exception):
    def __str__(self) -> str:
        raise RuntimeError


def unprintable() -> None:
    raise UnprintableError


def test_constructor_whose_error_cannot_be_printed() -> None:
    module = unprintable.__module__
    allowing = RestrictedLoader(ALLOW.allowing(f"{module}:unprintable"))
    with pytest.raises(PayloadRefused, match=r"UnprintableError: .str.. of the exception raised"):
        allowing.loads(hostile.pickled(hostile.call(module, "unprintable")))


@pytest.mark.parametrize("name", hostile.RUNS_CODE)
def test_hostile_pickle_that_runs_code(name: str) -> None:
    data = hostile.RUNS_CODE[name]
    with nothing_runs(), pytest.raises(PayloadRefused):
        loader.loads(data)


@pytest.mark.parametrize("name", hostile.ABUSES)
def test_hostile_pickle_that_abuses_what_is_allowed(name: str) -> None:
    data = hostile.ABUSES[name]
    with pytest.raises(PayloadRefused) as caught:
        loader.loads(data)
    assert len(str(caught.value)) < 1000


def test_hostile_pickles_name_the_forbidden_global() -> None:
    with pytest.raises(PayloadRefused, match=r"'os:system'.*can never be allowed"):
        loader.loads(hostile.RUNS_CODE["os.system"])
    with pytest.raises(PayloadRefused, match=r"'uuid:os.system'.*not on this process's allow-list"):
        loader.loads(hostile.RUNS_CODE["os through another module"])


def test_no_class_is_changed_by_a_pickle() -> None:
    before = {cls: dict(vars(cls)) for cls in (samples.Instance, uuid.UUID, fractions.Fraction)}
    for name, data in hostile.ABUSES.items():
        if name.startswith("BUILD"):
            with pytest.raises(PayloadRefused):
                loader.loads(data)
    assert {cls: dict(vars(cls)) for cls in before} == before


def test_a_class_is_no_value() -> None:
    held = loader.loads(dumps([samples.Instance]))[0]
    assert held is not samples.Instance
    assert repr(held) == "<stand-in for tests.payload.samples:Instance>"


def test_extension_cache_is_no_way_around_the_list() -> None:
    copyreg.add_extension("os", "system", 240)
    try:
        data = hostile.pickled(b"\x82\xf0")
        # Any other unpickler of the process that met this code has filled the cache...
        assert pickle.loads(data).__name__ == "system"
        # ...from which the C unpickler would take it without asking find_class.
        bare = type("Bare", (pickle.Unpickler,), {"find_class": None})
        assert bare(io.BytesIO(data)).load().__name__ == "system"
        with pytest.raises(PayloadRefused, match="opcode 0x82"):
            loader.loads(data)
    finally:
        copyreg.remove_extension("os", "system", 240)


def test_persistent_ids_are_refused_even_without_the_scan() -> None:
    with pytest.raises(PayloadRefused, match="persistent id"):
        loader._unpickler(io.BytesIO()).persistent_load("x")


def test_billions_of_laughs_in_lists_load_at_once() -> None:
    body = b"]\x94" + b"".join(b"](h%ch%ce\x94" % (n, n) for n in range(200))
    # Never printed, compared or walked here: it has 2^200 leaves.
    assert type(loader.loads(hostile.pickled(body))) is list


class Failing:
    def __init__(self, error: Exception) -> None:
        self.error = error

    def __reduce__(self) -> Any:
        raise self.error


def test_error_names_path_and_object() -> None:
    message = {"method": "attach", "args": {"disk": [0, 1, samples.Instance(threading.Lock())]}}  # type: ignore[arg-type]
    with pytest.raises(PayloadError) as caught:
        dumps(message)
    assert str(caught.value) == "args['disk'][2].name: cannot pickle '_thread.lock' object"
    assert isinstance(caught.value.__cause__, TypeError)


def test_error_for_a_function_mentions_dill() -> None:
    with pytest.raises(PayloadError, match=r"args\[0\]: .*dill carries functions"):
        dumps({"args": [lambda: 0]})


def test_error_of_an_object_that_fails_itself() -> None:
    with pytest.raises(PayloadError, match=r"\[0\]: KeyError from its own pickling: 'x'"):
        dumps([Failing(KeyError("x"))])
    with pytest.raises(PayloadError, match=r"the message: OSError from its own pickling: OSError"):
        dumps(Failing(OSError()))


def test_nested_too_deeply() -> None:
    value: Any = []
    for _ in range(100_000):
        value = [value]
    with pytest.raises(PayloadError, match="the message: nested too deeply for pickle"):
        dumps(value)


def test_what_dill_may_see_differently() -> None:
    assert refused_by_pickle(pickle.PicklingError())
    assert refused_by_pickle(AttributeError())
    assert not refused_by_pickle(RecursionError())
    assert not refused_by_pickle(KeyError())


# Fuzz: whatever comes, there is a value or PayloadRefused.


def load_or_refuse(data: bytes) -> None:
    try:
        loader.loads(data)
    except PayloadRefused:
        pass


SEEDS = [
    dumps(value)
    for value in (
        {"ctx": {"user": "admin", "roles": ["a", "b"]}, "msg": {"method": "m", "args": {"id": 17}}},
        [uuid.UUID(int=1), fractions.Fraction(1, 2), samples.Slotted("x"), samples.Point(1, 2), {1, 2}],
        [samples.Instance("a"), samples.Color.RED, ValueError(1), bytearray(b"x"), 1 << 100, "y" * 300],
    )
] + [data for data in (*hostile.RUNS_CODE.values(), *hostile.ABUSES.values()) if len(data) < 1000]


@pytest.mark.fuzz
@given(st.binary(max_size=200) | st.binary(max_size=200).map(hostile.pickled))
def test_any_bytes(data: bytes) -> None:
    load_or_refuse(data)


@pytest.mark.fuzz
@given(st.data())
def test_damaged_pickles(data: st.DataObject) -> None:
    damaged = bytearray(data.draw(st.sampled_from(SEEDS)))
    for _ in range(data.draw(st.integers(1, 4))):
        if damaged:
            position = data.draw(st.integers(0, len(damaged) - 1))
            damaged[position : position + data.draw(st.integers(0, 2))] = data.draw(st.binary(max_size=2))
    load_or_refuse(bytes(damaged))


@pytest.mark.fuzz
@given(st.sampled_from(SEEDS), st.integers(0, 1000))
def test_truncated_pickles(data: bytes, size: int) -> None:
    load_or_refuse(data[:size])


_NAMES = [hostile.name(*entry.split(":")) for entry in ALLOW.names]
OPCODES = st.sampled_from(
    [
        *(bytes([opcode]) for opcode in b"N\x88\x89()]}\x8f\x94\x85\x86\x87tR\x81\x92baesu\x90\x9101"),
        b"K\x01", b"J\xff\xff\xff\xff", b"\x8a\x01\x7f", b"G\x7f\xf8\x00\x00\x00\x00\x00\x00", b"C\x04abcd",
        b"h\x00", b"h\x01", b"h\x02", hostile.text("int"), hostile.text("x"), hostile.text("__class__"),
        hostile.text("args"), hostile.text("_unpickle"), hostile.name("builtins", "getattr"),
    ]
) | st.sampled_from(_NAMES)  # fmt: skip


@pytest.mark.fuzz
@given(st.lists(OPCODES, max_size=40))
def test_any_sequence_of_allowed_opcodes(opcodes: list[bytes]) -> None:
    data = hostile.pickled(*opcodes)
    try:
        check(data)
    except PayloadRefused:
        pass
    load_or_refuse(data)
