"""``rpcmq init``, ``rpcmq keys`` and ``rpcmq doctor``; the minimal secure set-up from end to end, as real processes."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rpcmq import Client
from rpcmq.core.router.rights import ALL_VERBS
from rpcmq.errors import AccessDenied, RouterUnreachable
from rpcmq.server.authorized_keys import read_authorised
from rpcmq.server.mesh_secret import read_mesh_secret
from rpcmq.testing import router, routers
from rpcmq.transport.curve import new_pair
from rpcmq.transport.key_files import read_key_file
from tests.server.daemons import Daemon, eventually, run, started

pytestmark = pytest.mark.integration

Invoke = Callable[..., SimpleNamespace]


@pytest.fixture
def made(tmp_path: Path, invoke: Invoke) -> Path:
    folder = tmp_path / "rpcmq.d"
    ended = invoke("init", str(folder), "--listen", "tcp://127.0.0.1:0", "--owner", "ops")
    assert (ended.returncode, ended.stderr) == (0, "")
    return folder


def modes(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_mode & 0o777 for path in [folder, *folder.rglob("*")]}


# --- init and keys --------------------------------------------------------------------------------


def test_init_makes_all_that_is_needed_and_nothing_that_others_can_read(made: Path) -> None:
    assert modes(made) == {
        "rpcmq.d": 0o700, "authorized": 0o700, "router.key": 0o600, "client.key": 0o600, "router.toml": 0o600,
        "client.toml": 0o600, "mesh.secret": 0o600,
    }  # fmt: skip
    router, client = read_key_file(made / "router.key", client=False), read_key_file(made / "client.key", client=True)
    assert client.router == router.public
    known = read_authorised(str(made / "authorized" / "client.toml")).key
    assert known.public == client.public and known.owner == "ops" and known.rights[0].everything


def test_init_says_how_to_go_on(tmp_path: Path, invoke: Invoke) -> None:
    ended = invoke("init", str(tmp_path / "k"), "--listen", "tcp://0.0.0.0:7700")
    for word in ("rpcmq router --config", "RPCMQ_KEY_FILE=", "RPCMQ_ROUTER=", "rpcmq keys add", "rpcmq doctor"):
        assert word in ended.stdout


@pytest.mark.parametrize("host", ["0.0.0.0", "*", "[::]"])
def test_init_tells_clients_no_address_that_none_can_connect_to(tmp_path: Path, invoke: Invoke, host: str) -> None:
    ended = invoke("init", str(tmp_path / "keys"), "--listen", f"tcp://{host}:7711")
    assert "export RPCMQ_ROUTER=tcp://HOST:7711 " in ended.stdout


def test_init_takes_the_secret_of_the_mesh_that_was_copied(made: Path, tmp_path: Path, invoke: Invoke) -> None:
    other = tmp_path / "other.d"
    other.mkdir(mode=0o700)
    (other / "mesh.secret").write_bytes((made / "mesh.secret").read_bytes())
    (other / "mesh.secret").chmod(0o600)
    assert invoke("init", str(other)).returncode == 0
    assert read_mesh_secret(other / "mesh.secret") == read_mesh_secret(made / "mesh.secret")


def test_the_key_of_another_router_is_authorised_with_the_right_mesh_alone(made: Path, invoke: Invoke) -> None:
    public, _ = new_pair()
    assert add(invoke, made, "b", "--public", public, "--allow", "mesh:*/#").returncode == 0
    assert read_authorised(str(made / "authorized" / "b.toml")).key.is_router
    refused = add(invoke, made, "c", "--allow", "mesh:*/#", "--allow", "call:compute")
    assert refused.returncode == 2 and "can have no other (call)" in refused.stderr
    assert not (made / "authorized" / "c.toml").exists()


def test_init_changes_nothing_that_is_there(made: Path, invoke: Invoke) -> None:
    before = (made / "router.key").read_text()
    ended = invoke("init", str(made))
    assert ended.returncode == 2 and "exists already" in ended.stderr
    assert (made / "router.key").read_text() == before


@pytest.mark.parametrize("arguments", [("--client", "a/b"), ("--listen", "nowhere")])
def test_init_refuses_what_cannot_be(tmp_path: Path, invoke: Invoke, arguments: tuple[str, str]) -> None:
    assert invoke("init", str(tmp_path / "k"), *arguments).returncode == 2
    assert not (tmp_path / "k").exists()


def add(invoke: Invoke, folder: Path, *arguments: str) -> SimpleNamespace:
    return invoke("keys", "add", *arguments, "--keys", str(folder))


def listed(invoke: Invoke, folder: Path) -> dict[str, Any]:
    rows = json.loads(invoke("keys", "list", "--keys", str(folder), "--json").stdout)["keys"]
    return {row["name"]: row for row in rows}


def test_keys_are_added_listed_and_revoked(made: Path, invoke: Invoke) -> None:
    allow = ("--allow", "serve:compute,compute.node-7", "--allow", "call,cast:nova,glance/#")
    ended = add(invoke, made, "node-7", *allow, "--owner", "me", "--expires", "90d", "--identity", "node-7*")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert read_key_file(made / "node-7.key", client=True).name == "node-7"
    row = listed(invoke, made)["node-7"]
    assert row["may"] == "serve compute,compute.node-7; call,cast [nova,glance] #"
    assert (row["owner"], row["identities"], row["expired"]) == ("me", ["node-7*"], False)
    assert "node-7" in invoke("keys", "list", "--keys", str(made)).stdout
    ended = invoke("keys", "revoke", "node-7", "--keys", str(made))
    assert ended.returncode == 0 and row["public"] in ended.stdout
    assert set(listed(invoke, made)) == {"client"}
    assert [path.name.partition(".")[0] for path in (made / "revoked").iterdir()] == ["node-7"]


def test_a_key_file_has_the_keys_of_the_routers_that_are_peers(made: Path, invoke: Invoke) -> None:
    url, (public, _) = "tcp://controller-2:7700", new_pair()
    with (made / "router.toml").open("a") as config:
        config.write(f'[[mesh.peer]]\nurl = "{url}"\nserver_key = "{public}"\n')
    ended = invoke("keys", "add", "nova", "--keys", str(made))
    assert f"has the public keys of {url}, too; copy nova.toml to their authorized/" in ended.stdout
    assert read_key_file(made / "nova.key", client=True).routers == {url: public}
    ended = invoke("keys", "add", "cinder", "--keys", str(made), "--json")
    assert json.loads(ended.stdout)["peers"] == {url: public}
    (made / "router.toml").write_text("[mesh]\nunknown = 1\n")
    ended = invoke("keys", "add", "heat", "--keys", str(made))
    assert ended.returncode == 2 and "mesh.unknown" in ended.stderr and not (made / "heat.key").exists()


def test_a_key_made_elsewhere_is_only_authorised(made: Path, invoke: Invoke) -> None:
    public = new_pair()[0]
    ended = add(invoke, made, "far", "--public", public, "--allow", "call:#")
    assert ended.returncode == 0 and read_key_file(made / "router.key", client=False).public in ended.stdout
    assert listed(invoke, made)["far"]["public"] == public
    assert not (made / "far.key").exists()


def test_the_formats_that_a_key_may_send(made: Path, invoke: Invoke) -> None:
    assert add(invoke, made, "web", "--format", "json", "--format", "pickle").returncode == 0
    assert add(invoke, made, "far", "--public", new_pair()[0], "--format", "json").returncode == 0
    rows = listed(invoke, made)
    assert {name: row["formats"] for name, row in rows.items()} == {
        "client": None, "web": ["json", "pickle"], "far": ["json"],
    }  # fmt: skip
    assert 'formats = ["json", "pickle"]' in (made / "authorized" / "web.toml").read_text()
    assert "formats" not in (made / "authorized" / "client.toml").read_text()
    assert "json, pickle" in " ".join(invoke("keys", "list", "--keys", str(made)).stdout.split())


def test_a_key_made_where_it_is_used(made: Path, daemon: Daemon, invoke: Invoke, tmp_path: Path) -> None:
    router = read_key_file(made / "router.key", client=False).public
    file = tmp_path / "far.key"
    ended = invoke("keys", "make", "far", "--router-key", router, "--out", str(file))
    assert ended.returncode == 0 and file.stat().st_mode & 0o777 == 0o600
    assert add(invoke, made, "far", "--public", ended.stdout.strip()).returncode == 0
    daemon.wait_for("keys", message="keys: 2 authorised; new: far")
    with Client(daemon.url, key_file=str(file)) as client:
        assert client.query("summary")["links"] == 1
    for wrong in (("x/y", "--router-key", router), ("x", "--router-key", "short")):
        assert invoke("keys", "make", *wrong, "--out", str(tmp_path / "x.key")).returncode == 2
    assert not (tmp_path / "x.key").exists()


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("a/b",), "no name of a key"),
        (("client",), "exists already"),
        (("x", "--allow", "fly:#"), "--allow 'fly:#'"),
        (("x", "--allow", "call"), "--allow 'call'"),
        (("x", "--allow", "call:a..b"), "none empty"),
        (("x", "--expires", "soon"), "--expires 'soon'"),
        (("x", "--public", "abc"), "--public 'abc'"),
        (("x", "--format", "xml"), "--format xml: unknown payload format 'xml'"),
        (("x", "--format", "pickle"), "--format pickle: json must be among them"),
    ],
)
def test_a_key_that_cannot_be_is_refused(made: Path, invoke: Invoke, arguments: Any, expected: str) -> None:
    ended = add(invoke, made, *arguments)
    assert ended.returncode == 2 and expected in ended.stderr
    assert set(listed(invoke, made)) == {"client"}


def test_no_folder_of_keys_is_an_error_and_no_empty_list(tmp_path: Path, invoke: Invoke) -> None:
    ended = invoke("keys", "list", "--keys", str(tmp_path / "none"))
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "--keys DIR names another" in ended.stderr and len(ended.stderr.splitlines()) == 1
    ended = invoke("keys", "list", "--keys", str(tmp_path / "none"), "--json")
    assert (ended.returncode, ended.stdout) == (2, "")
    assert json.loads(ended.stderr)["text"].startswith(f"{tmp_path}/none/authorized")


def test_who_is_not_there_cannot_be_revoked(made: Path, invoke: Invoke) -> None:
    ended = invoke("keys", "revoke", "nobody", "--keys", str(made))
    assert ended.returncode == 2 and "no key 'nobody'" in ended.stderr


# --- from end to end ------------------------------------------------------------------------------


@pytest.fixture
def daemon(made: Path) -> Iterator[Daemon]:
    with started("router", "--config", str(made / "router.toml"), "--recovery-seconds", "0") as daemon:
        daemon.wait_for("listening")
        yield daemon


def test_what_init_made_works_as_it_is(made: Path, daemon: Daemon, invoke: Invoke) -> None:
    env = {"RPCMQ_ROUTER": daemon.url, "RPCMQ_KEY_FILE": str(made / "client.key")}
    with started("serve", "tests.cli.endpoints:Compute", "--topic", "compute", env=env) as service:
        service.wait_for("serving")
        ended = run("call", "compute", "add", "a=1", "b=2", env=env)
        assert (ended.returncode, ended.stdout.strip()) == (0, "3"), ended.stderr
        shown = run("ls", "--view", "keys", env=env)
        assert "client" in shown.stdout and shown.returncode == 0
    ended = run("call", "compute", "add", "a=1", "b=2", "--timeout", "2", env={"RPCMQ_ROUTER": daemon.url})
    assert ended.returncode == 3 and "handshake with" in ended.stderr and "key_file" in ended.stderr


def test_a_running_router_takes_new_keys_and_lets_go_of_revoked_ones(
    made: Path, daemon: Daemon, invoke: Invoke
) -> None:
    add(invoke, made, "web", "--allow", "call:#")
    daemon.wait_for("keys", message="keys: 2 authorised; new: web")
    with Client(daemon.url, key_file=str(made / "web.key"), reconnect_max_seconds=0.1) as client:
        client.connect()
        with pytest.raises(AccessDenied, match="admin 'summary'"):
            client.query("summary")
        denied = daemon.wait_for("denied")
        assert "key 'web' has no right to admin 'summary'" in denied["message"]
        invoke("keys", "revoke", "web", "--keys", str(made))
        daemon.signal(signal.SIGHUP)  # need not wait for the next look
        daemon.wait_for("keys", message="keys: 1 authorised; gone: web")
        assert "revoked" in daemon.wait_for("link ended")["message"]
        eventually(lambda: not client.process.connection.connected)
        with pytest.raises(RouterUnreachable, match="does not accept the key"):
            client.connect(2.0)
    assert any("refused: unknown key" in record["message"] for record in daemon.records)


def test_a_key_file_that_goes_wrong_is_logged_and_its_key_stays(made: Path, daemon: Daemon) -> None:
    file = made / "authorized" / "client.toml"
    file.write_text(file.read_text() + "nonsense = 1\n")
    record = daemon.wait_for("key file")
    assert str(file) in record["message"] and "nonsense" in record["message"] and record["level"] == "warning"
    with Client(daemon.url, key_file=str(made / "client.key")) as client:
        client.connect()


@pytest.mark.parametrize(
    ("spoil", "expected"),
    [
        (lambda folder: os.chmod(folder / "router.key", 0o644), "router.key: .*chmod 600"),
        (lambda folder: os.chmod(folder / "authorized", 0o777), "authorized: .*chmod 700"),
        (lambda folder: (folder / "router.key").unlink(), "router.key: cannot be read"),
        (lambda folder: (folder / "authorized" / "x.toml").write_text("name = 1"), "x.toml: name = 1: expected str"),
    ],
)
def test_a_router_does_not_start_on_keys_that_are_wrong(made: Path, spoil: Any, expected: str) -> None:
    spoil(made)
    ended = run("router", "--config", str(made / "router.toml"))
    assert ended.returncode == 2
    assert re.search(expected, ended.stderr)


# --- open endpoints -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "flags",
    [
        ("--listen", "tcp://0.0.0.0:0"),
        ("--listen", "tcp://*:0"),
        ("--listen", "tcp://[::]:0"),
        ("--http", "0.0.0.0:0"),
    ],
)
def test_an_open_endpoint_is_refused_unless_the_operator_wants_it(flags: tuple[str, str]) -> None:
    ended = run("router", *flags)
    assert ended.returncode == 2 and "--insecure" in ended.stderr and flags[1] in ended.stderr


def test_who_wants_an_open_endpoint_is_warned_in_log_and_views(invoke: Invoke) -> None:
    with started("router", "--listen", "tcp://0.0.0.0:0", "--insecure") as daemon:
        port = daemon.url.rpartition(":")[2]
        assert "without CURVE" in daemon.wait_for("insecure", level="warning")["message"]
        env = {"RPCMQ_ROUTER": f"tcp://127.0.0.1:{port}"}
        assert "WARNING: router.listen = 'tcp://0.0.0.0:0'" in invoke("ls", env=env).stdout
        findings = json.loads(invoke("doctor", "--json", env=env).stdout)["findings"]
        assert any("running like this" in f["text"] and f["level"] == "warning" for f in findings)


def test_with_curve_an_open_endpoint_is_no_offence(tmp_path: Path, invoke: Invoke) -> None:
    folder = tmp_path / "k"
    invoke("init", str(folder), "--listen", "tcp://0.0.0.0:0")
    with started("router", "--config", str(folder / "router.toml")) as daemon:
        port = daemon.url.rpartition(":")[2]
        with Client(f"tcp://127.0.0.1:{port}", key_file=str(folder / "client.key")) as client:
            assert client.query("summary")["warnings"] == []
    assert not [record for record in daemon.records if record["event"] == "insecure"]


# --- doctor ---------------------------------------------------------------------------------------


def findings(invoke: Invoke, *arguments: str, env: dict[str, str] | None = None) -> tuple[int, list[dict[str, str]]]:
    ended = invoke("doctor", "--json", *arguments, env=env)
    answer = json.loads(ended.stdout)
    assert answer["ok"] == (ended.returncode == 0)
    for finding in answer["findings"]:
        assert finding["level"] == "ok" or finding["todo"], "each line says what to do"
    return ended.returncode, answer["findings"]


def about(found: list[dict[str, str]], what: str, level: str = "") -> list[str]:
    return [f["text"] for f in found if what in f["about"] and level in f["level"]]


def test_doctor_looks_at_files_without_a_router(made: Path, invoke: Invoke) -> None:
    add(invoke, made, "old", "--expires", "2001-01-01", "--allow", "call:#")
    add(invoke, made, "soon", "--expires", "3d", "--allow", "call:#")
    code, found = findings(invoke, "--config", str(made / "router.toml"), "--offline")
    assert code == 0
    assert "libzmq" in about(found, "versions", "ok")[0]
    assert "with CURVE" in about(found, "endpoints", "ok")[0]
    assert any("has expired" in text for text in about(found, "key old", "warning"))
    assert any("expires in 3.0 days" in text for text in about(found, "key soon", "warning"))
    assert "has no owner" in about(found, "key soon", "warning")
    assert "has no owner" not in about(found, "key client")
    assert "may do everything" in about(found, "key client", "warning")
    assert about(found, "open files") and not about(found, "running router")


def test_doctor_fails_on_what_keeps_a_router_from_starting(made: Path, invoke: Invoke) -> None:
    os.chmod(made / "router.key", 0o640)
    os.chmod(made / "client.key", 0o644)
    (made / "authorized" / "x.toml").write_text("nonsense")
    code, found = findings(invoke, "--config", str(made / "router.toml"), "--offline")
    assert code == 1
    assert (
        about(found, "router key", "fail") and about(found, "client key", "fail") and about(found, "key file", "fail")
    )
    code, found = findings(invoke, "--offline", env={"RPCMQ_ROUTER_LISTEN": "tcp://0.0.0.0:7700"})
    assert code == 1 and about(found, "open endpoint", "fail")
    code, found = findings(invoke, "--offline", env={"RPCMQ_ROUTER_LISTEN": "nowhere"})
    assert code == 1 and about(found, "settings", "fail")


def test_doctor_looks_at_the_secret_of_the_mesh_and_at_peers(made: Path, invoke: Invoke) -> None:
    config = made / "router.toml"
    assert about(findings(invoke, "--config", str(config), "--offline")[1], "mesh secret", "ok")
    peer = 'url = "tcp://10.0.0.9:7700"\nserver_key = "rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7"\n'
    config.write_text(f"{config.read_text()}\n[[mesh.peer]]\n{peer}")
    (made / "mesh.secret").chmod(0o644)
    code, found = findings(invoke, "--config", str(config), "--offline")
    assert code == 1 and "chmod 600" in about(found, "mesh secret", "fail")[0]
    (made / "mesh.secret").unlink()
    code, found = findings(invoke, "--config", str(config), "--offline")
    assert code == 0 and "is missing" in about(found, "mesh secret", "warning")[0]
    (made / "mesh.secret").write_text('secret = "short"')
    (made / "mesh.secret").chmod(0o600)
    code, found = findings(invoke, "--config", str(config), "--offline")
    assert code == 1 and "64 hexadecimal digits" in about(found, "mesh secret", "fail")[0]
    flags = {"RPCMQ_MESH_PEERS": "tcp://127.0.0.1:7700"}
    code, found = findings(invoke, "--offline", env=flags)
    assert code == 1 and "is this router itself" in about(found, "mesh", "fail")[0]


def test_doctor_asks_a_running_router_what_was_used(made: Path, daemon: Daemon, invoke: Invoke) -> None:
    add(invoke, made, "web", "--allow", "call:image", "--allow", "cast:image")
    add(invoke, made, "idle")
    add(invoke, made, "neighbour", "--allow", "mesh:*/#")
    daemon.wait_for("keys", message="keys: 4 authorised; new: idle, neighbour, web")
    env = {"RPCMQ_ROUTER": daemon.url, "RPCMQ_KEY_FILE": str(made / "client.key")}
    with Client(daemon.url, key_file=str(made / "web.key")) as web:
        web.cast(None, "image", {"method": "x", "args": {}}, confirm=True)
        dill = Client(daemon.url, key_file=str(made / "client.key"), accept_dill=True)
        dill.subscribe("events.#", lambda *event: None)
        code, found = findings(invoke, "--config", str(made / "router.toml"), env=env)
        dill.close()
    assert code == 0
    assert any("call on image was never used" in text for text in about(found, "key web", "warning"))
    assert not any("cast on image" in text for text in about(found, "key web"))
    assert any("was never used since" in text for text in about(found, "key idle", "warning"))
    # Of a link between routers the other one may have used its key, and not this one.
    assert not any("never used" in text for text in about(found, "key neighbour"))
    assert any("accept dill" in text for text in about(found, "topic events.#", "warning"))


def test_doctor_is_readable_and_says_why_no_router_was_asked(made: Path, invoke: Invoke) -> None:
    env = {"RPCMQ_ROUTER": "tcp://127.0.0.1:1"}
    ended = invoke("doctor", "--config", str(made / "router.toml"), "--timeout", "0.5", env=env)
    assert ended.returncode == 0
    assert "not asked: router tcp://127.0.0.1:1 not reachable" in ended.stdout and "--offline" in ended.stdout


def test_doctor_asks_the_router_that_listens_where_the_settings_say(tmp_path: Path, invoke: Invoke) -> None:
    config = tmp_path / "router.toml"
    with router(router_name="configured") as running:
        port = running.url.rpartition(":")[2]
        config.write_text(f'[router]\nlisten = "tcp://*:{port}"\ninsecure = true\n')
        code, found = findings(invoke, "--config", str(config))
        assert code == 0 and about(found, "running router", "ok")[0].startswith("configured, up ")
        env = {"RPCMQ_ROUTER": "tcp://127.0.0.1:1"}
        found = findings(invoke, "--config", str(config), "--timeout", "0.5", env=env)[1]
        assert "router tcp://127.0.0.1:1 not reachable" in about(found, "running router")[0]
    config.write_text('[router]\nlisten = "tcp://127.0.0.1:*"\n')
    found = findings(invoke, "--config", str(config))[1]
    assert about(found, "running router") == ["not asked: router.listen leaves its port to the system"]


def test_doctor_does_not_take_other_routers_for_consumers_that_accept_dill(invoke: Invoke) -> None:
    with routers(2) as mesh:
        found = findings(invoke, "--router", mesh[0].url)[1]
        assert about(found, "payloads", "ok") == ["no consumer accepts dill"] and not about(found, "topic")


def test_the_verbs_of_the_help_are_those_of_the_router(invoke: Invoke, made: Path) -> None:
    error = add(invoke, made, "x", "--allow", "nothing").stderr
    assert all(verb in error for verb in ALL_VERBS)


# --- folders that others have made ----------------------------------------------------------------


def test_a_folder_that_is_there_keeps_its_mode_and_one_of_others_is_refused(tmp_path: Path, invoke: Invoke) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    ours.mkdir(0o755)
    theirs.mkdir()
    theirs.chmod(0o777)
    assert invoke("init", str(ours)).returncode == 0
    assert ours.stat().st_mode & 0o777 == 0o755
    ended = invoke("init", str(theirs))
    assert ended.returncode == 2 and "others could authorise keys there" in ended.stderr
    assert theirs.stat().st_mode & 0o777 == 0o777 and not list(theirs.iterdir())


def test_doctor_and_list_live_through_any_folder(made: Path, invoke: Invoke) -> None:
    authorized = made / "authorized"
    (made / "gone.key").symlink_to(made / "nothing")
    os.mkfifo(authorized / "fifo.toml")
    (authorized / "loop.toml").symlink_to(authorized / "loop.toml")
    (authorized / "deep.toml").write_text("a = " + "[" * 20_000)
    (authorized / "a\x1b[31m\nrpcmq.toml").write_text("name = 7")
    (authorized / "dir.toml").mkdir()
    code, found = findings(invoke, "--config", str(made / "router.toml"), "--offline")
    wrong = "\n".join(about(found, "key file", "fail"))
    assert code == 1
    for name in ("fifo", "loop", "deep", "rpcmq", "dir"):
        assert f"{name}.toml" in wrong
    ended = invoke("keys", "list", "--keys", str(made))
    assert ended.returncode == 1 and "client" in ended.stdout and "\x1b[31m" not in ended.stdout
    code, found = findings(invoke, "--keys", str(made / "nothing"), "--offline")
    assert code == 1 and about(found, "router key", "fail")
