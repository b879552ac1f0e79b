"""The choice among several sockets at one UDP address by the sender of a datagram: a program that Linux runs.

The kernel keeps datagrams that are not read yet in a room of the socket's; where all senders share one socket, whoever
floods it takes that room from all others. Here sockets share an address (SO_REUSEPORT), and a program of classic BPF
(SO_ATTACH_REUSEPORT_CBPF) reads the source address of each datagram: senders that are known to flood have a socket
each, all others one by a hash of their address, so that a flood costs only those few who have the same one, and only
until it is known.
"""

from __future__ import annotations

import ctypes
import socket
import struct
from collections.abc import Mapping
from typing import Any

__all__ = ["Instruction", "attach", "packed_address", "steering_program"]

Instruction = tuple[int, int, int, int]
"""Code, jump if true, jump if false, constant: ``struct sock_filter`` (Linux, linux/filter.h)."""

_SO_ATTACH_REUSEPORT_CBPF = 51  # Linux 4.5; Python has no name for it
_FILTER = struct.Struct("=HBBI")
_PROGRAM = struct.Struct("@HP")
#: Offsets from here on are counted from the network header (SKF_NET_OFF, -0x100000 as an unsigned number).
_NETWORK = 0x1_0000_0000 - 0x10_0000
_V4_SOURCE, _V6_SOURCE = 12, 8
# Instructions: load a word or a byte of the packet, X from A, arithmetic with a constant or X, jump, return.
_LOAD, _LOAD_BYTE, _TAX = 0x20, 0x30, 0x07
_AND, _MULTIPLY, _SHIFT, _MODULO, _XOR_X = 0x54, 0x24, 0x74, 0x94, 0xAC
_IF_EQUAL, _JUMP, _RETURN, _RETURN_A = 0x15, 0x05, 0x06, 0x16
_MAPPED = bytes(10) + b"\xff\xff"


def packed_address(host: str) -> bytes:
    """Return the 4 or 16 bytes of an IP address; one of IPv4 that is mapped to IPv6 has 4."""
    if ":" not in host:
        return socket.inet_pton(socket.AF_INET, host)
    packed = socket.inet_pton(socket.AF_INET6, host.partition("%")[0])
    return packed.removeprefix(_MAPPED)


def steering_program(hashed: int, loud: Mapping[bytes, int], key: int) -> list[Instruction]:
    """Return the program that gives the number of the socket for a datagram.

    Args:
        hashed: so many sockets, from 0 on, are shared by all senders that are not in ``loud``.
        loud: packed address -> number of its socket.
        key: an odd number of 32 bits that nobody knows: without it nobody can choose an address with a given socket.
    """
    four = _of_version(_V4_SOURCE, 1, hashed, {a: n for a, n in loud.items() if len(a) == 4}, key)
    six = _of_version(_V6_SOURCE, 4, hashed, {a: n for a, n in loud.items() if len(a) == 16}, key)
    # A conditional jump passes over 255 instructions at most, this one over any number.
    return [
        (_LOAD_BYTE, 0, 0, _NETWORK),
        (_AND, 0, 0, 0xF0),
        (_IF_EQUAL, 0, 1, 0x60),
        (_JUMP, 0, 0, len(four)),
        *four,
        *six,
    ]


def _of_version(source: int, words: int, hashed: int, loud: Mapping[bytes, int], key: int) -> list[Instruction]:
    program: list[Instruction] = []
    offsets = [_NETWORK + source + 4 * n for n in range(words)]
    for address, number in loud.items():
        for n, value in enumerate(struct.unpack(f"!{words}I", address)):
            program.append((_LOAD, 0, 0, offsets[n]))
            # Past the rest of this address: two instructions for each word, and the return.
            program.append((_IF_EQUAL, 0, 2 * (words - n - 1) + 1, value))
        program.append((_RETURN, 0, 0, number))
    program.append((_LOAD, 0, 0, offsets[0]))
    for offset in offsets[1:]:
        # A hash of the words so far, not their sum: neighbours differ in several words by the same amount.
        program += [(_MULTIPLY, 0, 0, key), (_TAX, 0, 0, 0), (_LOAD, 0, 0, offset), (_XOR_X, 0, 0, 0)]
    program += [(_MULTIPLY, 0, 0, key), (_SHIFT, 0, 0, 16), (_MODULO, 0, 0, hashed), (_RETURN_A, 0, 0, 0)]
    return program


def attach(sock: Any, program: list[Instruction]) -> None:
    """Let ``program`` choose among the sockets that share the address of ``sock``, in place of the one before.

    Raises:
        OSError: this system cannot.
    """
    code = ctypes.create_string_buffer(b"".join(_FILTER.pack(*each) for each in program))
    sock.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_REUSEPORT_CBPF, _PROGRAM.pack(len(program), ctypes.addressof(code)))
