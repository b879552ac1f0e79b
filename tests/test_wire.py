"""The wire format: what is made can be read, and what cannot be read is refused with a reason."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rpcmq import wire
from rpcmq.errors import ProtocolError, UsageError
from rpcmq.wire import (
    DETACH_BYTES,
    HEADER,
    MAX_NAME_BYTES,
    NO_TTL,
    VERSION,
    Address,
    Detached,
    Flag,
    Header,
    Kind,
    address_of,
    body_of,
    control,
    error_name,
    key_of,
    pack,
    parse,
    payload_of,
    size_of,
    split,
    split_error_name,
    with_flag,
    with_header,
    with_payload,
)

names = st.text(st.characters(categories=["L", "N", "P", "S"]), max_size=60).filter(
    lambda name: name.isprintable() and len(name.encode()) <= MAX_NAME_BYTES
)
addresses = st.builds(Address, names.filter(bool), names, names)


def reason(error: pytest.ExceptionInfo[ProtocolError]) -> str:
    return error.value.reason


def result_of(function: Callable[[], object]) -> object:
    """The result of ``function``, or the reason of its ProtocolError; any other exception is a failure."""
    try:
        return function()
    except ProtocolError as error:
        return error.reason


# --- the numbers are for ever ----------------------------------------------------------------


def test_the_header_is_what_the_protocol_says():
    assert HEADER.size == 40
    message = pack(
        Kind.REQUEST,
        b"payload",
        flags=Flag.STREAM,
        format=2,
        ttl=30_000,
        key=bytes.fromhex("00000001 0000000000000203 0000000000000004"),
        address=Address("compute", "node-7").encode(),
        method=b"reboot",
        trace=b"t",
        attempt=5,
        consumer=6,
        hops=7,
    )
    assert message.hex(" ") == (
        "00 00 00 46 "  # length: 70
        "01 10 00 40 07 05 02 06 "  # version, kind, flags, hops, attempt, format, consumer
        "00 00 75 30 "  # ttl
        "00 00 00 01 00 00 00 00 00 00 02 03 00 00 00 00 00 00 00 04 "  # router, handle, sequence
        "00 10 06 01 "  # lengths of address, method, trace
        "00 07 06 63 6f 6d 70 75 74 65 6e 6f 64 65 2d 37 "  # address
        "72 65 62 6f 6f 74 "  # method
        "74 "  # trace
        "70 61 79 6c 6f 61 64"  # payload
    )


def test_kinds_and_flags_keep_their_numbers():
    assert {kind.name: kind.value for kind in Kind} == {
        "HELLO": 0x01, "WELCOME": 0x02, "REFUSED": 0x03, "HEARTBEAT": 0x04, "ACK": 0x05, "GOODBYE": 0x06,
        "DRAIN": 0x07, "RELAY": 0x08, "READ": 0x09,
        "REQUEST": 0x10, "CAST": 0x11, "REPLY": 0x12, "FAULT": 0x13, "ERROR": 0x14, "ITEM": 0x15,
        "END": 0x16, "GRANT": 0x17, "ALIVE": 0x18, "CANCEL": 0x19, "SETTLE": 0x1A, "CONFIRM": 0x1B,
        "DELIVERED": 0x1C, "CLOCK_STAMP": 0x1D, "DROPPED": 0x1E,
        "REGISTER": 0x20, "REGISTERED": 0x21, "UNREGISTER": 0x22, "DECLARE": 0x23,
        "OCCUPIED": 0x24, "GIVE_BACK": 0x25, "HEDGE": 0x26, "REQUEST_ITEM": 0x2A, "REQUEST_END": 0x2B,
        "REQUEST_GRANT": 0x2C, "REQUEST_STOP": 0x2D, "SUBSCRIBE": 0x30, "SUBSCRIBED": 0x31,
        "UNSUBSCRIBE": 0x32, "PUBLISH": 0x33, "EVENT_CREDIT": 0x34, "LOST": 0x35, "INTRODUCE": 0x40,
        "INTRODUCTION": 0x41, "QUERY": 0x50, "ANSWER": 0x51, "ROUTERS": 0x60, "MEMBERS": 0x61, "INTEREST": 0x62,
        "INTEREST_ACK": 0x63, "BUSY": 0x64, "WANT": 0x65, "ROOM": 0x66, "RETURNED": 0x67, "WHERE": 0x68,
        "HERE": 0x69, "TAKEN": 0x6A, "KNOWS": 0x6B, "PIECE": 0x6C, "FENCES": 0x6D,
        "NODE_NEWS": 0x6E, "RUNNER": 0x6F,
    }  # fmt: skip
    assert {name: value for name, value in vars(Flag).items() if name.isupper()} == {
        "DETACHED": 1, "FANOUT": 2, "MANDATORY": 4, "IDEMPOTENT": 8, "CONFIRM": 16, "RESENT": 32, "STREAM": 64,
        "ANSWER_WANTED": 128, "ACCEPTS_DILL": 256, "SEALED": 512, "NESTED": 1024, "NOT_AGAIN": 2048,
        "TRIED": 0xF000, "HEDGED": 0x1000, "BYTE_CREDIT": 0x2000,
    }  # fmt: skip


def test_everything_public_is_there():
    assert all(hasattr(wire, name) for name in wire.__all__)


# --- messages --------------------------------------------------------------------------------

byte = st.integers(0, 255)
fields = st.fixed_dictionaries(
    {},
    optional={
        "flags": st.integers(0, 0x7FFF).map(lambda n: n << 1),
        "format": byte,
        "ttl": st.integers(0, NO_TTL),
        "key": st.binary(min_size=20, max_size=20),
        "address": st.binary(max_size=800),
        "method": st.binary(max_size=255),
        "trace": st.binary(max_size=255),
        "attempt": byte,
        "consumer": byte,
        "hops": byte,
    },
)


@given(byte, st.binary(max_size=200), fields)
def test_what_is_made_can_be_read(kind: int, payload: bytes, values: dict[str, object]):
    message = pack(kind, payload, **values)  # type: ignore[arg-type]
    (read,) = split(message)
    header = parse(read)
    assert (header.length, header.version, header.kind) == (len(message), VERSION, kind)
    for name in ("flags", "format", "attempt", "consumer", "hops"):
        assert getattr(header, name) == values.get(name, 0)
    assert header.ttl == values.get("ttl", NO_TTL)
    assert key_of(read) == values.get("key", bytes(20))
    assert address_of(read) == values.get("address", b"")
    end = 40 + header.address_length + header.method_length
    assert read[40 + header.address_length : end] == values.get("method", b"")
    assert read[end : end + header.trace_length] == values.get("trace", b"")
    assert payload_of(read) == payload and size_of(read) == len(message)


@given(st.binary(min_size=20, max_size=20))
def test_a_key_stands_for_router_handle_and_sequence(key: bytes):
    message = pack(Kind.REPLY, b"x", key=key, method=b"m")
    header = parse(message)
    assert key_of(message) == key
    names = (header.router, 4), (header.handle, 8), (header.sequence, 8)
    assert b"".join(number.to_bytes(size) for number, size in names) == key
    assert payload_of(message) == b"x"


def test_a_message_about_the_link_has_a_sequence_alone():
    assert parse(pack(Kind.ACK, sequence=7))[9:12] == (0, 0, 7)


@given(st.lists(st.tuples(byte, st.integers(0, 3), st.binary(max_size=50)), min_size=1, max_size=20))
def test_batches_are_split_as_they_were_joined(specs: list[tuple[int, int, bytes]]):
    """Small payloads in line, large ones in frames of their own, in any mixture."""
    payloads = [small + b"x" * (DETACH_BYTES if what == 0 else 0) for _, what, small in specs]
    messages = [pack(kind, payload) for (kind, _, _), payload in zip(specs, payloads, strict=True)]
    detached = [p for p in payloads if len(p) >= DETACH_BYTES]
    read = split(b"".join(messages), detached)
    assert [bytes(payload_of(message)) for message in read] == payloads
    assert [message[5] for message in read] == [kind for kind, _, _ in specs]
    assert [size_of(message) for message in read] == [40 + len(p) for p in payloads]


def test_a_payload_is_detached_from_a_size_on():
    in_line, detached = pack(Kind.CAST, b"x" * (DETACH_BYTES - 1)), pack(Kind.CAST, b"x" * DETACH_BYTES)
    assert not isinstance(in_line, Detached) and not parse(in_line).flags & Flag.DETACHED
    assert isinstance(detached, Detached) and parse(detached).flags == Flag.DETACHED
    assert len(detached) == 40 and size_of(detached) == 40 + DETACH_BYTES
    assert payload_of(detached) == b"x" * DETACH_BYTES


def test_a_detached_payload_is_not_copied():
    payload = memoryview(bytes(DETACH_BYTES))
    message = pack(Kind.CAST, payload)
    assert payload_of(message) is payload
    assert payload_of(split(message, [payload])[0]) is payload


def test_a_detached_payload_may_be_small_or_empty():
    """The sender alone decides which payloads are detached."""
    head = pack(Kind.CAST, flags=Flag.DETACHED, method=b"m")
    (read,) = split(head, [b""])
    assert payload_of(read) == b"" and size_of(read) == 41


@pytest.mark.parametrize(
    ("batch", "payloads", "expected"),
    [
        (b"", [], "truncated"),
        (b"", [b"x"], "truncated"),
        (b"x" * 39, [], "truncated"),
        (HEADER.pack(41, *[VERSION] + [0] * 13), [], "length"),
        (HEADER.pack(39, *[VERSION] + [0] * 13), [], "length"),
        (HEADER.pack(40, *[VERSION + 1] + [0] * 13), [], "version"),
        (pack(Kind.CAST) + b"x" * 39, [], "truncated"),
        (pack(Kind.CAST), [b"x"], "detached"),
        (pack(Kind.CAST, flags=Flag.DETACHED), [], "detached"),
        (pack(Kind.CAST, flags=Flag.DETACHED) * 2, [b"x"], "detached"),
    ],
)
def test_a_batch_that_cannot_be_read_is_refused_with_a_reason(batch: bytes, payloads: list[bytes], expected: str):
    with pytest.raises(ProtocolError) as error:
        split(batch, payloads)
    assert reason(error) == expected


@pytest.mark.parametrize(("address", "method", "trace"), [(1, 0, 0), (0, 1, 0), (0, 0, 1), (65535, 255, 255)])
def test_variable_parts_longer_than_the_message_are_refused(address: int, method: int, trace: int):
    with pytest.raises(ProtocolError) as error:
        parse(HEADER.pack(40, VERSION, *[0] * 10, address, method, trace))
    assert reason(error) == "length"


# --- changed copies --------------------------------------------------------------------------


@pytest.mark.parametrize("size", [5, DETACH_BYTES])
def test_with_flag_changes_the_flag_only(size: int):
    message = pack(Kind.CAST, b"x" * size, flags=Flag.CONFIRM, sequence=7, address=b"\0\1\0a", method=b"m")
    changed = with_flag(message, Flag.RESENT)
    assert parse(changed).flags == parse(message).flags | Flag.RESENT
    assert parse(changed)._replace(flags=0) == parse(message)._replace(flags=0)
    assert payload_of(changed) == payload_of(message) and address_of(changed) == address_of(message)
    assert with_flag(changed, Flag.ACCEPTS_DILL)[40:] == message[40:]


@pytest.mark.parametrize("size", [5, DETACH_BYTES])
def test_remade_keeps_the_payload(size: int):
    message = pack(Kind.CAST, b"x" * size, sequence=7)
    made = with_header(message, message[:12] + bytes(4) + message[16:])
    assert parse(made).ttl == 0 and payload_of(made) == b"x" * size


@pytest.mark.parametrize("old", [5, DETACH_BYTES])
@pytest.mark.parametrize("new", [0, 7, DETACH_BYTES])
def test_with_payload_changes_payload_and_format_only(old: int, new: int):
    message = pack(
        Kind.CAST, b"x" * old, flags=Flag.CONFIRM, format=2, ttl=9, key=bytes(range(20)), address=b"\0\1\0a",
        method=b"mm", trace=b"ttt",
    )  # fmt: skip
    changed = with_payload(message, 1, b"y" * new)
    assert payload_of(changed) == b"y" * new
    before, after = parse(message), parse(changed)
    assert after.format == 1 and after.flags & ~Flag.DETACHED == Flag.CONFIRM
    same = (*Header._fields[8:], "kind", "version")
    assert [getattr(after, name) for name in same] == [getattr(before, name) for name in same]
    assert changed[40:49] == message[40:49] and key_of(changed) == key_of(message)
    assert split(changed, [payload_of(changed)] if isinstance(changed, Detached) else [])


# --- addresses -------------------------------------------------------------------------------


@given(addresses)
def test_an_address_survives_the_wire(address: Address):
    assert Address.decode(address.encode()) == address


@given(st.binary(max_size=60))
def test_any_block_is_an_address_or_refused(block: bytes):
    address = result_of(lambda: Address.decode(block))
    assert address == "address" or (isinstance(address, Address) and address.encode() == block and str(address))


@pytest.mark.parametrize("size", [MAX_NAME_BYTES, MAX_NAME_BYTES + 1])
def test_names_have_a_longest_length(size: int):
    for address in (Address("t" * size), Address("t", "s" * size), Address("t", "s", "e" * size)):
        if size <= MAX_NAME_BYTES:
            assert Address.decode(address.encode()) == address
        else:
            with pytest.raises(UsageError, match="has 256 bytes; at most 255"):
                address.encode()


@pytest.mark.parametrize(
    ("address", "text"),
    [
        (Address(""), "topic is empty"),
        (Address("", "server"), "topic is empty"),
        (Address("a\nb"), "topic 'a\\\\nb' has a control character"),
        (Address("a", "\0"), "server '.*' has a control character"),
        (Address("a", "b", "\x1b"), "exchange '.*' has a control character"),
        (Address("\ud800"), "topic '.*' cannot be encoded as UTF-8"),
        (Address(7), "topic must be a str, not int: 7"),  # type: ignore[arg-type]
        (Address("a", None), "server must be a str, not NoneType"),  # type: ignore[arg-type]
        (Address("é" * 128), "has 256 bytes"),
    ],
)
def test_an_absurd_address_is_refused_where_it_is_made(address: Address, text: str):
    with pytest.raises(UsageError, match=text):
        address.encode()


def test_names_may_have_dots_and_spaces_and_any_script():
    address = Address("compute.v2", "node 7.example.org", "Wölke/☁")
    assert Address.decode(address.encode()) == address
    assert str(address) == "Wölke/☁/compute.v2.node 7.example.org"


# --- control messages ------------------------------------------------------------------------

plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


@given(st.dictionaries(st.text(), plain, max_size=5))
def test_a_body_survives_the_wire(body: dict[str, object]):
    message = control(Kind.REGISTER, body, sequence=7)
    assert body_of(message) == body
    assert parse(message).format == 1 and parse(message).sequence == 7
    assert json.loads(bytes(payload_of(message))) == body


def test_a_control_message_may_have_no_body():
    assert payload_of(control(Kind.GOODBYE)) == b""


def test_a_large_body_is_detached():
    message = control(Kind.ANSWER, {"rows": ["x" * 100] * 1000})
    assert isinstance(message, Detached)
    assert len(body_of(message)["rows"]) == 1000


@pytest.mark.parametrize(
    "payload", [b"", b"[]", b"null", b"7", b'"x"', b"{", b"{'a':1}", b"\xff", b"[" * 20_000, b"1" * 5000, b"{" * 9]
)
def test_a_body_that_is_no_object_is_refused(payload: bytes):
    with pytest.raises(ProtocolError) as error:
        body_of(pack(Kind.REGISTER, payload))
    assert reason(error) == "body"


def test_a_body_in_a_message_that_does_not_fit_is_refused():
    message = pack(Kind.REGISTER, b"{}")
    with pytest.raises(ProtocolError) as error:
        body_of(message[:39] + b"\xff" + message[40:])
    assert reason(error) == "length"


@given(st.binary(max_size=300), st.lists(st.binary(max_size=10), max_size=3))
def test_any_bytes_are_messages_or_refused(batch: bytes, payloads: list[bytes]):
    messages = result_of(lambda: split(batch, payloads))
    if not isinstance(messages, list):
        assert messages in ("truncated", "length", "version", "detached")
        return
    assert b"".join(messages) == batch
    for message in messages:
        assert result_of(partial(parse, message)) == "length" or payload_of(message) is not None


# --- the class that a fault names ------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 7, DETACH_BYTES])
def test_a_class_comes_out_of_a_fault_again(size: int):
    payload = bytes(size)
    named = pack(Kind.FAULT, payload, format=1, key=bytes(range(20)), method=error_name(KeyError("x")), attempt=3)
    assert split_error_name(named) == (
        pack(Kind.FAULT, payload, format=1, key=bytes(range(20)), attempt=3),
        "KeyError",
    )
    assert payload_of(split_error_name(named)[0]) == payload


@pytest.mark.parametrize("name", ["", "a\nb", "x" * 101, "\u00fc" * 51])
def test_a_class_with_an_odd_name_is_not_named(name: str):
    odd: type[Exception] = type("Odd", (Exception,), {})
    odd.__name__ = name
    assert error_name(odd()) == b""


def test_a_class_may_be_named_in_any_script():
    odd: type[Exception] = type("Odd", (Exception,), {})
    odd.__name__ = "\u00fc" * 50
    message, name = split_error_name(pack(Kind.FAULT, method=error_name(odd())))
    assert (message, name) == (pack(Kind.FAULT), "\u00fc" * 50)
