"""A model of order without any fault: one owner offers messages to one home, which has room for some of them.

An offer that is refused must not be overtaken by the offers that were on the way behind it.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

MESSAGES = 4
#: Refusals for want of room in one history; after them the home waits until its consumer has finished.
REFUSALS = 3


class Rules(NamedTuple):
    """The rules of order as switches."""

    #: A home that refused an offer refuses those behind it, until the owner says that it has read the refusal.
    behind: bool = True
    #: An owner that reads a refusal takes back all that it offered behind the refused one, and offers it anew in order.
    take_back: bool = True


class Offer(NamedTuple):
    """A message, and the number of refusals that its owner had read when it was offered."""

    message: int
    read: int


class Reply(NamedTuple):
    """The home's word on an offer; ``refusals`` is 0 if it was accepted."""

    offer: Offer
    refusals: int


class State(NamedTuple):
    """Owner, home, and the two wires between them."""

    waiting: tuple[int, ...] = tuple(range(MESSAGES))
    offered: tuple[Offer, ...] = ()
    read: int = 0
    to_home: tuple[Offer, ...] = ()
    to_owner: tuple[Reply, ...] = ()
    refusals: int = 0
    is_free: bool = True
    delivered: tuple[int, ...] = ()


class Search(NamedTuple):
    """All states that can be reached, or the first one that breaks the order."""

    states: int
    broken: State | None


def search(rules: Rules) -> Search:
    """See every state: messages are delivered in order, each once, and at rest all of them."""
    seen = {State()}
    to_do = deque(seen)
    while to_do:
        state = to_do.popleft()
        reached = _next(rules, state)
        if state.delivered != tuple(range(MESSAGES if not reached else len(state.delivered))):
            return Search(len(seen), state)
        to_do.extend(each for each in reached if each not in seen)
        seen.update(reached)
    return Search(len(seen), None)


def _next(rules: Rules, state: State) -> list[State]:
    reached: list[State] = []
    if state.waiting:
        first, *rest = state.waiting
        offer = Offer(first, state.read)
        reached.append(
            state._replace(
                waiting=tuple(rest), offered=(*state.offered, offer), to_home=(*state.to_home, offer)
            )
        )  # fmt: skip
    if state.to_home and (state.is_free or state.refusals < REFUSALS):
        reached.append(_home_reads(rules, state))
    if state.to_owner:
        reached.append(_owner_reads(rules, state))
    if not state.is_free:
        reached.append(state._replace(is_free=True))
    return reached


def _home_reads(rules: Rules, state: State) -> State:
    offer, *rest = state.to_home
    state = state._replace(to_home=tuple(rest))
    is_behind = rules.behind and offer.read < state.refusals
    if state.is_free and not is_behind:
        state = state._replace(is_free=False, delivered=(*state.delivered, offer.message))
        return state._replace(to_owner=(*state.to_owner, Reply(offer, 0)))
    refusals = state.refusals + (not is_behind)
    return state._replace(refusals=refusals, to_owner=(*state.to_owner, Reply(offer, refusals)))


def _owner_reads(rules: Rules, state: State) -> State:
    reply, *rest = state.to_owner
    state = state._replace(to_owner=tuple(rest))
    if reply.offer not in state.offered:
        return state  # taken back before
    place = state.offered.index(reply.offer)
    before, behind = state.offered[:place], state.offered[place + 1 :]
    if not reply.refusals:
        return state._replace(offered=before + behind)
    taken = (reply.offer, *behind) if rules.take_back else (reply.offer,)
    return state._replace(
        offered=before if rules.take_back else before + behind,
        waiting=tuple(sorted({*state.waiting, *(offer.message for offer in taken)})),
        read=max(state.read, reply.refusals),
    )
