"""Depth and size, with all shared parts written out, of the tuples in a pickle.

CPython hashes a tuple by hashing what is in it, each time anew, on the C stack. So a tuple nested
deep enough overflows the stack when it becomes a key, and some forty tuples that each hold the one
before twice take years to hash. Both fit into a few hundred (thousand) bytes of pickle. And one of half a million items
takes milliseconds for each four bytes that make it a key once more.

``largest_tuple`` runs the opcodes on sizes instead of on values and loads nothing. A list, dict or
set counts as one item: it cannot be hashed, or (frozenset) keeps its hash. What a call returns
counts as a tuple of what went in, because it may be one. Where the unpickler would
stop with an error, this may go on or raise ``IndexError``: nothing after that point would be
loaded.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable

from rpcmq.errors import PayloadRefused

__all__ = ["LENGTH_WIDTHS", "TUPLE_ARITIES", "TUPLE_OPCODES", "largest_tuple"]

LENGTH_WIDTHS: dict[int, int] = {
    pickle.BINUNICODE[0]: 4,
    pickle.BINBYTES[0]: 4,
    pickle.LONG4[0]: 4,
    pickle.BINUNICODE8[0]: 8,
    pickle.BINBYTES8[0]: 8,
    pickle.BYTEARRAY8[0]: 8,
}
"""Opcode of a long string or integer -> bytes of the little-endian length that follows it."""

TUPLE_ARITIES: dict[int, int] = {pickle.TUPLE1[0]: 1, pickle.TUPLE2[0]: 2, pickle.TUPLE3[0]: 3}
"""The opcodes that make a tuple of a fixed number of items."""

TUPLE_OPCODES = frozenset(TUPLE_ARITIES) | {pickle.TUPLE[0]}
"""All opcodes that make a tuple of something."""

_COUNTED = frozenset(opcode[0] for opcode in (pickle.SHORT_BINUNICODE, pickle.SHORT_BINBYTES, pickle.LONG1))
_GET_SIZES = {pickle.BINGET[0]: 1, pickle.LONG_BINGET[0]: 4}
_PUSH_SIZES = {
    pickle.BININT1[0]: 1,
    pickle.BININT2[0]: 2,
    pickle.BININT[0]: 4,
    pickle.BINFLOAT[0]: 8,
    pickle.NONE[0]: 0,
    pickle.NEWTRUE[0]: 0,
    pickle.NEWFALSE[0]: 0,
    pickle.EMPTY_DICT[0]: 0,
    pickle.EMPTY_LIST[0]: 0,
    pickle.EMPTY_TUPLE[0]: 0,
    pickle.EMPTY_SET[0]: 0,
}
_DROPS = {pickle.APPEND[0]: 1, pickle.SETITEM[0]: 2, pickle.BUILD[0]: 1}
_DROPS_TO_MARK = frozenset(opcode[0] for opcode in (pickle.SETITEMS, pickle.APPENDS, pickle.ADDITEMS, pickle.POP_MARK))
_CALLS = {pickle.REDUCE[0]: 2, pickle.NEWOBJ[0]: 2, pickle.NEWOBJ_EX[0]: 3, pickle.STACK_GLOBAL[0]: 2}

_HASHES = frozenset(opcode[0] for opcode in (pickle.SETITEM, pickle.SETITEMS, pickle.ADDITEMS, pickle.FROZENSET))
_LISTS = frozenset(opcode[0] for opcode in (pickle.APPEND, pickle.APPENDS))
_SETITEM, _SETITEMS = pickle.SETITEM[0], pickle.SETITEMS[0]
#: Items that may be hashed in all, for each byte of the pickle and at least: within half a second a megabyte.
_HASHED_FOR_EACH, _HASHED_AT_LEAST = 64, 16 << 20

_MEMOIZE = pickle.MEMOIZE[0]
_MARK = pickle.MARK[0]
_POP = pickle.POP[0]
_FROZENSET = pickle.FROZENSET[0]
_FRAME = pickle.FRAME[0]

Combine = Callable[[list[int]], int]


def largest_tuple(data: bytes, combine: Combine, limit: int) -> int:
    """The size of the largest tuple in ``data``, or the first one found above ``limit``.

    Args:
        data: a pickle whose opcodes and lengths have been checked.
        combine: what the size of a tuple is one more than, given the sizes of its items (1 for
            what is no tuple): ``max`` for the nesting depth, ``sum`` for all items written out.
        limit: where to stop.

    Raises:
        IndexError: the pickle takes more from its stack or memo than is there.
        PayloadRefused: it has tuples with far more items hashed than it has bytes.
    """
    hashed = listed = 0
    has_calls = False
    stack: list[int] = []
    marks: list[int] = []
    memo: list[int] = []
    largest = 0
    position, last = 2, len(data) - 1
    while position < last and largest <= limit:
        opcode = data[position]
        position += 1
        if opcode == _MEMOIZE:
            memo.append(stack[-1])
        elif opcode in _COUNTED:
            stack.append(1)
            position += 1 + data[position]
        elif opcode in _GET_SIZES:
            end = position + _GET_SIZES[opcode]
            stack.append(memo[int.from_bytes(data[position:end], "little")])
            position = end
        elif opcode in _PUSH_SIZES:
            stack.append(1)
            position += _PUSH_SIZES[opcode]
        elif opcode in TUPLE_OPCODES:
            arity = TUPLE_ARITIES.get(opcode)
            size = _replace(stack, marks.pop() if arity is None else len(stack) - arity, combine)
            largest = max(largest, size)
        elif opcode == _MARK:
            marks.append(len(stack))
        elif opcode in LENGTH_WIDTHS:
            end = position + LENGTH_WIDTHS[opcode]
            stack.append(1)
            position = end + int.from_bytes(data[position:end], "little")
        elif opcode in _CALLS:
            has_calls = True
            _replace(stack, len(stack) - _CALLS[opcode], combine)
        elif opcode == _FRAME:
            position += 8
        else:
            taken = _shrink(opcode, stack, marks)
            if opcode in _HASHES:
                hashed += taken
            elif opcode in _LISTS:
                listed += taken
    # A call may hash what is in a list.
    if hashed + (listed if has_calls else 0) > max(_HASHED_AT_LEAST, _HASHED_FOR_EACH * len(data)):
        raise PayloadRefused(
            f"pickle of {len(data)} bytes has {hashed + listed} items of tuples hashed through shared parts"
        )
    return largest


def _replace(stack: list[int], base: int, combine: Combine) -> int:
    """Puts one item in place of those from ``base`` on; returns its size."""
    if base < 0:
        raise IndexError
    items = stack[base:]
    size = 1 + combine(items) if items else 1
    stack[base:] = [size]
    return size


def _shrink(opcode: int, stack: list[int], marks: list[int]) -> int:
    """The opcodes that only take from the stack, or leave a frozenset there; returns the size of what may be hashed."""
    taken: list[int] = []
    if opcode in _DROPS_TO_MARK:
        base = marks.pop()
        taken = stack[base:]
        del stack[base:]
    elif opcode in _DROPS:
        taken = stack[-_DROPS[opcode] :]
        del stack[-_DROPS[opcode] :]
    elif opcode == _FROZENSET:
        base = marks.pop()
        taken = stack[base:]
        stack[base:] = [1]
    elif opcode == _POP:
        if marks and marks[-1] == len(stack):
            marks.pop()
        else:
            stack.pop()
    # Of a dict's items every other one is a key.
    return sum(taken[::2]) if opcode in (_SETITEM, _SETITEMS) else sum(taken)
