"""The places of items, and receipts."""

from __future__ import annotations

import pickle
from dataclasses import FrozenInstanceError
from typing import Any

import pytest

from rpcmq.client.queue.places import ItemPlace
from rpcmq.client.queue.receipt import Receipt

PLACE = ItemPlace("billing", "a", "invoice-1", 3, 17)


def test_a_place_is_its_values_and_nothing_changes_it() -> None:
    assert ItemPlace.parse(str(PLACE)) == PLACE and hash(PLACE) == hash(ItemPlace.parse(str(PLACE)))
    assert ItemPlace("billing", "a", "invoice-1", 3, 18) != PLACE
    with pytest.raises(FrozenInstanceError):
        PLACE.number = 18  # type: ignore[misc]


def test_a_receipt_is_the_place_with_a_client_which_no_pickle_has() -> None:
    client: Any = object()
    receipt = Receipt.of(PLACE, client)
    assert str(receipt) == str(PLACE) and receipt._usable() is client and not hasattr(PLACE, "_client")
    copy = pickle.loads(pickle.dumps(receipt))
    assert copy == receipt and copy._client is None
    with pytest.raises(FrozenInstanceError):
        receipt.owner = "b"  # type: ignore[misc]
