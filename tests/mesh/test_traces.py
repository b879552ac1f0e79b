"""Each rule of adoption is needed: a named history breaks an invariant without it, and holds with all rules."""

from __future__ import annotations

from dataclasses import fields

import pytest

from tests.mesh.protocol import Rules
from tests.mesh.traces import TRACES, Trace, outcome
from tests.mesh.world import Setting


@pytest.mark.parametrize("trace", TRACES, ids=lambda trace: "+".join(trace.needs))
def test_the_history_breaks_an_invariant_without_its_rules_and_holds_with_them(trace: Trace) -> None:
    assert outcome(Setting(Rules().without(*trace.needs)), trace) == (trace.broken, [])
    assert outcome(Setting(), trace)[0] == ""


@pytest.mark.parametrize("trace", [trace for trace in TRACES if len(trace.needs) > 1], ids=lambda trace: trace.name)
def test_where_two_rules_prevent_the_same_either_is_enough(trace: Trace) -> None:
    assert {outcome(Setting(Rules().without(name)), trace)[0] for name in trace.needs} == {""}


def test_every_rule_that_is_needed_has_a_history() -> None:
    # An answer at an earlier owner need not go on: the later owner's question finds the same answer.
    assert {name for trace in TRACES for name in trace.needs} == {each.name for each in fields(Rules)} - {"forward"}
