"""Several routers in place of the one that a test of the engines has: ``ROUTERS=3 pytest tests/core/router``.

Callers, services and subscribers are then spread over them, in the order in which a test makes them. A test that holds
for one router holds for the mesh, unless it is about something that each router has for itself: then it is skipped.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import cycle
from typing import Any

import pytest

from rpcmq.core.router.actions import LogEvent
from rpcmq.core.router.dispatch_log import Sink
from rpcmq.core.router.router import Router
from rpcmq.core.router.settings import Settings
from rpcmq.testing.mesh_network import MeshNetwork, Message, Process
from rpcmq.testing.network import Network
from rpcmq.wire.bodies import MESH_TYPE

__all__ = ["ROUTERS", "SKIPPED", "new_network", "reason_to_skip", "routers_of"]

ROUTERS = int(os.environ.get("ROUTERS", "1"))

_INSIDE = "looks into its one router"
_EACH = "is about a bound, a number or a control that each router has for itself"
_VIEW = "reads a view, which shows the processes and queues of its own router"
_TEXT = "the text names the router of a consumer elsewhere, and knows less of it"
_NEAR = "a router gives a request to a free consumer of its own before one elsewhere"
_ORDER = "this order holds at one router: of its senders, and of a topic, its servers and fanouts"
_LOG = "each router has a log, and that of the owner names the router of a consumer elsewhere, without its stamps"
_TIME = "counts milliseconds, of which routers need some to tell each other of a consumer"
_FORMAT = "the formats that a consumer elsewhere accepts are known to its router only"
_AWAY = "a consumer elsewhere that is away counts as none"
_TWICE = "a message that was sent twice is found out by another router, or waits behind the first"
_ALIAS = "routers learn of a server's own topic one after the other"
_SETTLED = "the sender of a cast to a consumer elsewhere is told when it is settled"
_TABLE = "makes the rows of one router's tables by hand, or counts what is in them"
_ROUTER = "tests/core/router/"
#: Tests that do not hold for several routers, with the reason.
SKIPPED: Mapping[str, str] = {
    _ROUTER + name: reason
    for reason, names in {
        _EACH: (
            "test_access_control.py::test_links_of_a_key_are_bounded_and_come_back",
            "test_changed_keys.py::test_the_caller_s_new_link_is_told_of_a_revoked_service",
            "test_controls.py::test_a_purge_does_a_bounded_amount_of_work",
            "test_controls.py::test_a_service_learns_the_caller_of_what_it_has_and_of_nothing_else",
            "test_controls.py::test_kick_ends_the_links_of_a_process",
            "test_controls.py::test_purge_",
            "test_controls.py::test_room_that_a_purge_makes",
            "test_handshake.py::test_a_welcome_tells_what_a_process_must_know",
            "test_handshake.py::test_handles_differ",
            "test_handshake.py::test_too_many_links_are_refused",
            "test_key_rates.py::test_a_key_that_floods_gets_its_rate",
            "test_key_rates.py::test_the_rate_is_the_key_s",
            "test_router_hostile.py::test_a_batch_has_so_many_messages_at_most",
            "test_links.py::test_a_consumer_that_cannot_come_back_is_told_to_start_over",
            "test_links.py::test_one_that_only_calls_and_computes_is_quiet",
        ),
        _VIEW: (
            "test_pubsub.py::test_a_slow_subscriber_loses_its_oldest_events",
            "test_pubsub.py::test_an_event_in_a_format_that_is_not_accepted",
            "test_pubsub.py::test_an_unresponsive_subscriber_is_sent_nothing_more",
            "test_router_casts.py::test_settlements_are_counted_once",
            "test_router_fanout.py::test_a_fanout_is_not_given_to_a_consumer_that_does_not_accept",
            "test_router_fanout.py::test_a_slow_consumers_fanout_backlog",
            "test_router_fanout.py::test_the_fanout_backlog_of_a_",
            "test_router_groups.py::test_a_lost_consumer_of_a_group_gives_back",
            "test_statistics.py::test_a_process_that_is_away_is_shown",
            "test_statistics.py::test_a_view_makes_no_more_rows_than_it_shows",
            "test_statistics.py::test_an_abandoned_topic_tells",
            "test_statistics.py::test_the_calls_longest_first",
            "test_statistics.py::test_the_processes",
            "test_statistics.py::test_the_topics",
        ),
        _TEXT: (
            "test_changed_keys.py::test_a_revoked_key_ends_its_links_at_once",
            "test_directory.py::test_a_server_whose_consumer_left_says_when",
            "test_explain.py::test_silence_is_told_by_the_one_heard_last",
            "test_explain.py::test_the_number_of_the_attempt",
            "test_handshake.py::test_a_new_process_may_take_the_identity",
            "test_router_call_refusals.py::test_a_mandatory_call_fails_at_once_when_the_consumer_has_left",
            "test_router_call_timeouts.py::test_timeout_of_a_call_",
            "test_router_hostile.py::test_a_consumer_that_takes_and_never_answers",
            "test_router_lost_consumers.py::test_a_call_in_flight_ends_with_link_lost",
        ),
        _NEAR: (
            "test_dispatch.py::test_equals_take_turns",
            "test_dispatch.py::test_the_one_with_the_least_in_flight_is_next",
            "test_dispatch.py::test_work_in_flight_is_spread_evenly",
        ),
        _ORDER: (
            "test_dispatch.py::test_a_consumer_on_shared_and_own_topic_takes_the_oldest",
            "test_dispatch.py::test_what_waits_goes_first",
            "test_router_fanout.py::test_a_fanout_copy_keeps_its_place",
        ),
        _LOG: (
            "test_hedging.py::test_a_call_that_ends_without_an_answer_has_one_record_for_each_delivery",
            "test_dispatch_log.py::test_a_call_that_was_answered",
            "test_dispatch_log_casts.py::test_a_call_that_takes_long_is_noted_once",
            "test_dispatch_log_casts.py::test_a_cast_that_was_settled",
            "test_dispatch_log_casts.py::test_a_fanout_is_a_record_for_each_consumer",
            "test_dispatch_log_casts.py::test_many_that_hang_are_noted",
            "test_dispatch_log_chunks.py::test_a_full_buffer_goes_out_at_once",
            "test_dispatch_log_chunks.py::test_a_segment_ends_with_its_records",
            "test_dispatch_log_chunks.py::test_where_nothing_happens_only_the_beginning_is_written",
            "test_dispatch_log_stamps.py::test_a_call_that_hangs_has_no_answer",
            "test_dispatch_log_stamps.py::test_a_call_that_timed_out_at_its_server",
            "test_dispatch_log_stamps.py::test_a_process_that_resumes_need_not_say_it_again",
            "test_dispatch_log_stamps.py::test_a_server_that_dies_and_the_next_attempt",
            "test_dispatch_log_stamps.py::test_an_answer_was_sent_when_its_service_said_last",
            "test_dispatch_log_stamps.py::test_so_was_a_settlement",
        ),
        _TIME: (
            "test_dispatch_log_stamps.py::test_a_queued_call_says_how_long_it_was_queued",
            "test_router_call_timeouts.py::test_the_ttl_that_a_consumer_sees",
            "test_router_forged.py::test_a_grant_of_nothing_is_for_the_router_alone",
            "test_router_mailboxes.py::test_the_ttl_of_a_cast_that_waited",
        ),
        _FORMAT: (
            "test_router_call_refusals.py::test_a_call_goes_to_the_consumer_that_accepts_its_format",
            "test_router_call_refusals.py::test_a_call_whose_format_no_consumer_accepts",
            "test_router_request_streams.py::test_a_consumer_that_does_not_know_them",
            "test_router_request_streams.py::test_of_several_consumers_one_that_knows_them",
            "test_router_call_refusals.py::test_a_queued_call_is_refused_by_the_consumer_that_comes",
            "test_router_lost_consumers.py::test_an_idempotent_call_is_refused_if_nobody_else_accepts",
        ),
        _AWAY: (
            "test_mandatory_calls_that_wait.py::test_a_consumer_whose_connection_is_lost_has_its_grace",
            "test_mandatory_calls_that_wait.py::test_it_waits_for_consumers_that_may_come_back_after_a_restart",
            "test_mandatory_calls_that_wait.py::test_many_end_a_bounded_number_at_a_time",
        ),
        _TWICE: (
            "test_router_repeated.py::test_a_call_with_the_sequence_of_a_cast_in_flight",
            "test_router_repeated.py::test_a_caller_that_comes_back_may_ask_again_while_the_consumer_still_has",
            "test_router_repeated.py::test_a_fanout_with_one_sequence",
            "test_router_repeated.py::test_casts_with_one_sequence_do_not_get_around_credit",
            "test_router_repeated.py::test_request_and_cancel_with_one_sequence",
        ),
        _ALIAS: ("test_router_groups.py::test_a_topic_of_a_server_takes_over_no_topic_that_has_groups",),
        _SETTLED: (
            "test_acknowledgements.py::test_a_sender_is_told_when_the_consumer_has_the_cast",
            "test_acknowledgements.py::test_many_are_told_at_once_and_without_delay",
        ),
        _TABLE: (
            "test_guarantees.py::test_answers_that_nobody_gets_are_counted_with_their_reason",
            "test_link_states.py::test_each_row_of_the_table_happens_to_a_router",
            "test_request_states.py::test_each_row_of_the_tables_happens_in_a_router",
            "test_request_states.py::test_what_the_table_lacks_raises_in_tests",
            "test_router_churn.py::",
        ),
    }.items()
    for name in names
}
#: Seconds that a mesh has for linking its routers.
_LINKING = 1.0
#: Seconds for which routers gather their news, at most; each verb of a process waits for it.
_GATHERING = 0.03


def reason_to_skip(nodeid: str) -> str | None:
    """Why the test ``nodeid`` is left out with several routers; None: it is not."""
    return next((reason for start, reason in SKIPPED.items() if nodeid.startswith(start)), None)


def new_network(settings: Settings, sink: Sink | None = None, routers: int = ROUTERS) -> Network:
    """Make the network of a test: with one router, or with several that take its place."""
    if routers == 1:
        return Network(settings, sink=sink)
    return _Spread(settings, sink, routers)  # type: ignore[return-value]


def routers_of(network: Network) -> list[Router]:
    """The engines of all routers of ``network``."""
    return [host.router for host in network.hosts.values()]


class _Spread(MeshNetwork):
    """Several routers in the place of one: each identity connects to the next of them."""

    def __init__(self, settings: Settings, sink: Sink | None, routers: int) -> None:
        names = "abcdefghijklmnop"[:routers]
        self._next = cycle(names)
        self._places: dict[str, str] = {}
        self._is_settling = True
        # A service that is gone may have come to another router: there is a wait for that which one router has not. And
        # the processes of tests stay where they are, whatever a router asks them.
        settings = replace(settings, mesh_return_seconds=0.0, mesh_rebalance_seconds=0.0)
        super().__init__(names, settings, sinks=dict.fromkeys(names, sink) if sink else None)
        self._is_settling = False
        self.settings = settings
        self.router = _AllRouters(self)
        self.advance(_LINKING)

    def process(
        self, identity: str, queue_type: str = "roundrobin", user: str = "", *, router: str = "", **hello: Any
    ) -> Process:
        if identity not in self._places:
            self._places[identity] = router or next(self._next)
        return super().process(identity, queue_type, user, router=router or self._places[identity], **hello)

    def run(self) -> None:
        """Run all engines until nothing is pending, and all routers know of it."""
        super().run()
        if not (self._is_settling or self._is_holding):
            self._is_settling = True
            try:
                while (due := self._next_news()) <= self.now + _GATHERING:
                    super().advance(max(due - self.now, 0.0))
            finally:
                self._is_settling = False

    def _next_news(self) -> float:
        return min(host.router.mesh.next_deadline() for host in self.hosts.values())

    def advance(self, seconds: float) -> None:
        """Advance the clock; see :meth:`MeshNetwork.advance`."""
        was_settling, self._is_settling = self._is_settling, True
        super().advance(seconds)
        self._is_settling = was_settling
        self.run()

    @property
    def notes(self) -> list[LogEvent]:
        """Log events of all routers, but for their links to each other."""
        return [note for host in self.hosts.values() for note in host.notes if note.event != "router linked"]

    def inject(self, route: bytes, batch: bytes, payloads: Sequence[bytes] = ()) -> list[Message]:
        """Inject any bytes at the first router."""
        return self.hosts["a"].inject(route, batch, payloads)

    def __getattr__(self, name: str) -> Any:
        if hasattr(Network, name):
            pytest.skip(f"{_INSIDE}: {name}")
        raise AttributeError(name)


class _AllRouters:
    """The routers of a network, as far as a test can ask all of them as one."""

    def __init__(self, network: MeshNetwork) -> None:
        self._network = network

    @property
    def _all(self) -> list[Router]:
        return [host.router for host in self._network.hosts.values()]

    @property
    def refused(self) -> Counter[str]:
        return sum((router.refused for router in self._all), Counter[str]())

    @property
    def in_flight(self) -> int:
        # Not those that their consumers' routers have for others.
        of_others = sum(
            len(link.calls) for router in self._all for link in router.links if link.queue_type == MESH_TYPE
        )
        return sum(router.in_flight for router in self._all) - of_others

    def set_authorized_keys(self, *args: Any) -> None:
        for router in self._all:
            router.set_authorized_keys(*args)

    def __getattr__(self, name: str) -> Any:
        pytest.skip(f"{_INSIDE}: router.{name}")
