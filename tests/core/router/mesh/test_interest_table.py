"""The table of other routers' addresses: small, true, and swept in pieces."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from benchmarks.mesh_addresses import bytes_of_one
from rpcmq.core.router.mesh.interest_table import InterestTable
from rpcmq.core.router.model import Link
from rpcmq.wire import Address
from rpcmq.wire.bodies import MESH_TYPE
from rpcmq.wire.interest import PlaceState, identity_key, part_key, place_key, row_digest

KEYS = [place_key(Address("a")), place_key(Address("a", "b")), place_key(Address("a"), "g"), place_key(Address("c"))]
PART = part_key(place_key(Address("a")), 0)


def link(name: str) -> Link:
    return Link([], name, MESH_TYPE, 1, 1)


def test_an_address_elsewhere_takes_less_than_200_bytes_with_the_names_of_its_consumers() -> None:
    assert bytes_of_one(2_000, 10, 1, 1) < 110
    assert bytes_of_one(2_000, 10, 3, 10) < 110
    assert bytes_of_one(2_000, 3, 3, 1) < 200


@given(
    st.lists(
        st.tuples(
            st.integers(0, 2),
            st.sampled_from(KEYS),
            st.builds(
                PlaceState,
                st.integers(0, 300),
                st.integers(0, 70_000),
                st.booleans(),
                st.lists(st.integers(0, (1 << 24) - 1), max_size=4).map(tuple),
            ),
        )
    )
)
def test_it_has_the_latest_state_of_each_router(puts: list[tuple[int, bytes, PlaceState]]) -> None:
    table = InterestTable()
    links = [link(name) for name in "abc"]
    holdings = [table.open(each, each.identity) for each in links]
    truth: dict[tuple[int, bytes], bytes] = {}
    for router, key, state in puts:
        truth[router, key] = state.encode()
        table.put(holdings[router], key, state.encode())
        table.put(holdings[router], PART, bytes(15) + b"\1")
        truth[router, PART] = bytes(15) + b"\1"
    rows = {at: state for at, state in truth.items() if state}
    for key in [*KEYS, PART]:
        assert table.states(key) == {links[r]: rows[r, k] for r, k in rows if k == key}
    for number, holding in enumerate(holdings):
        own = {key: state for (router, key), state in rows.items() if router == number}
        assert holding.count == len(own)
        assert holding.digest == sum(row_digest(*row) for row in own.items()) % (1 << 64)
    groups = table.groups(place_key(Address("a")))
    assert set(groups) == {KEYS[2]} & {key for _, key in rows}


def test_a_void_holding_is_masked_at_once_and_swept_in_pieces() -> None:
    table = InterestTable()
    gone, stays = table.open(link("gone"), "gone"), table.open(link("stays"), "stays")
    state = PlaceState(1, 1, True).encode()
    for i in range(100):
        table.put(gone, place_key(Address(f"t{i}")), state)
        table.put(stays, place_key(Address(f"t{i % 50}")), state)
    table.close(gone)
    assert all(gone.link not in table.states(key) for key in table)
    swept = []
    while table.is_sweeping:
        assert len(table.sweep(20)) < 60, "some more than were asked for, and not all"
        swept.append(len(table))
    assert swept[-1] == 50 and 2 <= len(swept) <= 5
    assert set(table) == {place_key(Address(f"t{i}")) for i in range(50)}
    assert table.open(link("new"), "new").prefix == gone.prefix, "its index is free again"


def test_names_that_change_do_not_pile_up() -> None:
    table = InterestTable()
    holding = table.open(link("b"), "b")
    for i in range(20_000):
        table.put_name(holding, identity_key(i % 7), i % 7, b"process-%06d" % i)
    assert len(holding.names._names) < 1 << 18
    assert [holding.names.get(n) for n in range(7)] == [b"process-%06d" % (19_999 - (19_999 - n) % 7) for n in range(7)]
    assert holding.count == holding.names.count == 7
