"""A router with keys: who may connect and do what, and what those are told who may not."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import oslo_messaging
import pytest
from oslo_messaging import InvalidTransportURL, Target
from processes import Router, eventually, program

from rpcmq_oslo.failures import RefusedByRouter

Make = Callable[..., Any]
#: Far beyond what a refusal takes, and below what a wait that nothing ends would.
SOON = 30.0


class Endpoint:
    def who(self, ctxt: Any) -> str:
        return "me"

    def info(self, *notification: Any) -> None: ...


def rpcmq(*arguments: str) -> str:
    command = [sys.executable, "-m", "rpcmq", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A router's folder of keys: "client" may do everything, the others not."""
    folder = tmp_path_factory.mktemp("keys") / "rpcmq.d"
    rpcmq("init", str(folder))
    rights = {
        "caller": ["--allow", "call:openstack/compute"],
        "compute": ["--allow", "serve:openstack/compute,compute.node-1"],
        "revoked": [],
    }
    for name, allow in rights.items():
        rpcmq("keys", "add", name, "--keys", str(folder), *allow)
    rpcmq("keys", "revoke", "revoked", "--keys", str(folder))
    return folder


@pytest.fixture(scope="module")
def locked(keys: Path) -> Iterator[Router]:
    """A router that accepts these keys only."""
    with Router(security_keys=str(keys)) as router:
        yield router


@pytest.fixture
def with_key(transport: Make, locked: Router, keys: Path) -> Make:
    """Makes transports with a key; without a name, with none."""
    return lambda name="": transport(locked.url + (f"?key_file={keys / name}.key" if name else ""))


def refused(function: Callable[[], object]) -> str:
    """Return the text of the refusal that ``function`` ends with, soon."""
    began = time.monotonic()
    with pytest.raises(oslo_messaging.MessagingException) as caught:
        function()
    assert time.monotonic() - began < SOON
    error: BaseException = caught.value
    told = (RefusedByRouter, oslo_messaging.ClientSendError, oslo_messaging.ServerListenError)
    assert isinstance(error, told), repr(error)
    return str(error)


def refused_to_listen(over: Any, **target: Any) -> str:
    return refused(lambda: over._driver.listen(Target(**target), 1, None))


def test_processes_with_keys_talk(serve: Make, client: Make, with_key: Make) -> None:
    serve(Endpoint(), over=with_key("client"))
    assert client(over=with_key("client"), timeout=60).call({}, "who") == "me"


def test_each_kind_of_process_serves_with_a_key(client: Make, with_key: Make, locked: Router, keys: Path) -> None:
    url = f"{locked.url}?key_file={keys / 'client.key'}"
    for kind in ("native", "eventlet", "gevent"):
        with program("server", kind, url, "keyed", kind) as served:
            served.expect("listening")
            client("keyed", target={"server": kind}, over=with_key("client")).cast({}, "hold", n=1)
            served.expect("began 1")


def test_rights_hold_for_calls_and_casts(serve: Make, client: Make, with_key: Make) -> None:
    serve(Endpoint(), over=with_key("compute"))
    over = with_key("caller")
    assert client(over=over, timeout=60).call({}, "who") == "me"
    for forbidden in (
        lambda: client(over=over, target={"server": "node-1"}, timeout=60).call({}, "who"),
        lambda: client(over=over).cast({}, "who"),
        lambda: client(over=over, target={"fanout": True}).cast({}, "who"),
        lambda: client("other", over=over, timeout=60).call({}, "who"),
        lambda: client("other", over=over, retry=3).cast({}, "who"),
    ):
        assert "key 'caller' has no right to" in refused(forbidden)
    notifier = oslo_messaging.Notifier(over, "test.host", driver="noop", topics=["n"])
    assert "key 'caller' has no right to" in refused(
        lambda: notifier.transport._send_notification(Target(topic="n.info"), {}, {"event_type": "e"}, 2.0, retry=0)
    )


def test_rights_hold_for_listeners(with_key: Make) -> None:
    over = with_key("compute")
    assert "no right to serve" in refused_to_listen(over, topic="compute", server="node-2")
    assert "no right to serve" in refused_to_listen(over, topic="other", server="node-1")
    target = [(Target(topic="notifications"), "info")]
    for pool in (None, "pool"):
        text = refused(lambda pool=pool: over._driver.listen_for_notifications(target, pool, 1, None))  # type: ignore[misc]
        assert "no right to serve 'openstack/notifications:info'" in text
    for server in (
        oslo_messaging.get_rpc_server(over, Target(topic="other", server="x"), [Endpoint()]),
        oslo_messaging.get_notification_listener(over, [Target(topic="other")], [Endpoint()]),
    ):
        with pytest.raises(oslo_messaging.ServerListenError, match=r"topic=other.*no right to serve") as caught:
            server.start()
        assert isinstance(caught.value.ex, RefusedByRouter)


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("", "it may require CURVE .*no key_file in"),
        ("revoked", "does not accept the key of our key_file.*revoked.key"),
    ],
)
def test_without_a_key_that_is_known_nothing_hangs(client: Make, with_key: Make, key: str, text: str) -> None:
    over = with_key(key)
    for use in (
        lambda: client(over=over).cast({}, "who"),
        lambda: client(over=over, timeout=300).call({}, "who"),
        lambda: client(over=over, retry=1).cast({}, "who"),
        lambda: over._driver.listen(Target(topic="compute", server="node-1"), 1, None),
    ):
        assert re.search(text, refused(use))


def test_a_wrong_router_key_is_told(client: Make, transport: Make, locked: Router, keys: Path, tmp_path: Path) -> None:
    rpcmq("init", str(tmp_path / "other"))
    over = transport(f"{locked.url}?key_file={tmp_path / 'other' / 'client.key'}")
    assert "`router` in our key_file may not be its key" in refused(lambda: client(over=over).cast({}, "who"))


def test_a_router_without_keys_is_told(client: Make, transport: Make, router: Router, keys: Path) -> None:
    over = transport(f"{router.url}?key_file={keys / 'client.key'}")
    assert "runs without CURVE" in refused(lambda: client(over=over).cast({}, "who"))


def test_a_key_file_that_others_can_read_is_told(client: Make, transport: Make, locked: Router, keys: Path) -> None:
    path = keys / "open.key"
    path.write_bytes((keys / "client.key").read_bytes())
    path.chmod(0o644)
    over = transport(f"{locked.url}?key_file={path}")
    with pytest.raises(InvalidTransportURL, match=r"open\.key"):
        client(over=over).cast({}, "who")


def test_who_is_revoked_is_told_at_once_and_comes_back_when_it_is_known_again(
    client: Make, serve: Make, with_key: Make, keys: Path
) -> None:
    rpcmq("keys", "add", "guest", "--keys", str(keys))
    serve(Endpoint(), over=with_key("client"))
    caller = client(over=with_key("guest"), timeout=60)
    assert caller.call({}, "who") == "me"
    rpcmq("keys", "revoke", "guest", "--keys", str(keys))

    def is_denied() -> bool:
        try:
            caller.call({}, "who")
        except oslo_messaging.ClientSendError as error:
            return "revoked" in str(error)
        return False

    eventually(is_denied)
    (revoked,) = (keys / "revoked").glob("guest*")
    revoked.rename(keys / "authorized" / "guest.toml")

    def answers() -> bool:
        try:
            return bool(caller.call({}, "who") == "me")
        except oslo_messaging.ClientSendError:
            return False

    eventually(answers)
