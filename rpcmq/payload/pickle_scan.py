"""Checks a pickle's bytes before the C unpickler sees them.

The C unpickler believes what it reads. Ten bytes with a large PUT index make it allocate and
clear tens of gigabytes, a BINBYTES8 header with a false length reserves what it claims, EXT
opcodes can take objects from a process-wide cache without asking ``find_class``, and tuples can be
nested so that hashing one kills the process or never ends (``pickle_tuples``). ``check`` refuses
all of these; it never loads anything. And BUILD sets any state on any object: ``check`` puts opcodes
in its place that make the unpickler ask its owner (``pickle_state``).

A pickle passes when it is protocol 5, uses only opcodes that CPython's pickler writes for
protocol 5 (so no PUT, DUP, EXT, PERSID, GLOBAL, INST, OBJ, or decimal text), has each length
within the data, ends with STOP at its last byte, has no opcode that crosses the end of a frame (the
unpickler would drop its first part, and read other opcodes than were checked), and keeps its tuples
within limits.

A regular expression does this in C: it swallows all opcodes whose length is fixed or in one byte.
Python handles, in a loop, frames, BUILD, strings longer than 255 bytes and tuples of more than one item. The
tuples are measured opcode by opcode only where their number alone does not rule trouble out.

What remains: memory grows with the input, at worst about 230 bytes for each byte (empty sets);
whoever may send large pickles can waste CPU time quadratic in their size (keys with equal
hashes); and lists that hold one another twice load at once but take forever to print. ``max_bytes``
of the codec bounds the first two.
"""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable
from typing import Final

from rpcmq.errors import PayloadRefused
from rpcmq.payload.pickle_tuples import LENGTH_WIDTHS, TUPLE_ARITIES, TUPLE_OPCODES, largest_tuple

__all__ = ["MAX_TUPLE_DEPTH", "check"]

MAX_TUPLE_DEPTH: Final = 20_000
"""Deepest nesting of tuples. Hashing one takes some 60 bytes of C stack a level (CPython 3.11 to
3.13 on x86-64): 1.2 MB, where threads have 8 MB unless told otherwise."""

_PROTOCOL_5 = pickle.PROTO + b"\x05"
_STOP = pickle.STOP[0]
_BUILD = pickle.BUILD[0]
_FRAME = pickle.FRAME[0]
_FRAME_BYTES = 9
_AFTER_FIRST_FRAME = len(_PROTOCOL_5) + _FRAME_BYTES
#: Makes a pair of object and state, and calls ``persistent_load`` with it, whose result takes its place. A pickle
#: cannot have this opcode itself.
_ASKED_BUILD = pickle.TUPLE2 + pickle.BINPERSID
_NO_ARGUMENT = b"".join(
    (
        pickle.NONE, pickle.NEWTRUE, pickle.NEWFALSE, pickle.MARK, pickle.POP, pickle.POP_MARK,
        pickle.MEMOIZE, pickle.EMPTY_DICT, pickle.SETITEM, pickle.SETITEMS, pickle.EMPTY_LIST,
        pickle.APPEND, pickle.APPENDS, pickle.EMPTY_TUPLE, pickle.EMPTY_SET, pickle.ADDITEMS,
        pickle.FROZENSET, pickle.STACK_GLOBAL, pickle.REDUCE, pickle.NEWOBJ, pickle.NEWOBJ_EX,
    )
)  # fmt: skip


def _run_of(no_argument: bytes) -> bytes:
    """A pattern for a run of opcodes: ``no_argument``, those of fixed size, those counted by a byte.

    Its repeats are possessive: there is one way to read a pickle, so nothing is ever tried twice.
    """
    simple = b"[" + re.escape(no_argument) + b"]"
    counts = (re.escape(bytes([n])) + b".{%d}" % n for n in range(256))
    counted = b"[" + pickle.SHORT_BINUNICODE + pickle.SHORT_BINBYTES + pickle.LONG1 + b"](?:" + b"|".join(counts) + b")"
    small = b"[" + pickle.BININT1 + pickle.BINGET + b"]."
    # An alternative begins with a byte or a class, by which the engine skips it, and swallows what stores or memoizes
    # its value; the commonest come first, and several of them in a row.
    alternatives = (
        _repeated(counted + simple + b"*+"),
        _repeated(small + simple + b"*+"),
        simple + simple + b"*+",
        _repeated(pickle.BININT2 + b".." + simple + b"*+"),
        b"[" + pickle.BININT + pickle.LONG_BINGET + b"].{4}" + simple + b"*+",
        pickle.BINFLOAT + b".{8}" + simple + b"*+",
    )
    return b"(?:" + b"|".join(alternatives) + b")*+"


def _repeated(pattern: bytes) -> bytes:
    return pattern + b"(?:" + pattern + b")*+"


# Both expressions are compiled when they are first used: many a program gets no pickle, or no large one.


def _compile_run(data: bytes, start: int, end: int) -> re.Match[bytes] | None:
    global _match_run
    _match_run = re.compile(_run_of(_NO_ARGUMENT), re.DOTALL).match
    return _match_run(data, start, end)


_match_run: Callable[[bytes, int, int], re.Match[bytes] | None] = _compile_run

# Most messages, in one match: short, no long strings, and so few tuples of two or three items that
# hashing the worst of them over and over takes a fraction of a second.
_SHORT_BYTES = 2048


def _compile_short(data: bytes) -> re.Match[bytes] | None:
    global _is_short
    run = _run_of(_NO_ARGUMENT + pickle.TUPLE1)
    short = (
        _PROTOCOL_5
        + b"(?:" + pickle.FRAME + b"..\\0{6})?+"
        + run
        + b"(?:[" + pickle.TUPLE2 + pickle.TUPLE3 + b"]" + run + b"){0,4}+"
        + re.escape(pickle.STOP)
    )  # fmt: skip
    _is_short = re.compile(short, re.DOTALL).fullmatch
    return _is_short(data)


_is_short: Callable[[bytes], re.Match[bytes] | None] = _compile_short


def check(data: bytes) -> bytes:
    """Refuses ``data`` unless it is a pickle as the module's docstring describes.

    Returns:
        The pickle to load. Where one has BUILD, the unpickler's ``persistent_load`` is called with (object, state).

    Raises:
        PayloadRefused: says what is wrong and at which byte.
    """
    size = len(data)
    if size > _SHORT_BYTES or _is_short(data) is None:
        return _check_step_by_step(data)
    if data[2] == _FRAME and data[3] + (data[4] << 8) != size - _AFTER_FIRST_FRAME:
        return _check_step_by_step(data)
    return data


def _check_step_by_step(data: bytes) -> bytes:
    """The same for any pickle: with long strings, states, large, or malformed."""
    last = len(data) - 1
    if last < 3 or not data.startswith(_PROTOCOL_5):
        raise PayloadRefused("malformed pickle: does not start as pickle protocol 5")
    tuples, growth = 0, 1  # no tuple can be larger than growth * (1 + tuples)
    # What is to be loaded in place of the data up to ``copied``, if there is a BUILD.
    pieces: list[bytes] = []
    copied = len(_PROTOCOL_5)
    has_build = False
    frame_end = 0
    position = _after_run(data, len(_PROTOCOL_5), len(data))
    while position < last:
        opcode = data[position]
        if opcode == _BUILD:
            has_build = True
            pieces += data[copied:position], _ASKED_BUILD
            position = copied = position + 1
        elif opcode == _FRAME:
            if frame_end:
                raise PayloadRefused(f"malformed pickle: a frame within a frame at byte {position}")
            pieces.append(data[copied:position])
            copied = position + _FRAME_BYTES
            frame_end = copied + int.from_bytes(data[position + 1 : copied], "little")
            position = copied
        elif opcode in TUPLE_OPCODES:
            tuples += 1
            if growth <= MAX_TUPLE_DEPTH:
                growth *= TUPLE_ARITIES.get(opcode, len(data))
            position += 1
        else:
            position = _after_long(data, position)
        if frame_end and (position > frame_end or frame_end > len(data)):
            # The unpickler would drop what is left of the frame, and go on elsewhere.
            raise PayloadRefused(f"malformed pickle: a frame ends at byte {frame_end}, within an opcode or the data")
        position = _after_run(data, position, frame_end or len(data))
        if position == frame_end:
            frame_end = 0
            position = _after_run(data, position, len(data))
    if position > last or data[last] != _STOP:
        raise PayloadRefused(f"malformed pickle: no STOP at its end ({len(data)} bytes)")
    if growth * (1 + tuples) > MAX_TUPLE_DEPTH:
        _check_tuples(data)
    if not has_build:
        return data
    pieces.append(data[copied:])
    body = b"".join(pieces)
    return b"".join((_PROTOCOL_5, pickle.FRAME, len(body).to_bytes(8, "little"), body))


def _after_run(data: bytes, position: int, end: int) -> int:
    found = _match_run(data, position, end)
    return position if found is None else found.end()


def _after_long(data: bytes, position: int) -> int:
    """Return the end of the long string at ``position``; it must end before the last byte."""
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
