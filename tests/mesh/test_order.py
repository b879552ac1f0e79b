"""Offers to a home that refuses some of them keep their order in every history, with both rules and with no less."""

from __future__ import annotations

import pytest

from tests.mesh.order import Rules, search


def test_a_refused_offer_is_never_overtaken() -> None:
    found = search(Rules())
    assert found.broken is None and found.states > 500


@pytest.mark.parametrize("rules", [Rules(behind=False), Rules(take_back=False), Rules(False, False)], ids=str)
def test_either_rule_alone_breaks_the_order(rules: Rules) -> None:
    broken = search(rules).broken
    assert broken is not None and list(broken.delivered) != list(range(len(broken.delivered)))
