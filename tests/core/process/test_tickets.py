"""The tickets of introduced callers, of which others may make up any number."""

from __future__ import annotations

from rpcmq.core.process.tickets import MAX_TICKETS, MAX_TICKETS_EACH, MAX_TICKETS_OF_SOURCE, NO_TICKET, Tickets


def test_a_router_that_makes_up_callers_pushes_out_only_its_own() -> None:
    tickets = Tickets()
    for number in range(100):
        tickets.add(0.0, f"honest-{number}", f"api-{number}", "", "compute", "b")
        tickets.add(0.0, f"own-{number}", f"own-{number}", f"KEY-{number}", "compute", "")
    for number in range(3 * MAX_TICKETS):
        tickets.add(1.0, f"evil-{number}", f"evil-{number}", f"EVIL-{number}", "compute", "evil")
    assert len(tickets) == 200 + MAX_TICKETS_OF_SOURCE
    assert all(f"honest-{number}" in tickets and f"own-{number}" in tickets for number in range(100))


def test_a_key_that_makes_up_names_pushes_out_only_its_own() -> None:
    tickets = Tickets()
    tickets.add(0.0, "honest", "api", "HONEST", "compute", "")
    for number in range(2 * MAX_TICKETS):
        tickets.add(1.0, f"evil-{number}", f"evil:{number}", "EVIL", "compute", "")
    assert len(tickets) == 1 + MAX_TICKETS_OF_SOURCE and "honest" in tickets


def test_a_router_that_uses_the_name_of_another_ones_caller_takes_none_of_its_room() -> None:
    tickets = Tickets()
    added = [tickets.add(0.0, f"evil-{number}", "api", "API", "compute", "evil") for number in range(100)]
    assert sum(added) == MAX_TICKETS_EACH
    assert tickets.add(0.0, "honest", "api", "API", "compute", "") and tickets.is_expected(0.0, "API")


def test_nothing_is_left_of_tickets_that_are_taken_or_old() -> None:
    tickets = Tickets()
    for number in range(50):
        tickets.add(0.0, f"t{number}", "api", "API", "compute", f"router-{number}")
    assert tickets.take("t0").identity == "api" and tickets.take("t0") is NO_TICKET
    tickets.add(31.0, "late", "late", "", "compute", "")
    assert len(tickets) == 1 == len(tickets._of_source) == len(tickets._of_caller)
    tickets.add(31.0, "keyed", "api", "API", "compute", "")
    tickets.forget_key("API")
    assert len(tickets) == 1
