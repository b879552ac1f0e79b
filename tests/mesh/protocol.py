"""A model of adoption: calls that must not start twice, in a mesh of routers of which any may die.

The whole protocol is in this file: messages, the state of a router, of a consumer and of a caller, and for each of them
a pure function from a state and a message to the next state and the messages that go out. `world.py` is the network.

Words: the *owner* of a call is the router that answers for it, the *home* of a process the router that it is linked to.
The *roll* of a call is everyone who could have started it. A process that leaves its router for another *moves*.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, NamedTuple, TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")


@dataclass(frozen=True)
class Rules:
    """The rules of adoption as switches; `docs/contributing/mesh-model.md` tells them in order."""

    #: A consumer remembers a call that it had, and keeps its answer, until the caller's process has the answer.
    keep: bool = True
    #: A call is started again only when everyone of its roll has spoken, and not when a time is over.
    roll: bool = True
    #: A consumer speaks for itself, and starts nothing below the stamp for which it said "not had".
    promise: bool = True
    #: Whoever has seen an owner refuses all that an earlier owner sends, and tells it of the later one.
    fence: bool = True
    #: A consumer that links itself later is asked what the others were asked.
    push: bool = True
    #: A process that moved never reads its earlier connection again.
    drop_old: bool = True
    #: A consumer gets no work before a second router knows its name.
    announce: bool = True
    #: Routers that are asked answer with the consumers that they know; all but one must have answered.
    names: bool = True
    #: The news of a consumer, and its acknowledgement, say which owners the sender has seen.
    carry: bool = True
    #: A consumer that had the call sends its answer to the owner that asked last.
    retag: bool = True
    #: An owner asks again when the consumer of a call has moved, instead of telling the caller that it is lost.
    ask_again: bool = True
    #: An earlier owner gives the call up when it reads the question of a later one.
    give_up: bool = True
    #: An answer that reaches an earlier owner goes on to the later one.
    forward: bool = True

    def without(self, *names: str) -> Rules:
        """Return these rules with those called ``names`` switched off."""
        return replace(self, **dict.fromkeys(names, False))


class Map(dict[Key, Value]):
    """A dict that nobody changes: it can be hashed."""

    def put(self, key: Key, value: Value) -> Map[Key, Value]:
        """Return a copy in which ``key`` has ``value``."""
        copy = Map(self)
        copy[key] = value
        return copy

    def drop(self, key: Key) -> Map[Key, Value]:
        """Return a copy without ``key``."""
        copy = Map(self)
        copy.pop(key, None)
        return copy

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self.items()))


class Tag(NamedTuple):
    """An owner of a call, and its place in the order of all owners.

    Only the caller counts generations, one for each of its moves, and only an owner counts its own attempts: so the
    order needs no clock, no election and no counter that two share.
    """

    generation: int
    attempt: int
    owner: str


class Place(NamedTuple):
    """The home of a consumer after so many moves: a state with a version, the higher one is true."""

    generation: int
    home: str


class Word(Enum):
    """All that a consumer can say of a call."""

    NOT_HAD = "not had"
    STARTED = "started"
    ANSWERED = "answered"


class Phase(Enum):
    """Stages of a call at its owner."""

    FREE = "free"  # may be given to any consumer
    OUT = "out"  # is with one consumer, or on the way to it
    ASKING = "asking"  # may have been started by somebody: all are asked


# --- messages -----------------------------------------------------------------------------------


class Hello(NamedTuple):
    """From a process to its new home, with the calls that it waits for, or the calls that it had."""

    generation: int
    calls: tuple[str, ...] = ()
    had: tuple[str, ...] = ()
    is_consumer: bool = False


class Request(NamedTuple):
    """From a caller: a call that was never sent before."""

    key: str
    generation: int


class Deliver(NamedTuple):
    """To a consumer: start this call."""

    key: str
    tag: Tag


class Ask(NamedTuple):
    """To a consumer: did you have this call? If not, start it for no earlier owner than this."""

    key: str
    tag: Tag


class Said(NamedTuple):
    """The word of a consumer for the owner ``to``, by way of the consumer's home; with the answer, if there is one."""

    to: Tag
    key: str
    consumer: str
    word: Word


class Noted(NamedTuple):
    """To a consumer whose answer its home has read; only sent without `Rules.keep`."""

    key: str


class Result(NamedTuple):
    """To the caller: the call ended, with its answer or with ``LinkLost``."""

    key: str
    is_lost: bool = False


class Where(NamedTuple):
    """From a new owner to all routers: who had this call?"""

    key: str
    tag: Tag


class Knows(NamedTuple):
    """A router's own answer to `Where`: the consumers that it knows. Their words come one by one, as `Said`."""

    to: Tag
    key: str
    router: str
    names: Map[str, Place]


class Offer(NamedTuple):
    """From an owner to the home of a consumer: deliver this call to it."""

    key: str
    tag: Tag
    consumer: str


class Back(NamedTuple):
    """From a home to an owner: the consumer is not here, nothing was delivered."""

    to: Tag
    key: str


class Newer(NamedTuple):
    """To an owner that was refused: this is the later one."""

    to: Tag
    key: str
    tag: Tag


class Interest(NamedTuple):
    """From a home to all routers: this consumer is here; with the owners that the sender has seen."""

    consumer: str
    place: Place
    fences: Map[str, Tag]


class Heard(NamedTuple):
    """The acknowledgement of `Interest`, with the owners that its sender has seen."""

    consumer: str
    fences: Map[str, Tag]


Message = (
    Hello | Request | Deliver | Ask | Said | Noted | Result | Where | Knows | Offer | Back | Newer | Interest | Heard
)


class Send(NamedTuple):
    """A message on its way out. ``link`` is the generation of a process's connection, 0 between routers."""

    target: str
    link: int
    message: Message


Out = list[Send]

# --- consumers and callers ----------------------------------------------------------------------


class Record(NamedTuple):
    """A consumer's memory of a call: the last owner that it heard of, and its own word."""

    tag: Tag
    word: Word


class Consumer(NamedTuple):
    """A process that starts calls. ``starts`` is the observer's count and no part of the protocol."""

    name: str
    generation: int
    home: str
    records: Map[str, Record] = Map()
    starts: Map[str, int] = Map()


class Caller(NamedTuple):
    """A process that waits for one call, which is named after it; ``ended`` is "" until then."""

    name: str
    generation: int
    home: str
    ended: str = ""


def consumer_reads(rules: Rules, consumer: Consumer, message: Message, out: Out) -> Consumer:
    """Return ``consumer`` after ``message``."""
    match message:
        case Deliver(key, tag):
            record = consumer.records.get(key)
            if record is None or (record.word is Word.NOT_HAD and record.tag <= tag):
                return _started(consumer, key, tag)
            if record.word is not Word.NOT_HAD and not rules.retag:
                return consumer
            return _asked(rules, consumer, key, tag, out)
        case Ask(key, tag):
            return _asked(rules, consumer, key, tag, out)
        case Noted(key):
            return consumer._replace(records=consumer.records.drop(key))
    raise AssertionError(message)


def consumer_finishes(consumer: Consumer, key: str, out: Out) -> Consumer:
    """Return ``consumer`` after it finished the call ``key``, which it had started."""
    tag = consumer.records[key].tag
    _to_home(consumer, Said(tag, key, consumer.name, Word.ANSWERED), out)
    return _recorded(consumer, key, Record(tag, Word.ANSWERED))


def caller_reads(caller: Caller, message: Message) -> Caller:
    """Return ``caller`` after ``message``."""
    assert isinstance(message, Result)
    return caller if caller.ended else caller._replace(ended="lost" if message.is_lost else "result")


def moved(process: Any, home: str, out: Out) -> Any:
    """Return a caller or a consumer after it left its home, or lost it, and said hello to another one."""
    process = process._replace(generation=process.generation + 1, home=home)
    _to_home(process, hello_of(process), out)
    return process


def hello_of(process: Caller | Consumer) -> Hello:
    """Return the first message of ``process`` to its home."""
    if isinstance(process, Caller):
        return Hello(process.generation, calls=() if process.ended else (process.name,))
    had = tuple(sorted(key for key, record in process.records.items() if record.word is not Word.NOT_HAD))
    return Hello(process.generation, had=had, is_consumer=True)


def _started(consumer: Consumer, key: str, tag: Tag) -> Consumer:
    count = consumer.starts.get(key, 0) + 1
    return _recorded(consumer, key, Record(tag, Word.STARTED))._replace(starts=consumer.starts.put(key, count))


def _asked(rules: Rules, consumer: Consumer, key: str, tag: Tag, out: Out) -> Consumer:
    """An owner wants to know: promise, or tell what is known and send the answer to this owner from now on."""
    record = consumer.records.get(key, Record(tag, Word.NOT_HAD))
    if record.tag > tag and (rules.fence or record.word is Word.NOT_HAD):
        _to_home(consumer, Newer(tag, key, record.tag), out)
        return consumer
    _to_home(consumer, Said(tag, key, consumer.name, record.word), out)
    if rules.promise if record.word is Word.NOT_HAD else rules.retag:
        consumer = _recorded(consumer, key, record._replace(tag=tag))
    return consumer


def _recorded(consumer: Consumer, key: str, record: Record) -> Consumer:
    return consumer._replace(records=consumer.records.put(key, record))


def _to_home(process: Caller | Consumer, message: Message, out: Out) -> None:
    out.append(Send(process.home, process.generation, message))
