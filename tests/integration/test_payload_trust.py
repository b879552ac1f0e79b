"""Untrusted payloads are refused before they are decoded, whichever way they come; trusted ones go through.

The stranger here is a process of the same router without the keys: what it can send, a router that was taken
over can send, too. Its payloads leave a mark when they are decoded.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
from gevent.event import Event

from rpcmq import Client, Service
from rpcmq.client.consumer import ANSWERED
from rpcmq.client.request import current_request
from rpcmq.core.process.call import Call
from rpcmq.errors import ConfigError, PayloadRefused, RemoteError, UnknownMethod
from rpcmq.payload import Codec, Format
from rpcmq.payload.seal import MacKeys, Signer
from rpcmq.testing import InProcessRouter, eventually
from rpcmq.transport.mac_files import new_mac_key, read_mac_keys, use_mac_key
from rpcmq.wire import Address, Flag, Kind, pack
from tests.client.endpoints import Compute
from tests.client.endpoints import message as body
from tests.payload.marks import MARKS, marked

pytestmark = pytest.mark.integration

COMPUTE = Address("compute").encode()
SIGNED = '[[topics]]\ntopics = ["#"]\nrequire = true\n'
JSON_ONLY = '[[topics]]\ntopics = ["#"]\nformats = ["json"]\n'
NO_GLOBALS = '[[topics]]\ntopics = ["#"]\nonly = true\nallow = []\n'
NOT_DILL = '[[topics]]\ntopics = ["#"]\nformats = ["json", "pickle"]\n'
#: Name -> policy, key of the stranger, format, and the reason that is counted.
SCENARIOS: dict[str, tuple[str, str, Format, str]] = {
    "unsigned": (SIGNED, "", Format.PICKLE, "not signed"),
    "forged": (SIGNED, "ours", Format.PICKLE, "wrong signature"),
    "forged, though not needed": (NOT_DILL, "ours", Format.PICKLE, "wrong signature"),
    "unknown key": (SIGNED, "theirs", Format.PICKLE, "unknown key"),
    "format": (JSON_ONLY, "", Format.PICKLE, "format"),
    "dill": (NOT_DILL, "", Format.DILL, "format"),
    "global": (NO_GLOBALS, "", Format.PICKLE, "decoder"),
}


class Trust:
    """Files of trust, and processes that have them."""

    def __init__(self, folder: Path, router: InProcessRouter, connect: Callable[..., Client]) -> None:
        self.folder = folder
        self.keys = folder / "mac.toml"
        new_mac_key(self.keys, "ours")
        self._router = router
        self._connect = connect

    def file(self, policy: str) -> str:
        path = self.folder / "trust.toml"
        path.write_text(policy)
        return str(path)

    def client(self, policy: str, **settings: Any) -> Client:
        trusted = {"trust_file": self.file(policy), "mac_file": str(self.keys)}
        return self._connect(**(trusted | {"allow": ["tests.payload.marks:Mark"], "accept_dill": True} | settings))

    def stranger(self, **settings: Any) -> Client:
        client = self._connect(**({"accept_dill": True} | settings))
        client.connect()
        return client


@pytest.fixture
def trust(tmp_path: Path, router: InProcessRouter, connect: Callable[..., Client]) -> Trust:
    MARKS.clear()
    return Trust(tmp_path, router, connect)


@pytest.fixture(params=SCENARIOS)
def scenario(request: pytest.FixtureRequest) -> tuple[str, str, Format, str]:
    return SCENARIOS[request.param]


def hostile(key: str, form: int, kind: int, **fields: Any) -> tuple[int, bytes]:
    """Flag and payload of something that leaves a mark, signed with a key that the receiver has by another value."""
    if not key:
        return 0, marked()
    sealer = Signer(MacKeys(key, {key: b"?" * 32}), "stranger")
    return Flag.SEALED, sealer.seal(kind, form, marked(), **fields)[0]


def send_call(client: Client, flags: int, form: int, payload: bytes) -> Call:
    process = client.process
    call = process.calls.start(
        monotonic(), Call("compute", flags, 5.0), Kind.REQUEST, payload, format=form, address=COMPUTE, method=b"note"
    )
    process.connection.schedule()
    process.wait(call)
    return call


def send_cast(client: Client, flags: int, form: int, payload: bytes) -> None:
    process = client.process
    key = process.uplink.next_key()
    message = pack(Kind.CAST, payload, flags=flags, format=form, key=key, address=COMPUTE, method=b"note")
    process.casts.send(message, COMPUTE)
    process.connection.schedule()


def refused(client: Client, reason: str) -> int:
    return client.process.payloads.refused[reason]


# --- what is sent to a service -------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["call", "cast", "fanout", "direct"])
def test_requests_are_refused_before_they_are_decoded(trust: Trust, serve: Any, scenario: Any, verb: str) -> None:
    policy, key, form, reason = scenario
    compute = Compute()
    client = trust.client(policy)
    serve(compute, client=client, direct=verb == "direct")
    stranger = trust.stranger()
    kind = Kind.CAST if verb in ("cast", "fanout") else Kind.REQUEST
    flags, payload = hostile(key, form, kind, address=COMPUTE, method=b"note")
    if verb == "call":
        answer = send_call(stranger, flags, form, payload).answer
        assert answer is not None and answer[5] == Kind.FAULT
    elif verb == "direct":
        process = stranger.process
        link = process.direct.link_to(COMPUTE, "compute", 5.0)
        assert link is not None
        call = Call("compute", flags, 5.0)
        process.direct.call(link, call, payload, form, COMPUTE, b"note")
        assert call.answer is not None and call.answer[5] == Kind.FAULT
    else:
        send_cast(stranger, flags | (Flag.FANOUT if verb == "fanout" else 0), form, payload)
    eventually(lambda: refused(client, reason) == 1)
    assert MARKS == [] and compute.seen == []


@pytest.mark.parametrize(
    ("flags", "form", "payload", "reason"),
    [
        (0, Format.PICKLE, marked(), "decoder"),
        (0, Format.JSON, b"[" * 1000 + b"]" * 1000, "decoder"),
        (0, Format.JSON, b'"' + b"a" * 5000 + b'"', "decoder"),
        (Flag.SEALED, Format.PICKLE, b"short", "malformed signature"),
    ],
    ids=["global", "depth", "size", "signature"],
)
def test_what_a_process_without_a_policy_refuses_is_counted_too(
    serve: Any, connect: Callable[..., Client], flags: int, form: Format, payload: bytes, reason: str
) -> None:
    MARKS.clear()
    client = connect(codec=Codec(max_bytes=4096))
    serve(Compute(), client=client)
    stranger = connect()
    stranger.connect()
    answer = send_call(stranger, flags, form, payload).answer
    assert answer is not None and answer[5] == Kind.FAULT
    assert client.process.payloads.refused == {reason: 1}
    assert MARKS == []


def test_events_are_refused_before_they_are_decoded(trust: Trust, scenario: Any) -> None:
    policy, key, form, reason = scenario
    client = trust.client(policy)
    seen: list[Any] = []
    client.subscribe("alarms.#", lambda ctx, topic, payload: seen.append(payload))
    client.subscribe("#", lambda ctx, topic, payload: seen.append(payload))
    stranger = trust.stranger()
    stranger.publish(None, "other", 1)  # so that the link is there
    address = Address("alarms.fire").encode()
    flags, payload = hostile(key, form, Kind.PUBLISH, address=address)
    link = stranger._links.event_link
    assert link is not None
    before = refused(client, reason)
    message = pack(Kind.PUBLISH, payload, flags=flags, format=form, key=link._uplink.next_key(), address=address)
    link._casts.send(message, address)
    link.connection.schedule()
    eventually(lambda: refused(client, reason) > before)
    assert MARKS == [] and 1 not in seen[1:]


# --- what a service answers ----------------------------------------------------------------------


class Hostile:
    """A service that answers with what leaves a mark."""

    def __init__(self, key: str, form: int) -> None:
        self._key = key
        self._form = form

    def answer(self, ctx: Any, kind: int) -> Any:
        request = current_request()
        assert request is not None
        task = request._task
        process = self.service.client.process
        flags, payload = hostile(self._key, self._form, kind, bound=b"?" * 16)
        if kind in (Kind.REPLY, Kind.FAULT):
            process.tasks.answer(monotonic(), task, kind, self._form, payload, flags=flags)
            return ANSWERED
        process.tasks.send_item(task, kind, self._form, payload, flags)
        return 5

    service: Service


@pytest.mark.parametrize(
    ("kind", "direct"),
    # A direct link has no streams.
    [(kind, False) for kind in (Kind.REPLY, Kind.FAULT, Kind.ITEM, Kind.ALIVE)]
    + [(kind, True) for kind in (Kind.REPLY, Kind.FAULT, Kind.ALIVE)],
    ids=lambda value: value.name if isinstance(value, Kind) else "direct" if value else "routed",
)
def test_answers_are_refused_before_they_are_decoded(
    trust: Trust, serve: Any, scenario: Any, kind: Kind, direct: bool
) -> None:
    policy, key, form, reason = scenario
    endpoint = Hostile(key, form)
    endpoint.service = serve(endpoint, client=trust.stranger(), direct=direct)
    client = trust.client(policy)
    request = body("answer", kind=int(kind))

    def ask() -> Any:
        if kind == Kind.ITEM:
            return next(iter(client.multicall(None, "compute", request, timeout=10)))
        return client.call(None, "compute", request, timeout=10, on_progress=MARKS.append, direct=direct)

    with pytest.raises((RemoteError, PayloadRefused)) as caught:
        ask()
    if kind != Kind.FAULT or reason != "decoder":
        assert "refused" in str(caught.value) or "not on this process's allow-list" in str(caught.value)
    assert refused(client, reason) >= 1
    assert MARKS == []


def test_the_end_of_a_stream_cannot_be_invented(trust: Trust, serve: Any) -> None:
    class Short:
        def count(self, ctx: Any) -> Any:
            request = current_request()
            assert request is not None
            service.client.process.tasks.answer(monotonic(), request._task, Kind.END, Format.JSON, b"")
            return ANSWERED

    service = serve(Short(), client=trust.stranger())
    client = trust.client(SIGNED)
    with pytest.raises(RemoteError, match="not signed"):
        list(client.multicall(None, "compute", body("count"), timeout=10))


# --- what is as it should be ---------------------------------------------------------------------


@pytest.mark.parametrize("direct", [False, True], ids=["routed", "direct"])
def test_who_has_the_keys_is_understood(trust: Trust, serve: Any, direct: bool) -> None:
    compute = Compute()
    server = trust.client(SIGNED)
    serve(compute, client=server, direct=True)
    client = trust.client(SIGNED)
    big = bytes(100_000)
    assert client.call(None, "compute", body("add", a=1, b=2), direct=direct) == 3
    assert client.call(None, "compute", body("echo", value=big), direct=direct) == big
    assert client.call(None, "compute.node-7", body("add", a=1), direct=direct) == 1
    with pytest.raises(UnknownMethod, match="no public method"):
        client.call(None, "compute", body("nonsense"), direct=direct)
    assert list(client.multicall(None, "compute", body("count", n=100))) == list(range(100))
    client.cast(None, "compute", body("note", value=1))
    client.cast(None, "compute", body("note", value=2), confirm=True, ttl=10)
    client.fanout_cast(None, "compute", body("note", value=big))
    eventually(lambda: compute.seen[-3:] == [1, 2, big])
    assert not server.process.payloads.refused and not client.process.payloads.refused


def test_signed_events_reach_each_subscription_once(trust: Trust) -> None:
    client = trust.client(SIGNED)
    seen: list[Any] = []
    client.subscribe("alarms.#", lambda ctx, topic, payload: seen.append((topic, payload)))
    client.subscribe("#", lambda ctx, topic, payload: seen.append((topic, payload)))
    publisher = trust.client(SIGNED)
    assert publisher.publish(None, "alarms.fire", 1, confirm=True) == 1
    publisher.publish(None, "alarms.water", bytes(100_000))
    eventually(lambda: len(seen) == 4)
    assert not client.process.payloads.refused


def test_all_members_of_a_fanout_and_of_groups_take_their_copy(trust: Trust, serve: Any) -> None:
    every = [Compute(), Compute(), Compute()]
    server = trust.client(SIGNED)
    serve(every[0], host="one", client=server)
    serve(every[1], host="two", client=server)
    serve(every[2], group="log", client=server)
    client = trust.client(SIGNED)
    client.fanout_cast(None, "compute", body("note", value=1), confirm=True)
    client.call(None, "compute", body("note", value=2))
    eventually(lambda: sorted(map(len, (each.seen for each in every))) == [1, 1, 2])
    assert not server.process.payloads.refused


def test_signed_for_one_topic_is_not_taken_on_another(trust: Trust, serve: Any) -> None:
    """A router that was taken over could bring a message somewhere else, or again, or as another method."""
    compute = Compute()
    server = trust.client(SIGNED)
    serve(compute, client=server)
    stranger = trust.stranger()
    sealer = Signer(read_mac_keys(trust.keys), "web")
    payload = b'{"context":null,"args":{"value":1}}'

    def send(address: bytes = COMPUTE, method: bytes = b"note", flags: int = 0, form: int = Format.JSON) -> bytes:
        signed = sealer.seal(Kind.REQUEST, form, payload, address=address, method=method, flags=flags)[0]
        answer = send_call(stranger, Flag.SEALED, Format.JSON, signed).answer
        assert answer is not None
        return answer

    assert send()[5] == Kind.REPLY and compute.seen == [1]
    assert send(Address("image").encode())[5] == Kind.FAULT
    assert send(method=b"fail")[5] == Kind.FAULT
    assert send(flags=Flag.STREAM)[5] == Kind.FAULT
    assert send(form=Format.PICKLE)[5] == Kind.FAULT
    assert compute.seen == [1]
    assert refused(server, "wrong signature") == 4


def test_what_comes_again_runs_once_unless_it_may(trust: Trust, serve: Any) -> None:
    compute = Compute()
    server = trust.client(SIGNED)
    serve(compute, client=server)
    stranger = trust.stranger()
    sealer = Signer(read_mac_keys(trust.keys), "web")
    payload = b'{"context":null,"args":{"value":1}}'
    for flags, runs in ((0, 1), (Flag.IDEMPOTENT, 2)):
        compute.seen.clear()
        signed = sealer.seal(Kind.REQUEST, Format.JSON, payload, address=COMPUTE, method=b"note", flags=flags)[0]
        for _ in range(2):
            send_call(stranger, flags | Flag.SEALED, Format.JSON, signed)
        assert len(compute.seen) == runs
    assert refused(server, "repeated") == 1


def test_an_answer_to_one_call_is_none_to_another(trust: Trust, serve: Any) -> None:
    kept: list[bytes] = []

    class Swapping(Compute):
        """Answers everything with its first answer, as a router could."""

        def echo(self, ctx: Any, value: Any = None) -> Any:
            request = current_request()
            assert request is not None
            task, process = request._task, server.process
            form, payload = process.codec.encode(value)
            flags, payload = process.payloads.sign_answer(task, Kind.REPLY, form, payload)
            kept.append(payload)
            process.tasks.answer(monotonic(), task, Kind.REPLY, form, kept[0], flags=flags)
            return ANSWERED

    server = trust.client(SIGNED)
    serve(Swapping(), client=server)
    client = trust.client(SIGNED)
    assert client.call(None, "compute", body("echo", value="mine")) == "mine"
    with pytest.raises(RemoteError, match="wrong"):
        client.call(None, "compute", body("echo", value="mine"))


# --- keys ----------------------------------------------------------------------------------------


def test_formats_by_key(trust: Trust, serve: Any) -> None:
    policy = '[[topics]]\ntopics = ["#"]\nkeys = {ours = ["json", "pickle"], web = ["json"]}\n'
    server = trust.client(policy)
    compute = Compute()
    serve(compute, client=server)
    assert trust.client(policy).call(None, "compute", body("add", a=1)) == 1
    new_mac_key(trust.keys, "web")
    new_mac_key(trust.keys, "third")
    late = trust.client(policy)
    serve(compute, topic="late", client=late)
    use_mac_key(trust.keys, "web")
    web = trust.client("")
    with pytest.raises(PayloadRefused, match=r"it is pickle; accepted here from the key 'web': json"):
        web.call(None, "late", body("add", a=1))
    assert trust.client("", format="json").call(None, "late", body("add", a=1)) == 1
    use_mac_key(trust.keys, "third")
    with pytest.raises(PayloadRefused, match="'third' is not among the keys"):
        trust.client("", format="json").call(None, "late", body("add", a=1))
    with pytest.raises(PayloadRefused, match="accepted here from who does not sign: json"):
        trust.stranger().call(None, "late", body("add", a=1))


@pytest.mark.parametrize("who", ["service", "client"])
def test_who_signs_is_understood_by_who_does_not_check(trust: Trust, serve: Any, who: str) -> None:
    """Keys are brought to one process after the other, in whichever order."""
    signing, plain = trust.client(""), trust.stranger()
    server, client = (signing, plain) if who == "service" else (plain, signing)
    serve(Compute(), client=server)
    assert client.call(None, "compute", body("echo", value="ü")) == "ü"
    got = Event()
    plain.subscribe("a", lambda ctx, topic, payload: got.set())
    signing.publish(None, "a", 1)
    assert got.wait(20)


def test_what_is_to_be_signed_needs_keys(trust: Trust, router: InProcessRouter) -> None:
    with pytest.raises(ConfigError, match="wants signed payloads"):
        Client(router.url, trust_file=trust.file(SIGNED))


def test_refusals_are_logged_once_a_minute(trust: Trust, serve: Any, caplog: pytest.LogCaptureFixture) -> None:
    server = trust.client(SIGNED)
    serve(Compute(), client=server)
    stranger = trust.stranger()
    with caplog.at_level(logging.WARNING):
        for _ in range(20):
            send_cast(stranger, 0, Format.PICKLE, marked())
        eventually(lambda: refused(server, "not signed") == 20)
    assert [record.getMessage() for record in caplog.records] == [
        "payload of 'compute' refused: it is not signed (so far 1 times)"
    ]


# --- audit ---------------------------------------------------------------------------------------


def test_what_was_audited_is_enforced_as_it_is(trust: Trust, serve: Any) -> None:
    audit = trust.folder / "audit.toml"
    allow = ["tests.payload.marks:Mark", "tests.payload.marks:Other"]

    def traffic(client: Client, form: int = Format.PICKLE, payload: bytes = marked()) -> bool:
        answer = send_call(client, 0, form, payload).answer
        assert answer is not None
        # The method takes these arguments; what comes back is not looked at.
        return answer[5] == Kind.REPLY

    server = trust.client("", allow=allow, trust_audit=str(audit), mac_file="")
    service = serve(Compute(), client=server)
    stranger = trust.stranger()
    assert traffic(stranger) and len(MARKS) == 1
    service.stop(1.0)
    server.close()
    text = audit.read_text()
    assert 'topics = ["compute"]' in text and '"tests.payload.marks:Mark"' in text and "Other" not in text

    from tests.payload.marks import Other

    MARKS.clear()
    enforcing = trust.client("", allow=allow, trust_file=str(audit), mac_file="")
    serve(Compute(), client=enforcing)
    assert traffic(stranger) and len(MARKS) == 1
    assert not traffic(stranger, payload=marked(Other)) and len(MARKS) == 1
    assert refused(enforcing, "decoder") == 1
