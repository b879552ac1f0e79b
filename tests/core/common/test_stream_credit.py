"""The credit of a stream, in items and bytes."""

from __future__ import annotations

import pytest

from rpcmq.core.common.stream_credit import (
    MAX_STREAM_BYTES,
    MAX_STREAM_GRANTS,
    MAX_STREAM_ITEMS,
    UNASKED_BYTES,
    UNASKED_ITEMS,
    StreamCredit,
    unasked_credit,
)


def test_an_item_needs_both_and_the_last_one_may_have_more_bytes_than_are_left():
    credit = StreamCredit(2, 10, True)
    assert credit.use(100) and not credit.may_send and not credit.use(0)
    assert credit.add(0, 90) == "" and not credit.may_send
    assert credit.add(0, 1) == "" and credit.use(1)
    assert (credit.items, credit.size_bytes) == (0, 0)


def test_where_bytes_are_not_counted_items_alone_are():
    credit = unasked_credit(counts_bytes=False)
    for _ in range(UNASKED_ITEMS):
        assert credit.use(UNASKED_BYTES)
    assert not credit.use(0)
    assert credit.add(1, MAX_STREAM_BYTES + 1) == "" and credit.use(1)


@pytest.mark.parametrize(("items", "size_bytes"), [(MAX_STREAM_ITEMS + 1, 0), (0, MAX_STREAM_BYTES + 1)])
def test_too_much_is_named_with_its_limit(items, size_bytes):
    credit = StreamCredit(0, 0, True)
    assert f"exceed the limit of {max(items, size_bytes) - 1}" in credit.add(items, size_bytes)


def test_so_many_grants_are_too_much_between_two_items_whatever_they_grant():
    credit = unasked_credit(counts_bytes=True)
    for _ in range(2):
        for _ in range(MAX_STREAM_GRANTS):
            assert credit.add(0, 1) == ""
        assert credit.use(1)
    for _ in range(MAX_STREAM_GRANTS):
        assert credit.add(0, 0) == ""
    assert (
        credit.add(0, 0)
        == f"{MAX_STREAM_GRANTS + 1} grants with no item between them exceed the limit of {MAX_STREAM_GRANTS}"
    )


def test_an_item_each_may_be_granted_up_to_the_limit_of_items():
    credit = StreamCredit(0, 0, False)
    for _ in range(MAX_STREAM_ITEMS):
        assert credit.add(1, 0) == ""
