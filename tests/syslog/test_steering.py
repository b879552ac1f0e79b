"""The program that Linux runs gives a loud sender its own socket, and others one by a hash of their address."""

from __future__ import annotations

import socket
from collections import Counter

import pytest

from rpcmq.syslog.steering import Instruction, packed_address, steering_program

NETWORK = 0xFFF00000
KEY = 0x9E3779B1


def run(program: list[Instruction], packet: bytes) -> int:
    """The machine of classic BPF, as far as the program needs it."""
    at = a = x = 0
    while True:
        code, if_true, if_false, k = program[at]
        at += 1
        match code:
            case 0x20:
                a = int.from_bytes(packet[k - NETWORK :][:4])
            case 0x30:
                a = packet[k - NETWORK]
            case 0x07:
                x = a
            case 0x54:
                a &= k
            case 0x24:
                a = a * k & 0xFFFFFFFF
            case 0x74:
                a >>= k
            case 0x94:
                a %= k
            case 0xAC:
                a ^= x
            case 0x15:
                at += if_true if a == k else if_false
            case 0x05:
                at += k
            case 0x06:
                return k
            case 0x16:
                return a
            case _:
                raise AssertionError(f"no such instruction: {code:#x}")


def packet_of(host: str) -> bytes:
    source = packed_address(host)
    if len(source) == 4:
        return b"\x45" + bytes(11) + source + bytes(12)
    return b"\x60" + bytes(7) + source + bytes(24)


@pytest.mark.parametrize("pattern", ["10.1.{}.{}", "fd00::{:x}:{:x}", "fd00:1:{:x}:{:x}::1"])
def test_senders_are_spread_over_the_sockets(pattern: str) -> None:
    program = steering_program(56, {}, KEY)
    where = Counter(run(program, packet_of(pattern.format(a, b))) for a in range(20) for b in range(1, 57))
    assert set(where) == set(range(56))
    assert max(where.values()) <= 60, "20 each if all were the same"


def test_loud_senders_have_their_own_and_nobody_else_has() -> None:
    loud = {packed_address(f"10.0.0.{n}"): 56 + n for n in range(4)}
    loud |= {packed_address(f"fd00::{n}"): 56 + n for n in range(4, 8)}
    program = steering_program(56, loud, KEY)
    assert len(program) < 4096, "Linux takes no longer one"
    for packed, number in loud.items():
        family = socket.AF_INET if len(packed) == 4 else socket.AF_INET6
        assert run(program, packet_of(socket.inet_ntop(family, packed))) == number
    for other in ("10.0.0.4", "11.0.0.0", "fd00::8", "fd01::4", "fd00:0:0:1::4", "fd00::1:0:4"):
        assert run(program, packet_of(other)) == run(steering_program(56, {}, KEY), packet_of(other)) < 56


def test_an_address_of_ipv4_is_the_same_one_where_it_is_mapped() -> None:
    assert packed_address("::ffff:192.0.2.1") == packed_address("192.0.2.1") == bytes([192, 0, 2, 1])
    assert packed_address("fe80::1%lo") == packed_address("fe80::1")
