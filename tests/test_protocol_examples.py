"""The specification of the protocol against the code: byte examples both ways, and every table with a counterpart."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from struct import calcsize

import pytest

from rpcmq.config import RouterConfig, describe_fields
from rpcmq.core.common import session as link
from rpcmq.core.common import stream_credit
from rpcmq.core.common.topic_patterns import MAX_TOPIC_BYTES, MAX_TOPIC_WORDS
from rpcmq.core.process import direct_links as peers
from rpcmq.core.process import recent_messages, tickets
from rpcmq.core.process.uplink import Uplink
from rpcmq.core.process.uplink_states import TRANSITIONS, UplinkState
from rpcmq.core.router import view_rows
from rpcmq.core.router.actions import Answer
from rpcmq.core.router.roundrobin import departures
from rpcmq.core.router.router import Router
from rpcmq.core.router.settings import Settings
from rpcmq.errors import Outcome
from rpcmq.payload.format import Format
from rpcmq.payload.tags import COLLECTIONS, READERS
from rpcmq.payload.typed_json import DEFAULT_MAX_DEPTH
from rpcmq.server.settings import settings_for
from rpcmq.wire import (
    DETACH_BYTES,
    FIRST_SESSION_KIND,
    HEADER,
    MAX_ERROR_BYTES,
    MAX_INLINE_BYTES,
    NO_TTL,
    SETTLEMENT,
    VERSION,
    Address,
    Flag,
    Header,
    Kind,
    control,
    pack,
    parse,
    payload_of,
    size_of,
    split,
)
from rpcmq.wire.bodies import HelloBody
from rpcmq.wire.mesh_bodies import RoutersBody
from tests.protocol_pages import protocol_text
from tests.views import VIEWS

TEXT = protocol_text()
FLAGS = {name: value for name, value in vars(Flag).items() if name.isupper()}


# --- the examples, as they stand in the document ---------------------------------------------------


@dataclass
class Example:
    """The messages of one example: annotated fields, and the bytes of each frame."""

    name: str
    frames: list[bytearray] = field(default_factory=lambda: [bytearray()])
    messages: list[list[tuple[str, str, bytes]]] = field(default_factory=list)

    def add(self, text: str) -> None:
        """A line of the block."""
        if text.startswith("-- frame"):
            self.frames.append(bytearray())
            return
        digits, bar, note = text.partition("|")
        assert bar, f"{self.name}: no annotation in {text!r}"
        byte, times, count = digits.partition("*")
        data = bytes.fromhex(byte) * (int(count) if times else 1)
        self.frames[-1] += data
        if len(self.frames) > 1:
            return
        name, _, value = note.strip().partition(" = ")
        if name == "length":
            self.messages.append([])
        if name:
            self.messages[-1].append((name, value, data))
        else:  # more bytes of the line before
            name, value, begun = self.messages[-1].pop()
            self.messages[-1].append((name, value, begun + data))


def examples() -> Iterator[Example]:
    for name, body in re.findall(r"^```rpcmq-bytes (\S+)\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL):
        example = Example(name)
        for text in body.splitlines():
            example.add(text)
        yield example


EXAMPLES = {example.name: example for example in examples()}


def number(value: str) -> int:
    return int(value.split(" ", 1)[0], 0)


def header_of(fields: list[tuple[str, str, bytes]]) -> dict[str, int]:
    return {name: number(value) for name, value, _ in fields if name in Header._fields}


def part_of(fields: list[tuple[str, str, bytes]], name: str) -> bytes:
    return b"".join(data for label, _, data in fields if label.split(" ")[0] == name)


def test_the_document_has_the_examples_that_an_implementer_needs() -> None:
    assert len(EXAMPLES) >= 9
    kinds = {Kind(header_of(fields)["kind"]) for example in EXAMPLES.values() for fields in example.messages}
    wanted = {Kind.HELLO, Kind.WELCOME, Kind.REGISTER, Kind.REQUEST, Kind.REPLY, Kind.CAST, Kind.SETTLE, Kind.ACK}
    wanted |= {Kind.OCCUPIED, Kind.GIVE_BACK, Kind.HEDGE, Kind.REQUEST_GRANT, Kind.REQUEST_ITEM, Kind.REQUEST_END}
    assert wanted <= kinds
    assert any(len(example.messages) == 2 for example in EXAMPLES.values())
    assert any(len(example.frames) == 2 for example in EXAMPLES.values())


@pytest.mark.parametrize("name", EXAMPLES)
def test_decoding_gives_the_annotated_fields(name: str) -> None:
    example = EXAMPLES[name]
    batch, *payloads = map(bytes, example.frames)

    messages = split(batch, payloads)

    assert len(messages) == len(example.messages)
    for message, fields in zip(messages, example.messages, strict=True):
        assert [label for label, _, _ in fields][:15] == list(Header._fields)
        assert parse(message)._asdict() == header_of(fields)
        if not parse(message).flags & Flag.DETACHED:
            assert bytes(payload_of(message)) == part_of(fields, "payload")


@pytest.mark.parametrize("name", EXAMPLES)
def test_encoding_the_annotated_values_gives_the_bytes(name: str) -> None:
    example = EXAMPLES[name]
    payloads = [bytes(frame) for frame in example.frames[1:]]
    encoded = [encode(fields, payloads) for fields in example.messages]

    assert b"".join(encoded) == bytes(example.frames[0])
    assert sum(map(size_of, encoded)) == sum(map(len, example.frames))
    assert not payloads, "a payload frame that no message has"


def encode(fields: list[tuple[str, str, bytes]], payloads: list[bytes]) -> bytes:
    header = header_of(fields)
    values = {name: value for name, value, _ in fields}
    payload = part_of(fields, "payload")
    if header["flags"] & Flag.DETACHED:
        payload = payloads.pop(0)
    address = b""
    if "address topic" in values:
        names = {n: json.loads(values.get(f"address {n}", '""')) for n in ("exchange", "topic", "server")}
        address = Address(**names).encode()
    key = b"".join(header[name].to_bytes(size) for name, size in (("router", 4), ("handle", 8), ("sequence", 8)))
    return pack(
        header["kind"],
        payload,
        flags=header["flags"] & ~Flag.DETACHED,
        format=header["format"],
        ttl=header["ttl"],
        key=key,
        address=address,
        method=json.loads(values.get("method", '""')).encode(),
        trace=json.loads(values.get("trace", '""')).encode(),
        attempt=header["attempt"],
        consumer=header["consumer"],
        hops=header["hops"],
    )


@pytest.mark.parametrize("name", EXAMPLES)
def test_annotations_name_what_the_numbers_mean(name: str) -> None:
    for fields in EXAMPLES[name].messages:
        values = {label: value for label, value, _ in fields}
        header = header_of(fields)
        assert f"({Kind(header['kind']).name})" in values["kind"]
        # Without NOT_AGAIN the bits of TRIED are flags of their own.
        known = FLAGS if header["flags"] & Flag.NOT_AGAIN else {**FLAGS, "TRIED": 0}
        flags = [flag for flag, bit in known.items() if header["flags"] & bit]
        assert values["flags"].partition(" ")[2] == (f"({'+'.join(flags)})" if flags else "")
        assert header["ttl"] != NO_TTL or values["ttl"].endswith("(none)")
        if header["format"]:
            assert f"({Format(header['format']).label})" in values["format"]


@pytest.mark.parametrize("name", EXAMPLES)
def test_annotated_variable_parts_are_what_the_bytes_say(name: str) -> None:
    for fields in EXAMPLES[name].messages:
        for label, value, data in fields[15:]:
            if label == "address lengths":
                assert data == bytes(map(int, value.split()))
            elif value.startswith('"') and label != "payload":
                assert data.decode() == json.loads(value)
            elif value.isdigit():
                assert int.from_bytes(data) == int(value)
            else:
                assert data.decode() == value


def test_settle_example_is_records_of_the_settlement_format() -> None:
    (fields,) = EXAMPLES["settle"].messages
    annotated = [int(value) for label, value, _ in fields if label.startswith("payload")]
    unpacked: list[int] = []
    for key, attempt, outcome, spent in SETTLEMENT.iter_unpack(part_of(fields, "payload")):
        unpacked += [int.from_bytes(key[:4]), int.from_bytes(key[4:12]), int.from_bytes(key[12:])]
        unpacked += [attempt, outcome, spent]

    assert unpacked == annotated
    assert SETTLEMENT.size == 26


def test_an_uplink_takes_the_welcome_example_and_a_router_the_hello_example() -> None:
    router = new_router()
    router.receive(0.0, b"c", bytes(EXAMPLES["hello"].frames[0]))
    assert [each.identity for each in router.links] == ["node-7:compute"]

    welcomed: list[bool] = []
    uplink = Uplink(
        HelloBody(versions=(1,), identity="x", queue_type="roundrobin"),
        lambda now, welcome: welcomed.append(welcome.resumed),
        lambda *refused: None,
    )
    uplink.connected(0.0)
    uplink.receive(0.0, bytes(EXAMPLES["welcome"].frames[0]))
    assert welcomed == [False]
    header = header_of(EXAMPLES["register"].messages[0])
    assert uplink.origin == header["router"].to_bytes(4) + header["handle"].to_bytes(8)


# --- tables -----------------------------------------------------------------------------------------


def table(title: str) -> list[list[str]]:
    """The rows of the table whose first header cells are ``title``, cells without backticks."""
    lines = TEXT.splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith(f"| {title} |"))
    rows = []
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip().replace("`", "") for cell in line.strip("|").split("|")])
    return rows


def test_header_table_is_the_struct() -> None:
    rows = table("offset | bytes | field")
    codes = HEADER.format.removeprefix(">")

    assert [row[2] for row in rows] == list(Header._fields)
    assert [int(row[1]) for row in rows] == [calcsize(f">{code}") for code in codes]
    assert [int(row[0]) for row in rows] == [calcsize(f">{codes[:n]}") for n in range(len(codes))]
    assert HEADER.size == 40 and VERSION == 1


def test_kind_table_is_complete() -> None:
    rows = table("number | kind | direction")

    assert {row[1]: int(row[0], 16) for row in rows} == {kind.name: int(kind) for kind in Kind}
    assert len(rows) == len(Kind)


def test_kinds_below_the_session_have_no_key() -> None:
    for row in table("number | kind | direction"):
        assert int(row[0], 16) >= FIRST_SESSION_KIND or "key" not in row[3]


def test_flag_table_is_complete() -> None:
    assert {row[1]: int(row[0], 16) for row in table("bit | flag")} == FLAGS


def test_outcome_table_is_complete() -> None:
    assert {row[1]: int(row[0]) for row in table("outcome | name")} == {o.name: int(o) for o in Outcome}


def test_format_table_is_complete() -> None:
    assert {row[1]: int(row[0]) for row in table("number | name")} == {f.label: int(f) for f in Format}


def test_tag_table_is_complete() -> None:
    tags = {tag.strip() for row in table("tag | content") for tag in row[0].split(",")}

    assert tags == {*READERS, "exception"}
    assert set(COLLECTIONS.values()) <= tags


def test_limits_table_states_the_defaults() -> None:
    defaults = {info.key: info for info in describe_fields()}
    named = {row[1]: row[2] for row in table("limit | setting") if row[1]}
    for key, stated in named.items():
        if stated == "half of the memory":
            stated = "0"
        value, _, unit = stated.partition(" ")
        factor = {"GiB": 1 << 30, "MiB": 1 << 20, "": 1, "s": 1}[unit]
        assert float(value) * factor == defaults[key].default, key
    assert settings_for(RouterConfig()).queue_max_bytes == defaults["queue.max_bytes"].default


def test_every_setting_that_bounds_the_engine_is_in_the_limits_table() -> None:
    bounds = {
        info.key
        for info in describe_fields()
        if info.kind.name in ("integer", "bytes", "seconds")
        and info.key not in ("router.id", "router.io_threads", "router.cpu")
        # These bound files and processes, and nobody who speaks the protocol.
        and not info.key.startswith(("dispatch_log.", "queue.orphan_seconds", "queue.takeover_seconds"))
    }

    named = {row[1] for row in table("limit | setting") if row[1]}
    assert bounds - named == {"link.heartbeat_seconds"}, "WELCOME states it"
    assert named <= bounds


def test_limits_without_a_setting_are_those_of_the_code() -> None:
    stated = {row[0]: row[2] for row in table("limit | setting") if not row[1]}

    assert stated["payload that is detached"] == f"{DETACH_BYTES} bytes"
    assert stated["one message in a batch frame"] == f"{MAX_INLINE_BYTES} bytes"
    assert stated["sent and not acknowledged"] == f"{link.WINDOW_BYTES >> 20} MiB"
    assert stated["detached payloads of a batch"] == f"{link.BATCH_BYTES >> 20} MiB together, or one"
    assert stated["connections in a row that end before more was acknowledged"] == str(link.MAX_FAILED_RESUMPTIONS)
    assert stated["messages in a batch"].startswith(f"{link.BATCH_MESSAGES} sent")
    acked = f"{link.ACK_MESSAGES} messages, {link.ACK_BYTES // 1024} KiB"
    assert stated["received and not acknowledged"] == acked
    assert stated["items of a stream before a GRANT"] == str(stream_credit.UNASKED_ITEMS)
    unasked = f"{stream_credit.UNASKED_BYTES >> 10} KiB"
    assert stated["bytes of a stream before a GRANT, where they are counted"] == unasked
    most = f"{stream_credit.MAX_STREAM_BYTES >> 20} MiB"
    assert stated["items granted and not sent"] == str(stream_credit.MAX_STREAM_ITEMS)
    assert stated["bytes of items granted and not sent"] == most
    assert stated["items of a request's stream granted and not sent"] == str(stream_credit.MAX_STREAM_ITEMS)
    assert stated["bytes of them"] == most
    assert stated["a topic or pattern of PubSub"] == f"{MAX_TOPIC_BYTES} bytes, {MAX_TOPIC_WORDS} words"
    assert stated["name of the class in a FAULT"] == f"{MAX_ERROR_BYTES} bytes"
    assert stated["consumers that are lost with one idempotent message"] == str(departures.MAX_ATTEMPTS)
    assert stated["rows of a view"] == str(view_rows.MAX_ROWS)
    assert stated["nesting of typed JSON"] == str(DEFAULT_MAX_DEPTH)
    assert f"this implementation remembers {recent_messages._MAX_MESSAGES}" in TEXT
    assert f"for {tickets.TICKET_SECONDS:.0f} s" in TEXT
    assert f"up to {peers.MAX_WAITING:,} more wait" in TEXT


def test_link_diagram_is_the_transition_table() -> None:
    diagram = re.search(
        r"^```mermaid\n(stateDiagram-v2\n    \[\*\] --> down\n.*?)^```$", TEXT, re.MULTILINE | re.DOTALL
    )
    assert diagram is not None
    drawn = {
        (UplinkState(start), event): UplinkState(end)
        for start, end, event in re.findall(r"(\w+) --> (\w+): (\w+)", diagram[1])
    }

    assert drawn == TRANSITIONS


def test_views_are_listed() -> None:
    listed = re.search(r"QUERY `what` is one of ([^;]*);", TEXT)
    assert listed is not None
    assert set(re.findall(r"`(\w+)`", listed[1])) == set(VIEWS)


# --- what the document says a router answers ---------------------------------------------------------


def new_router(max_links: int = 10) -> Router:
    return Router(Settings(max_links=max_links), 1_763_719_200_000, 0.0, lambda: "token")


def hello(router: Router, route: bytes = b"c", **changes: object) -> str:
    """Say HELLO; the reason of the refusal, or empty."""
    body = {"identity": "a", "queue_type": "roundrobin", "versions": [1], **changes}
    router.receive(0.0, route, control(Kind.HELLO, body))
    return refusal(router)


def refusal(router: Router) -> str:
    answers = [action.message for action in router.actions if isinstance(action, Answer)]
    router.actions.clear()
    return str(json.loads(bytes(payload_of(answers[-1])))["reason"]) if answers else ""


def test_each_documented_refusal_reason_is_given_and_no_other() -> None:
    given = {
        hello(new_router(), versions=[2]),
        hello(new_router(), identity=""),
        hello(new_router(), queue_type="x"),
        hello(new_router(max_links=0)),
    }
    router = new_router()
    assert hello(router) == ""
    given.add(hello(router, b"other"))
    router.begin_drain(0.0)
    given.add(hello(router, identity="b"))
    router.receive(0.0, b"stranger", pack(Kind.HEARTBEAT))
    given.add(refusal(router))
    router.receive(0.0, b"stranger", b"junk")
    given.add(refusal(router))
    guarded = new_router()
    guarded.set_authorized_keys(0.0, [])
    given.add(hello(guarded))
    kicking = new_router()
    for identity in ("a", "b"):
        hello(kicking, identity.encode(), identity=identity)
    kicking.actions.clear()
    kick = {"what": "control.kick", "identity": "a"}
    kicking.receive(0.0, b"b", pack(Kind.QUERY, json.dumps(kick).encode(), format=1))
    given.add(refusal(kicking))
    full = new_router()
    assert hello(full) == ""
    full.settings.router_max_bytes = 1000
    full.links.routes[b"c"].outbox.append(pack(Kind.ALIVE, bytes(2000)))
    full.memory.received(1)
    full.tick(2.0)
    given.add(refusal(full))

    assert given == {row[0] for row in table("reason | meaning")}


def test_welcome_has_the_documented_members() -> None:
    router = new_router()
    router.links.mesh = RoutersBody(mesh="rpcmq").encode()
    hello(router, follows_mesh=True)
    (link_,) = router.links
    welcome = json.loads(bytes(payload_of(link_.first_messages[0])))

    section = TEXT[TEXT.index("### WELCOME") : TEXT.index("### REFUSED")]
    documented = {
        name for names in re.findall(r"^\| (`[^|]*)\|", section, re.MULTILINE) for name in re.findall(r"`(\w+)`", names)
    }
    assert set(welcome) == documented
