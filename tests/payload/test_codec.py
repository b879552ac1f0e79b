from __future__ import annotations

import json
import pickle
import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rpcmq.errors import PayloadError, PayloadRefused, RemoteError, UsageError
from rpcmq.payload import ALL, DEFAULT_ALLOW_LIST, Codec, ExceptionRegistry, Format, accept_mask
from tests.payload.samples import VALUES, Instance, InstanceError, TwoArgumentsError, kind, same

JSON, PICKLE, DILL = Format.JSON, Format.PICKLE, Format.DILL
plain = Codec()
with_dill = Codec(accepted=ALL)
prefers_json = Codec(prefer=JSON)
prefers_dill = Codec(prefer=DILL, accepted=ALL)


def function() -> Any:
    return lambda: 0


class Unlucky:
    """Cannot be pickled, for a reason that dill cannot mend."""

    def __reduce__(self) -> Any:
        raise KeyError("unlucky")


# The ladder


@pytest.mark.parametrize(
    ("codec", "accepted", "value", "expected"),
    [
        (plain, ALL, 1, PICKLE),
        (plain, accept_mask(["json", "pickle"]), 1, PICKLE),
        (plain, accept_mask(["pickle"]), 1, PICKLE),
        (plain, accept_mask(["json"]), 1, JSON),
        (plain, accept_mask(["json", "dill"]), 1, JSON),
        (plain, 0xFF, 1, PICKLE),
        (with_dill, ALL, 1, PICKLE),
        (with_dill, ALL, function(), DILL),
        (with_dill, accept_mask(["dill"]), function(), DILL),
        (prefers_json, ALL, 1, JSON),
        (prefers_json, accept_mask(["pickle"]), 1, PICKLE),
        (prefers_dill, ALL, 1, DILL),
        (prefers_dill, accept_mask(["json", "pickle"]), 1, PICKLE),
        (prefers_dill, accept_mask(["json"]), 1, JSON),
    ],
)
def test_ladder(codec: Codec, accepted: int, value: Any, expected: Format) -> None:
    format, data = codec.encode(value, accepted)
    assert format == expected
    assert type(data) is bytes
    codec.decode(format, data)


@pytest.mark.parametrize(
    ("codec", "accepted"),
    [
        (plain, ALL),  # the other side has dill on, this one has not
        (with_dill, accept_mask(["json", "pickle"])),  # and the other way round
        (prefers_json, ALL),
        (prefers_json, accept_mask(["pickle"])),
        (plain, accept_mask(["json"])),
    ],
)
def test_dill_needs_both_ends(codec: Codec, accepted: int) -> None:
    with pytest.raises(PayloadError, match=r"args\['f'\]: "):
        codec.encode({"method": "m", "args": {"f": function()}}, accepted)


def test_an_object_that_fails_itself_does_not_go_to_dill() -> None:
    with pytest.raises(PayloadError, match=r"\[0\]: KeyError from its own pickling: 'unlucky'"):
        with_dill.encode([Unlucky()])


@pytest.mark.parametrize("accepted", [0, 1, 1 << 7])
def test_no_format_in_common(accepted: int) -> None:
    with pytest.raises(PayloadError, match="no payload format in common: the other side accepts none"):
        plain.encode(1, accepted)
    with pytest.raises(PayloadError, match="the other side accepts dill"):
        plain.encode(1, DILL.bit)


@given(VALUES, st.sampled_from([plain, prefers_json, with_dill]), st.sampled_from([ALL, JSON.bit, PICKLE.bit]))
def test_round_trip(value: Any, codec: Codec, accepted: int) -> None:
    format, data = codec.encode(value, accepted)
    assert same(codec.decode(format, data), value)
    assert same(codec.decode(int(format), memoryview(data)), value)


# Decoding


def test_formats_that_are_not_accepted() -> None:
    only_json = Codec(prefer=JSON, accepted=JSON.bit)
    with pytest.raises(PayloadRefused, match=r"format pickle is not accepted here; accepted: json$"):
        only_json.decode(PICKLE, pickle.dumps(1, 5))
    with pytest.raises(PayloadRefused, match=r"format dill is not accepted.*both ends must switch it on"):
        plain.decode(*with_dill.encode(function()))
    with pytest.raises(PayloadRefused, match="payload format json with a stream is not accepted"):
        with_dill.decode(4, b"")
    for number in (0, 7, 200, -1):
        with pytest.raises(PayloadRefused, match=f"payload format {number} is not accepted"):
            with_dill.decode(number, b"")


def test_json_is_always_accepted() -> None:
    codec = Codec(accepted=PICKLE.bit)
    assert codec.accepted == JSON.bit | PICKLE.bit
    assert codec.decode(JSON, b"[1]") == [1]


def test_own_classes_need_to_be_allowed_at_the_receiver() -> None:
    payload = plain.encode({"args": Instance("vm")})
    with pytest.raises(PayloadRefused, match=r"RPCMQ_ALLOW=tests.payload.samples:Instance"):
        plain.decode(*payload)
    allowing = Codec(allow=DEFAULT_ALLOW_LIST.allowing("tests.payload.samples:Instance"))
    assert allowing.decode(*payload) == {"args": Instance("vm")}


def test_sizes() -> None:
    small = Codec(max_bytes=4096)
    for accepted in (ALL, JSON.bit):
        with pytest.raises(PayloadError, match=r"is \d+ bytes when encoded, more than max_bytes \(4096\)"):
            small.encode("x" * 4097, accepted)
    with pytest.raises(PayloadError, match="more than max_bytes"):
        Codec(prefer=JSON, max_bytes=4096).encode("x" * 4097, PICKLE.bit)
    with pytest.raises(PayloadError, match="more than max_bytes"):
        Codec(prefer=DILL, accepted=ALL, max_bytes=4096).encode("x" * 4097)
    for format in (JSON, PICKLE, DILL):
        with pytest.raises(PayloadRefused, match="payload of 4097 bytes is larger than max_bytes"):
            small.decode(format, b" " * 4097)


def test_depth_is_passed_on() -> None:
    shallow = Codec(prefer=JSON, max_depth=8)
    value: Any = 1
    for _ in range(9):
        value = [value]
    with pytest.raises(PayloadError, match="nested more than 8 levels deep"):
        shallow.encode(value)
    with pytest.raises(PayloadRefused, match="nested more than 8 levels deep"):
        shallow.decode(*prefers_json.encode(value))


@pytest.mark.fuzz
@given(st.integers(0, 5), st.binary(max_size=100))
def test_any_payload_gives_a_value_or_is_refused(format: int, data: bytes) -> None:
    for codec in (plain, prefers_json):
        try:
            codec.decode(format, data)
        except PayloadRefused:
            pass
        assert isinstance(codec.decode_exception(format, data), BaseException)


# Configuration


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"max_bytes": 4095}, "max_bytes is 4095"),
        ({"max_depth": 7}, "max_depth is 7"),
        ({"max_depth": 501}, "max_depth is 501"),
        ({"prefer": DILL}, "preferred payload format 'dill' is not among the accepted ones: json, pickle"),
        ({"prefer": PICKLE, "accepted": JSON.bit}, "preferred payload format 'pickle' is not among"),
    ],
)
def test_wrong_configuration(settings: Any, expected: str) -> None:
    with pytest.raises(UsageError, match=expected):
        Codec(**settings)


def test_codec_is_immutable() -> None:
    with pytest.raises(AttributeError):
        plain.max_bytes = 1  # type: ignore[misc]


# Exceptions

registered = Codec(exceptions=ExceptionRegistry([InstanceError, TwoArgumentsError]))


def carried(exc: BaseException, codec: Codec = registered, accepted: int = ALL) -> Any:
    try:
        raise exc
    except BaseException as error:
        return codec.decode_exception(*codec.encode_exception(error, "node-7"))


@pytest.mark.parametrize("accepted", [ALL, JSON.bit, PICKLE.bit, 0])
def test_exception_round_trip(accepted: int) -> None:
    back = carried(InstanceError(7), accepted=accepted)
    assert kind(back) is InstanceError
    assert back.instance_id == 7
    assert back.remote_host == "node-7"
    assert "raise exc" in back.remote_traceback


def test_exception_travels_as_json_and_as_nothing_else() -> None:
    for codec in (plain, with_dill, prefers_json):
        assert codec.encode_exception(ValueError())[0] == JSON
    for format in (PICKLE, DILL):
        back = with_dill.decode_exception(format, pickle.dumps({"type": "builtins:ValueError"}, 5))
        assert kind(back) is RemoteError
        assert f"it is no typed JSON (format 1), but of format {int(format)}" in str(back)


def test_exception_larger_than_a_record_is_not_decoded() -> None:
    data = json.dumps({"type": "builtins:ValueError", "args": ["x" * (2 << 20)]}).encode()
    assert "is larger than 2097152" in str(plain.decode_exception(JSON, data))


def test_an_exception_within_an_exception_is_not_built() -> None:
    inner = {"$": "exception", "v": {"type": "builtins:ValueError", "args": []}}
    back = plain.decode_exception(JSON, json.dumps({"type": "builtins:ValueError", "args": [inner]}).encode())
    assert kind(back) is RemoteError
    assert "not registered here" in str(back)


def test_exception_with_an_argument_that_cannot_be_encoded() -> None:
    back = carried(ValueError("bad", threading.Lock(), ValueError("inner"), InstanceError(1)))
    assert kind(back) is ValueError
    assert back.args[0] == "bad"
    assert "lock object" in back.args[1]
    assert back.args[2:] == ("ValueError('inner')", "InstanceError('instance 1 is gone')")


def test_exception_with_deep_or_large_arguments() -> None:
    deep: Any = 1
    for _ in range(50):
        deep = [deep]
    for codec in (registered, Codec(max_depth=8)):
        back = carried(ValueError(deep, {"a": [{"b": (1,)}]}, "x" * 50_000), codec)
        assert back.args[0].startswith("[[[[")
        assert back.args[1] == {"a": [{"b": (1,)}]} or isinstance(back.args[1], str)
        assert back.args[2].startswith("'xxx")
        assert len(back.args[2]) == 1000


def test_exception_of_a_class_that_is_not_registered() -> None:
    back = carried(InstanceError(7), plain)
    assert kind(back) is RemoteError
    assert str(back) == "tests.payload.samples.InstanceError: instance 7 is gone (on node-7)"


def test_exception_that_can_neither_be_pickled_nor_printed() -> None:
    class WorstError(Exception):
        def __str__(self) -> str:
            raise RuntimeError

        def __reduce__(self) -> Any:
            raise RuntimeError

        __repr__ = __str__

    back = carried(WorstError(threading.Lock()))
    assert kind(back) is RemoteError
    assert "WorstError" in back.exc_type


def test_exception_larger_than_a_payload_is_cut() -> None:
    small = Codec(max_bytes=4096)
    format, data = small.encode_exception(ValueError("x" * 100_000), "node-7")
    assert len(data) <= 4096
    back: Any = small.decode_exception(format, data)
    assert kind(back) is ValueError
    assert back.remote_host == "node-7"


def test_exception_that_cannot_even_be_described() -> None:
    class NoDictError(Exception):
        @property
        def __dict__(self) -> Any:  # type: ignore[override]
            raise RuntimeError

    back = carried(NoDictError("x"))
    assert kind(back) is RemoteError
    assert "NoDictError" in back.exc_type
    assert "cannot be described: RuntimeError" in back.value


def test_exception_with_text_that_is_not_unicode() -> None:
    assert str(carried(ValueError("\ud800"))) == "\ud800"


@pytest.mark.parametrize(
    ("format", "data"),
    [(JSON, b"torn"), (JSON, b"[]"), (PICKLE, b""), (DILL, b""), (99, b""), (JSON, b'{"type":1}')],
)
def test_exception_that_cannot_be_decoded_is_still_an_exception(format: int, data: bytes) -> None:
    back = plain.decode_exception(format, data)
    assert kind(back) is RemoteError
    assert "its exception cannot be decoded" in str(back)


class Expired(Exception):
    """Raised by the handler of an alarm, wherever the program is."""


class Interrupted:
    """A signal comes while this is pickled for the first time."""

    came = False

    def __reduce__(self) -> Any:
        if not self.came:
            self.came = True
            raise Expired
        return (str, ("i-1",))


@pytest.mark.parametrize("codec", [plain, with_dill, prefers_dill])
def test_an_exception_that_is_not_of_the_value_is_raised_as_itself(codec):
    with pytest.raises(Expired):
        codec.encode({"method": "reboot", "args": {"id": Interrupted()}})
