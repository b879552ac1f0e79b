"""The trust policy of a worker, as it holds for the items of its queue."""

from __future__ import annotations

from typing import Any

import pytest

from rpcmq.client.trusted_payloads import TrustedPayloads
from rpcmq.payload import Codec, Format
from rpcmq.payload.seal import NotTrusted
from rpcmq.payload.trust import Policy, Rule
from rpcmq.wire import Address

HERE = Address("billing", "node-7", "rpcmq.work")
ITEM = {"context": None, "args": {"invoice": 17}}


def payloads(**rule: Any) -> TrustedPayloads:
    return TrustedPayloads(Codec(), Policy((Rule(("billing",), ("rpcmq.work",), **rule),)), None, "worker")


@pytest.mark.parametrize("prefer", [Format.JSON, Format.PICKLE])
def test_an_item_is_decoded_by_the_rule_of_its_queue_in_the_exchange_of_work(prefer: Format) -> None:
    format, encoded = Codec(prefer=prefer).encode(ITEM)
    assert payloads().item(HERE, format, encoded) == ITEM
    json_only = payloads(formats=Format.JSON.bit)
    if prefer is Format.JSON:
        assert json_only.item(HERE, format, encoded) == ITEM
    else:
        with pytest.raises(NotTrusted, match="it is pickle; accepted here from who does not sign: json"):
            json_only.item(HERE, format, encoded)


def test_where_signatures_are_required_no_item_is_taken() -> None:
    format, encoded = Codec().encode(ITEM)
    with pytest.raises(NotTrusted, match=r"payload of 'rpcmq\.work/billing' refused: it is not signed"):
        payloads(require=True).item(HERE, format, encoded)
