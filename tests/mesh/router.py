"""The router's part of the model of adoption: owner of some calls, home of some processes, witness of other owners."""

from __future__ import annotations

from typing import NamedTuple

from tests.mesh.protocol import (
    Ask,
    Back,
    Deliver,
    Heard,
    Hello,
    Interest,
    Knows,
    Map,
    Message,
    Newer,
    Noted,
    Offer,
    Out,
    Phase,
    Place,
    Request,
    Result,
    Rules,
    Said,
    Send,
    Tag,
    Where,
    Word,
)

NOBODY = Tag(0, 0, "")


class Owned(NamedTuple):
    """A call at its owner."""

    tag: Tag
    phase: Phase
    #: The consumer that has the call (`Phase.OUT`).
    consumer: str = ""
    #: Routers that have answered, and consumers that have promised (`Phase.ASKING`).
    told: frozenset[str] = frozenset()
    promised: frozenset[str] = frozenset()


class Router(NamedTuple):
    """One router of the mesh."""

    name: str
    peers: tuple[str, ...]
    #: For each process that is linked here the generation of its connection.
    links: Map[str, int] = Map()
    #: All consumers of the mesh that are known here.
    names: Map[str, Place] = Map()
    #: Consumers that are known to no other router yet.
    unheard: frozenset[str] = frozenset()
    #: For each call the latest owner that asked.
    fences: Map[str, Tag] = Map()
    owned: Map[str, Owned] = Map()
    #: Consumer and call of each delivery, for a router that speaks for its consumers (without `Rules.promise`).
    given: frozenset[tuple[str, str]] = frozenset()


def router_reads(rules: Rules, router: Router, source: str, link: int, message: Message, out: Out) -> Router:
    """Return ``router`` after ``message`` from ``source`` on its connection ``link``."""
    match message:
        case Hello():
            return _greeted(rules, router, source, message, out)
        case Request(key, generation):
            return _requested(rules, router, key, generation)
        case Where(key, tag):
            return _questioned(rules, router, key, tag, out)
        case Knows():
            return _told(rules, router, message, out)
        case Offer(key, tag, consumer):
            return _offered(rules, router, key, tag, consumer, out)
        case Back(to, key):
            return _got_back(router, key, to)
        case Said():
            if source == message.consumer and message.word is Word.ANSWERED and not rules.keep:
                out.append(Send(source, link, Noted(message.key)))
            return _said(rules, router, message, out)
        case Newer(to, key, tag):
            if to.owner != router.name:
                out.append(Send(to.owner, 0, message))
                return router
            return _all_seen(rules, router, Map({key: tag}))
        case Interest(consumer, place, fences):
            router = _all_seen(rules, router, fences)
            router = _placed(rules, router, consumer, place, out)
            out.append(Send(source, 0, Heard(consumer, _carried(rules, router))))
            return router._replace(unheard=router.unheard - {consumer})
        case Heard(consumer, fences):
            router = _all_seen(rules, router, fences)
            return router._replace(unheard=router.unheard - {consumer})
    raise AssertionError(message)


def takers(router: Router, key: str) -> list[str]:
    """Return the consumers to which the owner ``router`` may give the call ``key`` now."""
    owned = router.owned.get(key)
    if owned is None or owned.phase is not Phase.FREE:
        return []
    return [
        consumer
        for consumer, place in router.names.items()
        if place.home != router.name or _is_usable(router, consumer)
    ]


def gives(rules: Rules, router: Router, key: str, consumer: str, out: Out) -> Router:
    """Return ``router`` after it gave its call ``key`` to ``consumer``, one of `takers`."""
    tag = router.owned[key].tag
    router = _owning(router, key, Owned(tag, Phase.OUT, consumer))
    if router.names[consumer].home == router.name:
        return _delivered(rules, router, key, tag, consumer, out)
    out.append(Send(router.names[consumer].home, 0, Offer(key, tag, consumer)))
    return router


def asks_again(rules: Rules, router: Router, key: str, out: Out) -> Router:
    """Return the owner ``router`` after it began to ask anew who had the call ``key``, with the next attempt."""
    tag = router.owned[key].tag
    return _asking(rules, router, key, tag._replace(attempt=tag.attempt + 1), out)


def stops_waiting(router: Router, key: str) -> Router:
    """Return the owner ``router`` after its time for asking is over: nobody who spoke had it (no `Rules.roll`)."""
    return _owning(router, key, Owned(router.owned[key].tag, Phase.FREE))


# --- processes come -----------------------------------------------------------------------------


def _greeted(rules: Rules, router: Router, process: str, hello: Hello, out: Out) -> Router:
    known = router.names.get(process, Place(0, ""))
    if hello.generation < router.links.get(process, 0) or (rules.fence and hello.generation < known.generation):
        return router
    router = router._replace(links=router.links.put(process, hello.generation))
    for key in hello.calls:
        tag = Tag(hello.generation, 0, router.name)
        if not (rules.fence and router.fences.get(key, NOBODY) > tag):
            router = _asking(rules, router, key, tag, out)
    return _registered(rules, router, process, hello, out) if hello.is_consumer else router


def _registered(rules: Rules, router: Router, consumer: str, hello: Hello, out: Out) -> Router:
    """A consumer is here. Others are told; it is asked what others were asked while it was away."""
    if rules.announce and consumer not in router.names:
        router = router._replace(unheard=router.unheard | {consumer})
    if not rules.promise:
        router = router._replace(given=router.given | {(consumer, key) for key in hello.had})
    place = Place(hello.generation, router.name)
    router = _placed(rules, router, consumer, place, out)
    out.extend(Send(peer, 0, Interest(consumer, place, _carried(rules, router))) for peer in router.peers)
    if rules.push:
        for key, tag in router.fences.items():
            router = _asks_one(rules, router, consumer, key, tag, out)
    return router


def _placed(rules: Rules, router: Router, consumer: str, place: Place, out: Out) -> Router:
    """A consumer is at ``place``: what it was given at an earlier one may be lost on the way."""
    if router.names.get(consumer, Place(0, "")).generation >= place.generation:
        return router
    router = router._replace(names=router.names.put(consumer, place))
    if place.home != router.name:
        router = router._replace(links=router.links.drop(consumer))
    for key, owned in router.owned.items():
        if owned.phase is Phase.OUT and owned.consumer == consumer:
            if rules.ask_again:
                router = asks_again(rules, router, key, out)
            else:
                router = _ended(router, key, Result(key, is_lost=True), out)
    return router


def _is_usable(router: Router, consumer: str) -> bool:
    return consumer in router.links and consumer not in router.unheard


# --- owner --------------------------------------------------------------------------------------


def _owning(router: Router, key: str, owned: Owned) -> Router:
    return router._replace(owned=router.owned.put(key, owned))


def _asking(rules: Rules, router: Router, key: str, tag: Tag, out: Out) -> Router:
    """Become the owner by asking, and refuse earlier owners from now on."""
    router = router._replace(fences=router.fences.put(key, tag))
    router = _owning(router, key, Owned(tag, Phase.ASKING, told=frozenset({router.name})))
    out.extend(Send(peer, 0, Where(key, tag)) for peer in router.peers)
    return _asks_all(rules, router, key, tag, out)


def _requested(rules: Rules, router: Router, key: str, generation: int) -> Router:
    """A new call: nobody can have had it, unless its caller has gone on and said so elsewhere."""
    tag = Tag(generation, 0, router.name)
    if rules.fence and router.fences.get(key, NOBODY) > tag:
        return router
    return _owning(router, key, Owned(tag, Phase.FREE))


def _got_back(router: Router, key: str, tag: Tag) -> Router:
    """An offer was not delivered: the call may be given to another under the same tag."""
    owned = router.owned.get(key)
    if owned is None or owned.tag != tag or owned.phase is not Phase.OUT:
        return router
    return _owning(router, key, Owned(tag, Phase.FREE))


def _told(rules: Rules, router: Router, answer: Knows, out: Out) -> Router:
    for consumer, place in answer.names.items():
        router = _placed(rules, router, consumer, place, out)
    owned = router.owned.get(answer.key)
    if owned is None or owned.tag != answer.to:
        return router
    return _decided(rules, _owning(router, answer.key, owned._replace(told=owned.told | {answer.router})), answer.key)


def _said(rules: Rules, router: Router, said: Said, out: Out) -> Router:
    """The word of a consumer, here or on the way to its owner."""
    if said.to.owner != router.name:
        out.append(Send(said.to.owner, 0, said))
        return router
    owned = router.owned.get(said.key)
    if said.word is Word.ANSWERED:
        if owned is not None:
            return _ended(router, said.key, Result(said.key), out)
        later = router.fences.get(said.key, NOBODY)
        if rules.forward and later > said.to and later.owner != router.name:
            out.append(Send(later.owner, 0, said._replace(to=later)))
        return router
    if owned is None or owned.tag != said.to:
        return router
    if said.word is Word.STARTED:
        return _owning(router, said.key, Owned(owned.tag, Phase.OUT, said.consumer))
    if owned.phase is not Phase.ASKING:
        return router
    promised = owned._replace(promised=owned.promised | {said.consumer})
    return _decided(rules, _owning(router, said.key, promised), said.key)


def _decided(rules: Rules, router: Router, key: str) -> Router:
    """The call is free again once nobody can have started it: everyone of a complete roll has promised."""
    owned = router.owned[key]
    is_complete = not rules.names or len(owned.told) >= len(router.peers)  # all routers but one
    if owned.phase is Phase.ASKING and is_complete and owned.promised.issuperset(router.names):
        return _owning(router, key, Owned(owned.tag, Phase.FREE))
    return router


def _ended(router: Router, key: str, result: Result, out: Out) -> Router:
    out.append(Send(key, router.owned[key].tag.generation, result))
    return router._replace(owned=router.owned.drop(key))


# --- witness of other owners, and home ----------------------------------------------------------


def _questioned(rules: Rules, router: Router, key: str, tag: Tag, out: Out) -> Router:
    fence = router.fences.get(key, NOBODY)
    if rules.fence and fence > tag:
        out.append(Send(tag.owner, 0, Newer(tag, key, fence)))
        return router
    router = _seen(rules, router, key, tag)
    out.append(Send(tag.owner, 0, Knows(tag, key, router.name, router.names if rules.names else Map())))
    return _asks_all(rules, router, key, tag, out)


def _seen(rules: Rules, router: Router, key: str, tag: Tag) -> Router:
    """A later owner is known: an earlier one gives the call up."""
    owned = router.owned.get(key)
    if owned is not None and rules.give_up and (owned.tag < tag or not rules.fence):
        router = router._replace(owned=router.owned.drop(key))
    return router._replace(fences=router.fences.put(key, tag))


def _all_seen(rules: Rules, router: Router, fences: Map[str, Tag]) -> Router:
    for key, tag in fences.items():
        if tag > router.fences.get(key, NOBODY):
            router = _seen(rules, router, key, tag)
    return router


def _carried(rules: Rules, router: Router) -> Map[str, Tag]:
    return router.fences if rules.carry else Map()


def _asks_all(rules: Rules, router: Router, key: str, tag: Tag, out: Out) -> Router:
    for consumer in router.names:
        if consumer in router.links:
            router = _asks_one(rules, router, consumer, key, tag, out)
    return router


def _asks_one(rules: Rules, router: Router, consumer: str, key: str, tag: Tag, out: Out) -> Router:
    """Ask a consumer that is linked here; without `Rules.promise` its home speaks for it if it knows of nothing."""
    if rules.promise or (consumer, key) in router.given:
        out.append(Send(consumer, router.links[consumer], Ask(key, tag)))
        return router
    return _said(rules, router, Said(tag, key, consumer, Word.NOT_HAD), out)


def _offered(rules: Rules, router: Router, key: str, tag: Tag, consumer: str, out: Out) -> Router:
    fence = router.fences.get(key, NOBODY)
    if rules.fence and fence > tag:
        out.append(Send(tag.owner, 0, Newer(tag, key, fence)))
    elif _is_usable(router, consumer):
        return _delivered(rules, router, key, tag, consumer, out)
    else:
        out.append(Send(tag.owner, 0, Back(tag, key)))
    return router


def _delivered(rules: Rules, router: Router, key: str, tag: Tag, consumer: str, out: Out) -> Router:
    out.append(Send(consumer, router.links[consumer], Deliver(key, tag)))
    return router if rules.promise else router._replace(given=router.given | {(consumer, key)})
