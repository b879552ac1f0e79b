"""Checks a pickle's bytes before the C unpickler sees them.

The C unpickler believes what it reads. Ten bytes with a large PUT index make it allocate and
clear tens of gigabytes, a BINBYTES8 header with a false length reserves what it claims, EXT
opcodes can take objects from a process-wide cache without asking ``find_class``, and tuples can be
nested so that hashing one kills the process or never ends (``pickle_tuples``). ``check`` refuses
all of these; it never loads anything.

A pickle passes when it is protocol 5, uses only opcodes that CPython's pickler writes for
protocol 5 (so no PUT, DUP, EXT, PERSID, GLOBAL, INST, OBJ, or decimal text), has each length
within the data, ends with STOP at its last byte, and keeps its tuples within limits.

A regular expression does this in C: it swallows all opcodes whose length is fixed or in one byte.
Python handles, in a loop, strings longer than 255 bytes and tuples of more than one item. The
tuples are measured opcode by opcode only where their number alone does not rule trouble out.

What remains: memory grows with the input, at worst about 230 bytes for each byte (empty sets);
whoever may send large pickles can waste CPU time quadratic in their size (the same large state
applied again and again, keys with equal hashes); and lists that hold one another twice load at
once but take forever to print. ``max_bytes`` of the codec bounds the first two.
"""

from __future__ import annotations

import pickle
import re
from typing import Final

from rpcmq.errors import PayloadRefused
from rpcmq.payload.pickle_tuples import LENGTH_WIDTHS, TUPLE_ARITIES, TUPLE_OPCODES, largest_tuple

__all__ = ["MAX_TUPLE_DEPTH", "check"]

MAX_TUPLE_DEPTH: Final = 20_000
"""Deepest nesting of tuples. Hashing one takes some 60 bytes of C stack a level (CPython 3.11 to
3.13 on x86-64): 1.2 MB, where threads have 8 MB unless told otherwise."""

_PROTOCOL_5 = pickle.PROTO + b"\x05"
_STOP = pickle.STOP[0]
_NO_ARGUMENT = b"".join(
    (
        pickle.NONE, pickle.NEWTRUE, pickle.NEWFALSE, pickle.MARK, pickle.POP, pickle.POP_MARK,
        pickle.MEMOIZE, pickle.EMPTY_DICT, pickle.SETITEM, pickle.SETITEMS, pickle.EMPTY_LIST,
        pickle.APPEND, pickle.APPENDS, pickle.EMPTY_TUPLE, pickle.EMPTY_SET, pickle.ADDITEMS,
        pickle.FROZENSET, pickle.STACK_GLOBAL, pickle.REDUCE, pickle.NEWOBJ, pickle.NEWOBJ_EX,
        pickle.BUILD,
    )
)  # fmt: skip


def _run_of(no_argument: bytes) -> bytes:
    """A pattern for a run of opcodes: ``no_argument``, those of fixed size, those counted by a byte.

    Its repeats are possessive: there is one way to read a pickle, so nothing is ever tried twice.
    """
    simple = b"[" + re.escape(no_argument) + b"]"
    counts = (re.escape(bytes([n])) + b".{%d}" % n for n in range(256))
    counted = b"(?:" + b"|".join(counts) + b")"
    alternatives = (
        # The commonest first: a string, then what stores or memoizes it.
        pickle.SHORT_BINUNICODE + counted + simple + b"*+",
        simple + b"++",
        b"[" + pickle.BININT1 + pickle.BINGET + b"].",
        pickle.BININT2 + b"..",
        b"[" + pickle.BININT + pickle.LONG_BINGET + b"].{4}",
        b"[" + pickle.BINFLOAT + pickle.FRAME + b"].{8}",
        b"[" + pickle.SHORT_BINBYTES + pickle.LONG1 + b"]" + counted,
    )
    return b"(?:" + b"|".join(alternatives) + b")*+"


_RUN = re.compile(_run_of(_NO_ARGUMENT), re.DOTALL)

# Most messages, in one match: short, no long strings, and so few tuples of two or three items that
# hashing the worst of them over and over takes a fraction of a second.
_SHORT_BYTES = 2048
_SHORT_RUN = _run_of(_NO_ARGUMENT + pickle.TUPLE1)
_SHORT = re.compile(
    _PROTOCOL_5
    + _SHORT_RUN
    + b"(?:[" + pickle.TUPLE2 + pickle.TUPLE3 + b"]" + _SHORT_RUN + b"){0,4}+"
    + re.escape(pickle.STOP),
    re.DOTALL,
)  # fmt: skip

_is_short = _SHORT.fullmatch


def check(data: bytes) -> None:
    """Refuses ``data`` unless it is a pickle as the module's docstring describes.

    Raises:
        PayloadRefused: says what is wrong and at which byte.
    """
    if len(data) > _SHORT_BYTES or _is_short(data) is None:
        _check_step_by_step(data)


def _check_step_by_step(data: bytes) -> None:
    """The same for any pickle: with long strings, large, or malformed."""
    last = len(data) - 1
    if last < 3 or not data.startswith(_PROTOCOL_5):
        raise PayloadRefused("malformed pickle: does not start as pickle protocol 5")
    tuples, growth = 0, 1  # no tuple can be larger than growth * (1 + tuples)
    position = _after_run(data, len(_PROTOCOL_5))
    while position < last:
        opcode = data[position]
        if opcode in TUPLE_OPCODES:
            tuples += 1
            if growth <= MAX_TUPLE_DEPTH:
                growth *= TUPLE_ARITIES.get(opcode, len(data))
            position += 1
        else:
            position = _after_long(data, position)
        position = _after_run(data, position)
    if position > last or data[last] != _STOP:
        raise PayloadRefused(f"malformed pickle: no STOP at its end ({len(data)} bytes)")
    if growth * (1 + tuples) > MAX_TUPLE_DEPTH:
        _check_tuples(data)


def _after_run(data: bytes, position: int) -> int:
    found = _RUN.match(data, position)
    return position if found is None else found.end()


def _after_long(data: bytes, position: int) -> int:
    """Where the long string at ``position`` ends; it must end before the last byte."""
    opcode = data[position]
    width = LENGTH_WIDTHS.get(opcode)
    if width is None:
        if opcode == _STOP:
            raise PayloadRefused(f"malformed pickle: data after STOP at byte {position}")
        raise PayloadRefused(
            f"malformed pickle: opcode 0x{opcode:02x} at byte {position} is truncated "
            "or not one that pickle protocol 5 uses"
        )
    start = position + 1 + width
    end = start + int.from_bytes(data[position + 1 : start], "little")
    if end >= len(data):
        raise PayloadRefused(
            f"malformed pickle: a string at byte {position} claims to end at byte {end} of {len(data)}"
        )
    return end


def _check_tuples(data: bytes) -> None:
    # Without sharing, a tuple has fewer items than the pickle has bytes.
    most = max(MAX_TUPLE_DEPTH, len(data))
    try:
        items = largest_tuple(data, sum, most)
        deepest = largest_tuple(data, max, MAX_TUPLE_DEPTH) if items > MAX_TUPLE_DEPTH else 0
    except IndexError:
        raise PayloadRefused("malformed pickle: takes more from the stack than is there") from None
    if items > most:
        raise PayloadRefused(f"pickle of {len(data)} bytes has a tuple of more than {most} items through shared parts")
    if deepest > MAX_TUPLE_DEPTH:
        raise PayloadRefused(f"pickle nests tuples more than {MAX_TUPLE_DEPTH} deep")
