"""Requests and answers of a store's process as bytes."""

from __future__ import annotations

from rpcmq.store.contract import (
    Bury,
    Change,
    Damaged,
    Done,
    Forget,
    Lane,
    Maker,
    Note,
    Position,
    Postpone,
    Put,
    Revive,
    Stored,
)
from rpcmq.store.frames import decode_changes, decode_items, encode_changes, encode_items, encode_values

_LANE, _OTHER = Lane("Rechnungen ü", 3), Lane("q", 0)
_PUT = Put(_LANE, b"body", 1, 2, b"id", Maker((1 << 63) - 1, 5), b"digest", 77)
_STORED = Stored(Position(1, 2, 3), _LANE, 4, 5, b"id", Maker(6, 7), b"body", b"state")


def test_changes_are_the_same_on_the_other_side() -> None:
    changes: list[Change] = [
        _PUT, Put(_OTHER, b"", 1), Done(_LANE, 9), Postpone(_LANE, 1, 2, b"s"), Put(_LANE, b"x" * 5000, 1 << 62),
        Bury(_OTHER, 1, 2, b"s"), Done(_OTHER, 1), Revive(_LANE, 1, 2, b""), Forget(_LANE, 1), Note("name", b"value"),
    ]  # fmt: skip
    assert decode_changes(encode_changes(changes)) == changes


def test_items_are_the_same_on_the_other_side() -> None:
    items: list[Stored | Damaged] = [
        _STORED,
        Damaged(Position(1, 2, 3), _LANE, 4),
        Stored(Position(), _OTHER, 1, 2, b"", Maker(0, 0), b"", b""),
    ]
    assert decode_items(encode_items(items)) == items


def test_what_each_item_has_is_written_out_as_the_general_form_says() -> None:
    assert encode_changes([_PUT]) == b"p" + encode_values("LbiibMbib", *_PUT)
    assert encode_changes([Done(_LANE, 9, 70)]) == b"d" + encode_values("Lii", _LANE, 9, 70)
    items: list[Stored | Damaged] = [_STORED]
    assert encode_items(items) == b"s" + encode_values("PLiibMbb", *_STORED)
