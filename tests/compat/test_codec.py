"""The shim's codec keeps the limits of the process, and of a topic's policy, as any other."""

from __future__ import annotations

import pytest

from compat.nova.transport import NovaCodec
from rpcmq.errors import PayloadRefused
from rpcmq.payload import Format
from rpcmq.payload.trust import Rule

TEXT = Format.JSON


def nested(levels: int) -> bytes:
    return b"[" * levels + b"]" * levels


@pytest.mark.parametrize("view", [bytes, memoryview])
def test_text_within_the_limits(view: type) -> None:
    assert NovaCodec().decode(TEXT, view(b'{"args": [1, {"a": null}]}')) == {"args": [1, {"a": None}]}
    value = NovaCodec().decode(TEXT, view(nested(100)))
    for _ in range(99):
        (value,) = value
    assert value == []


@pytest.mark.parametrize("levels", [101, 100_000])
def test_text_that_is_nested_too_deeply(levels: int) -> None:
    with pytest.raises(PayloadRefused, match="nested more than 100 levels deep"):
        NovaCodec().decode(TEXT, nested(levels))


def test_text_that_is_too_large() -> None:
    with pytest.raises(PayloadRefused, match="larger than max_bytes"):
        NovaCodec(max_bytes=4096).decode(TEXT, b'"' + b"a" * 5000 + b'"')


def test_the_limits_of_a_topic() -> None:
    codec = Rule(topics=("#",), max_bytes=4096, max_depth=8).codec(NovaCodec())
    assert isinstance(codec, NovaCodec)
    for payload in (b'"' + b"a" * 5000 + b'"', nested(9)):
        with pytest.raises(PayloadRefused):
            codec.decode(TEXT, payload)
    assert codec.decode(TEXT, nested(3)) == [[[]]]
