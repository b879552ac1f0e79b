"""Whether the engines under test are compiled (``make test-wheel``), and the tests that then cannot be.

In a compiled module one method calls another directly, and an attribute is read where it lies: what a test puts in
their place, to raise or to count, is not seen. And no trace function is called between two of its opcodes.
"""

from __future__ import annotations

from rpcmq.core.common import session

__all__ = ["COMPILED", "reason_to_skip"]

COMPILED = not (session.__file__ or "").endswith(".py")

_REPLACED = "replaces methods or attributes of what is compiled, which compiled code does not look up"
_OPCODES = "raises between opcodes, of which compiled code has none: signals are handled between calls of the engines"
_REFERRERS = "follows references, which the objects of compiled classes show otherwise"
_PLAYED = "plays an object that compiled code takes from its own class only"
_SKIPPED = {
    "tests/core/common/test_rights.py::test_a_place_in_a_pattern_is_visited_once": _REPLACED,
    "tests/core/process/test_interrupted_casts.py": _OPCODES,
    "tests/core/process/test_call_states.py::test_each_row": _REPLACED,
    "tests/core/process/test_task_states.py::test_each_row": _REPLACED,
    "tests/core/process/test_task_states.py::test_nothing_happens_to_a_registration_that_was_removed": _REPLACED,
    "tests/core/router/test_request_states.py::test_each_row_of_the_tables_happens_in_a_router": _REPLACED,
    "tests/core/router/test_request_states.py::test_a_delivery_is_given_once": _REPLACED,
    "tests/core/router/test_link_states.py::test_each_row_of_the_table_happens_to_a_router": _REPLACED,
    "tests/core/router/test_link_states.py::test_a_link_that_may_not_be_admitted_after_all": _REPLACED,
    "tests/core/router/test_state_machine.py::test_only_transitions_of_the_tables_are_seen_and_most_of_them": _REPLACED,
    "tests/core/router/test_statistics.py::test_a_view_makes_no_more_rows_than_it_shows": _REPLACED,
    "tests/core/router/test_router_survives.py": _REPLACED,
    "tests/core/router/test_journal.py::test_an_internal_error": _REPLACED,
    "tests/core/router/test_router_churn.py": _REFERRERS,
    "tests/core/router/mesh/test_hostile_members.py::test_routers_without_an_authorised_key": _REPLACED,
    "tests/core/router/mesh/test_hostile_members.py::test_ways_are_found_anew_now_and_then": _REPLACED,
    "tests/core/router/mesh/test_lossy_ways.py": _REPLACED,
    "tests/core/router/mesh/test_process_balance.py::test_a_router_that_does_not_count": _REPLACED,
    "tests/core/router/mesh/test_limits.py": _PLAYED,
    "tests/core/router/mesh/test_hedges_elsewhere.py::test_the_late_answer_of_another_router_has": _PLAYED,
    "tests/core/router/mesh/test_hedges_elsewhere.py::test_a_loser_of_another_router_that_is_lost": _PLAYED,
    "tests/core/router/mesh/test_hedges_elsewhere.py::test_of_a_call_that_ended_at_its_deadline": _PLAYED,
    "tests/client/test_direct.py::test_an_introduction_that_comes_after_the_peer_costs_no_direct_link": _REPLACED,
    "tests/threads/test_casts_while_closing.py::test_an_event_that_comes_when_the_client": _REPLACED,
    "tests/threads/test_lone_caller.py::test_a_call_that_is_alone[interrupted_at_work": _REPLACED,
}


def reason_to_skip(nodeid: str) -> str | None:
    """Why the test ``nodeid`` is left out where the engines are compiled; None: it is not."""
    return next((reason for start, reason in _SKIPPED.items() if nodeid.startswith(start)), None)
