"""Signatures of payloads: what they cover, how old they may be, and that nothing is taken twice."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rpcmq.payload.seal import OVERHEAD, MacKeys, NotTrusted, ReplayGuard, Signer, split_signature

OLD, NEW = b"o" * 32, b"n" * 32
KEYS = MacKeys("old", {"old": OLD})
BOTH = MacKeys("new", {"old": OLD, "new": NEW})
FIELDS: dict[str, Any] = {
    "flags": 2,
    "address": b"\0\1\0a",
    "method": b"reboot",
    "bound": bytes(range(16)),
    "number": 3,
}
WITHOUT_BOUND = {name: value for name, value in FIELDS.items() if name != "bound"}


class Clock:
    def __init__(self) -> None:
        self.now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def sealer(clock: Clock) -> Signer:
    return Signer(KEYS, "web:1", window=100.0, skew=10.0, clock=clock)


def reason_of(sealer: Signer, data: bytes, kinds: tuple[int, ...] = (16,), format: int = 2, **fields: Any) -> str:
    with pytest.raises(NotTrusted) as caught:
        sealer.open(data, kinds, format, **fields)
    return caught.value.reason


def test_what_is_sealed_opens(sealer: Signer, clock: Clock) -> None:
    data, tag = sealer.seal(16, 2, b"payload", **WITHOUT_BOUND, life=5.0)
    opened = sealer.open(data, (17, 16), 2, **WITHOUT_BOUND)
    assert bytes(opened.payload) == b"payload" == bytes(split_signature(data))
    assert (opened.key_id, opened.sender, opened.tag) == ("old", "web:1", tag)
    assert opened.time == clock.now and opened.life == pytest.approx(5.0, abs=0.01)
    assert len(data) - len(b"payload") <= OVERHEAD


def test_the_same_is_never_sealed_the_same(sealer: Signer) -> None:
    assert sealer.seal(16, 2, b"payload")[0] != sealer.seal(16, 2, b"payload")[0]


@pytest.mark.parametrize(
    "changed",
    [
        {"kinds": (17,)},
        {"format": 3},
        {"flags": 0},
        {"address": b"\0\1\0b"},
        {"method": b"delete"},
        # The same bytes, divided differently.
        {"address": b"\0\1\0ar", "method": b"eboot"},
        {"bound": bytes(16)},
        {"number": 4},
    ],
    ids=str,
)
def test_whatever_the_receiver_acts_on_is_covered(sealer: Signer, changed: dict[str, Any]) -> None:
    data, _ = sealer.seal(16, 2, b"payload", **FIELDS)
    assert reason_of(sealer, data, **(FIELDS | changed)) == "wrong signature"


@given(st.data())
def test_no_byte_can_be_changed(data: st.DataObject) -> None:
    sealer = Signer(KEYS, "web:1", clock=Clock())
    sealed, _ = sealer.seal(16, 2, data.draw(st.binary(max_size=50)), **FIELDS)
    at = data.draw(st.integers(0, len(sealed) - 1))
    other = sealed[at] ^ data.draw(st.integers(1, 255))
    changed = sealed[:at] + bytes((other,)) + sealed[at + 1 :]
    assert reason_of(sealer, changed, **FIELDS) in ("wrong signature", "unknown key", "malformed signature")


@given(st.binary(max_size=200))
def test_any_bytes_are_refused(data: bytes) -> None:
    assert reason_of(Signer(KEYS, "x"), data) in ("malformed signature", "unknown key", "wrong signature")


def test_a_key_is_changed_one_process_after_the_other(clock: Clock) -> None:
    behind, ahead = Signer(KEYS, "a", clock=clock), Signer(BOTH, "b", clock=clock)
    assert ahead.open(behind.seal(16, 2, b"x")[0], (16,), 2).key_id == "old"
    assert reason_of(behind, ahead.seal(16, 2, b"x")[0]) == "unknown key"
    reads_both = Signer(MacKeys("old", BOTH.secrets), "c", clock=clock)
    assert reads_both.open(ahead.seal(16, 2, b"x")[0], (16,), 2).key_id == "new"


def test_the_id_of_another_key_does_not_help(clock: Clock) -> None:
    forger = Signer(MacKeys("old", {"old": NEW}), "web:1", clock=clock)
    assert reason_of(Signer(KEYS, "a", clock=clock), forger.seal(16, 2, b"x")[0]) == "wrong signature"


@pytest.mark.parametrize(
    ("life", "after", "reason"),
    [
        (5.0, 14.0, ""),
        (5.0, 16.0, "too old"),
        (None, 109.0, ""),
        (None, 111.0, "too old"),
        (1e9, 111.0, "too old"),
        (5.0, -9.0, ""),
        (5.0, -11.0, "signed in the future"),
    ],
)
def test_how_old_it_may_be(sealer: Signer, clock: Clock, life: float | None, after: float, reason: str) -> None:
    data, _ = sealer.seal(16, 2, b"x", life=life)
    clock.now += after
    if reason:
        assert reason_of(sealer, data) == reason
    else:
        assert sealer.open(data, (16,), 2).payload == b"x"


def test_the_receivers_window_counts(clock: Clock) -> None:
    data, _ = Signer(KEYS, "a", window=1e6, clock=clock).seal(16, 2, b"x")
    clock.now += 200
    assert reason_of(Signer(KEYS, "b", window=100, clock=clock), data) == "too old"


def test_an_answer_is_as_old_as_its_request(sealer: Signer, clock: Clock) -> None:
    data, _ = sealer.seal(18, 2, b"x", bound=b"r" * 16)
    clock.now += 10_000
    assert sealer.open(data, (18,), 2, bound=b"r" * 16).payload == b"x"


# --- repeated ------------------------------------------------------------------------------------


def test_nothing_is_taken_twice_while_it_is_alive() -> None:
    replays = ReplayGuard(1000)
    for number in range(100):
        replays.check(100.0 + number, b"%d" % number, 100.0 + number, 1000.0 + number)
    for number in range(100):
        with pytest.raises(NotTrusted) as caught:
            replays.check(200.0, b"%d" % number, 100.0 + number, 1000.0 + number)
        assert caught.value.reason == "repeated"


def test_what_is_dead_is_forgotten() -> None:
    replays = ReplayGuard(1000)
    for number in range(500):
        replays.check(100.0, b"%d" % number, 100.0, 110.0 + number % 10)
    replays.check(200.0, b"later", 200.0, 210.0)
    assert len(replays) == 1


def test_memory_is_bounded_and_nothing_that_it_lost_is_taken() -> None:
    most = 100
    replays = ReplayGuard(most)
    taken = []
    for number in range(2000):
        now = 1000.0 + number / 10
        replays.check(now, b"%d" % number, now, now + 60.0)
        taken.append((b"%d" % number, now))
        assert len(replays) <= most
    for nonce, sent in taken:
        with pytest.raises(NotTrusted) as caught:
            replays.check(1200.0, nonce, sent, sent + 60.0)
        assert caught.value.reason in ("repeated", "older than the memory")


# --- the bytes -----------------------------------------------------------------------------------

DOCUMENT = Path(__file__).parents[2] / "docs" / "protocol" / "payloads.md"


def documented(title: str) -> bytes:
    """The bytes of the example below ``title`` in section 12 of the protocol."""
    found = re.search(rf"^{re.escape(title)}\n+```\n(.*?)```", DOCUMENT.read_text(), re.MULTILINE | re.DOTALL)
    assert found is not None, title
    return bytes.fromhex("".join(line.partition("|")[0] for line in found[1].splitlines()))


def mac(key: bytes, *parts: bytes) -> bytes:
    return hashlib.blake2b(b"".join(parts), key=key, digest_size=16, person=b"rpcmq seal 1").digest()


def test_the_bytes_are_those_of_the_protocol(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    monkeypatch.setattr("os.urandom", lambda count: bytes(range(1, count + 1)))
    key = bytes(range(32))
    sealer = Signer(MacKeys("k1", {"k1": key}), "web:1", clock=clock)
    payload, address = b'{"context":null,"args":{}}', b"\0\7\0compute"
    request, tag = sealer.seal(0x10, 1, payload, address=address, method=b"ping", life=5.0, flags=8)
    assert request == payload + documented("The signature of that request:")
    covered = documented("What it covers, before the payload:")
    assert tag == mac(key, covered, payload) == request[-19:-3]

    answer, _ = sealer.seal(0x12, 1, b'"pong"', bound=tag)
    assert answer == b'"pong"' + documented("The signature of its answer:")
