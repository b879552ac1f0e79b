"""``rpcmq doctor --openstack``: each thing that may be wrong is told, with what to do."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from processes import Router, eventually

from rpcmq import threads
from rpcmq_oslo import doctor
from rpcmq_oslo.doctor import probe
from rpcmq_oslo.doctor.findings import FAIL, OK, WARN

PAGE = Path(__file__).parents[3] / "docs" / "openstack.md"
STEPS = ["server", "call", "cast", "fanout", "notification"]

Found = list[dict[str, str]]
Check = Callable[..., Found]
Change = Callable[[str], str] | None


def rpcmq(*arguments: str, code: int = 0) -> str:
    command = [sys.executable, "-m", "rpcmq", *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=90, check=False)
    assert ended.returncode == code, ended.stdout + ended.stderr
    return ended.stdout + ended.stderr


@pytest.fixture
def check(tmp_path: Path) -> Check:
    """Checks a file of settings, in this process."""

    def check(settings: str, *, exchange: str = "", key_file: str = "", timeout: float = 10) -> Found:
        path = tmp_path / "nova.conf"
        path.write_text(settings)
        rows = doctor.check([str(path)], "", exchange, key_file, timeout)
        found = [dict(zip(("level", "about", "text", "todo"), row, strict=True)) for row in rows]
        for finding in found:
            assert finding["level"] == OK or finding["todo"], "each failure says what to do"
        return found

    return check


def urls(*urls: str, **options: str) -> str:
    lines = "".join(f"{name} = {value}\n" for name, value in options.items())
    return f"[DEFAULT]\ntransport_url = {','.join(urls)}\n[oslo_messaging_rpcmq]\n{lines}"


def only(findings: Found, level: str) -> list[tuple[str, str, str]]:
    return [(each["about"], each["text"], each["todo"]) for each in findings if each["level"] == level]


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a router's keys, with more beside the one that may do everything."""
    folder = tmp_path_factory.mktemp("keys") / "k"
    rpcmq("init", str(folder), "--listen", "tcp://127.0.0.1:0")
    rpcmq("keys", "add", "nova", "--keys", str(folder), "--allow", "serve,call,cast,fanout:nova/#")
    rpcmq("keys", "add", "few", "--keys", str(folder), "--allow", "call,serve:nova/#")
    probed = re.findall(r"--allow '(.*rpcmq-doctor\S*)'", PAGE.read_text())
    rpcmq("keys", "add", "finer", "--keys", str(folder), "--allow", "serve:nova/compute", "--allow", *probed)
    return folder


@pytest.fixture(scope="module")
def secure(keys: Path) -> Iterator[Router]:
    with Router(security_keys=str(keys)) as router:
        yield router


def test_all_is_well(check: Check, router: Router) -> None:
    found = check(urls(router.url))
    assert not only(found, FAIL) and not only(found, WARN)
    assert [each["about"] for each in found][-6:] == ["mesh", *STEPS]
    assert "oslo.messaging" in found[0]["text"] and sys.prefix in found[0]["text"]


def test_a_router_that_is_away_is_named_and_the_rest_is_tried(check: Check, router: Router) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        found = check(urls(f"rpcmq://{router.host}", f"127.0.0.1:{port}/"), timeout=2)
    ((about, text, todo),) = only(found, FAIL)
    assert about == f"router tcp://127.0.0.1:{port}"
    assert "nothing listens there" in text and "rpcmq router" in todo
    assert [each["about"] for each in found][-5:] == STEPS


def test_names_that_do_not_resolve_and_ports_of_something_else(check: Check) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        found = check(urls(f"rpcmq://router.invalid,127.0.0.1:{port}/"), timeout=1)
    (name, port_of_another) = only(found, FAIL)
    assert found[-1]["text"] == port_of_another[1], "without a router nothing else is tried"
    assert "does not resolve" in name[1] and "correct the name" in name[2]
    assert "no answer" in port_of_another[1] and "firewall" in port_of_another[2]


@pytest.mark.parametrize(
    ("settings", "text", "todo"),
    [
        ("[DEFAULT]\n", "not set in [DEFAULT] of the files given", "--transport-url where it is kept elsewhere"),
        (urls("rabbit://nova:secret@h:5672/"), "rabbit://h:5672/: the service uses rabbit", "restart the service"),
        (urls("rpcmq://"), "names no router", "correct it"),
        (urls("rpcmq://h/?colour=red"), "no such option colour", "correct it"),
        (urls("rpcmq://alice:secret@h/"), "rpcmq knows processes by their keys", "correct it"),
        (urls("rpcmq://h:99999/"), "port 99999 of host 'h'", "correct it"),
        (urls("rpcmq://h:abc/"), "a port in it is no number", "write transport_url"),
        (urls("rpcmq://h/?key_file=/a&key_file=/b"), "given more than once", "correct it"),
        (urls("rpcmq://$my_ip/"), "option that only the service knows", "--transport-url"),
        ("no settings\n", "nova.conf", "correct it"),
    ],
)
def test_wrong_settings(check: Check, settings: str, text: str, todo: str) -> None:
    found = check(settings)
    ((_, found_text, found_todo),) = only(found, FAIL)
    assert text in found_text and todo in found_todo
    assert "secret" not in json.dumps(found)


def test_keys_and_rights(check: Check, secure: Router, keys: Path) -> None:
    nova = str(keys / "nova.key")
    found = check(urls(secure.url, key_file=nova), exchange="nova")
    ((about, text, todo),) = only(found, WARN)
    assert about == "mesh" and "no right to admin 'mesh'" in text and "--key-file" in todo
    found = check(urls(secure.url, key_file=nova), exchange="nova", key_file=str(keys / "client.key"))
    assert not only(found, WARN)
    assert "with keys" in " ".join(each["text"] for each in found)

    found = check(urls(secure.url, key_file=nova))
    assert [(each["about"], each["level"]) for each in found][-1] == ("server", FAIL)
    assert "has no right to serve" in found[-1]["text"] and "say --exchange" in found[-1]["todo"]
    assert "'rpcmq-doctor.#' and 'rpcmq-doctor:info'" in found[-1]["todo"]

    found = check(urls(secure.url, key_file=str(keys / "few.key")), exchange="nova")
    assert [about for about, *_ in only(found, FAIL)] == ["cast", "fanout", "notification"]
    assert all("has no right to" in text for _, text, _ in only(found, FAIL))

    found = check(urls(secure.url, key_file=str(keys / "finer.key")), exchange="nova")
    assert not only(found, FAIL) and [each["about"] for each in found][-5:] == STEPS


def test_a_key_that_is_missing_or_wrong(check: Check, secure: Router, keys: Path, tmp_path: Path) -> None:
    def failure(settings: str) -> tuple[str, str, str]:
        found = check(settings, timeout=2)
        (failed,) = only(found, FAIL)
        return failed

    about, text, todo = failure(urls(secure.url))
    assert about.startswith("router") and "may require CURVE" in text and "key_file in [oslo_messaging_rpcmq]" in todo

    rpcmq("init", str(tmp_path / "other"), "--listen", "tcp://127.0.0.1:1")
    other = (tmp_path / "other" / "client.key").read_text()
    _, text, todo = failure(urls(secure.url, key_file=str(tmp_path / "other" / "client.key")))
    assert "may not be its key" in text and "line `router`" in todo

    own = (keys / "client.key").read_text().splitlines()
    stranger = tmp_path / "stranger.key"
    lines = [line for line in other.splitlines() if not line.startswith("router")]
    stranger.write_text("\n".join([*lines, *(line for line in own if line.startswith("router"))]) + "\n")
    stranger.chmod(0o600)
    _, text, todo = failure(urls(secure.url, key_file=str(stranger)))
    assert "does not accept the key" in text and "rpcmq keys add" in todo


def without(text: str, name: str) -> str:
    return "\n".join(line for line in text.splitlines() if not line.startswith(name)) + "\n"


@pytest.mark.parametrize(
    ("mode", "change", "found", "advice"),
    [
        (0o600, None, "k.key: cannot be read: No such file", "correct key_file in [oslo_messaging_rpcmq]"),
        (0o644, lambda text: text, "k.key: has a secret key and mode 0644", "chmod 600 "),
        (0o600, lambda text: "garbage\n", "k.key: not valid TOML: .*line 1", "rpcmq keys add"),
        (0o600, lambda text: text.replace('secret = "', 'secret = "0'), "k.key: secret: .* this has 41", "keys add"),
        (0o600, lambda text: without(text, "router"), "k.key: router is missing", "rpcmq keys add"),
    ],
)
def test_a_key_file_that_cannot_be_used_is_told_once(
    check: Check, secure: Router, keys: Path, tmp_path: Path, mode: int, change: Change, found: str, advice: str
) -> None:
    path = tmp_path / "k.key"
    if change is not None:
        path.write_text(change((keys / "client.key").read_text()))
        path.chmod(mode)
    ((about, text, todo),) = only(check(urls(secure.url, key_file=str(path))), FAIL)
    assert about == "key_file" and re.search(found, text) and advice in todo


def test_a_folder_in_place_of_the_key_file(check: Check, secure: Router, tmp_path: Path) -> None:
    ((about, text, _),) = only(check(urls(secure.url, key_file=str(tmp_path))), FAIL)
    assert (about, text) == ("key_file", f"{tmp_path}: is no regular file")


def test_names_in_the_group_that_are_no_options_or_are_there_twice(check: Check, router: Router) -> None:
    found = check(urls(router.url, keyfile="/etc/nova/rpcmq.key") + "key_file = /a\nkey_file =\n")
    assert not only(found, FAIL)
    (unknown, twice) = only(found, WARN)
    assert "has keyfile, which is no option" in unknown[1] and "options are: key_file" in unknown[2]
    assert "has key_file 2 times; the last one counts: " in twice[1]


def test_a_router_that_is_named_twice(check: Check, router: Router) -> None:
    found = check(urls(f"rpcmq://{router.host},{router.host}/"))
    ((about, text, _),) = only(found, WARN)
    assert about == "transport_url" and "named twice" in text and not only(found, FAIL)


def test_routers_of_the_mesh_that_the_url_does_not_name(check: Check) -> None:
    with (
        Router(router_name="one") as one,
        Router(router_name="two", mesh_peers=f"tcp://{one.host}") as two,
        Router(router_name="alone") as alone,
    ):
        with threads.Client(f"tcp://{one.host}") as client:
            eventually(lambda: any(row["state"] == "answering" for row in client.query("mesh")["routers"]))
        found = check(urls(one.url))
        ((about, text, todo),) = only(found, WARN)
        assert about == "mesh" and f"two at tcp://{two.host}" in text and "add them" in todo
        found = check(urls(f"rpcmq://{one.host},{two.host}/"))
        assert not only(found, WARN)
        assert "one, two" in " ".join(each["text"] for each in found if each["about"] == "mesh")
        found = check(urls(f"rpcmq://{one.host},{alone.host}/"))
        assert any("is not in the mesh of router" in text for _, text, _ in only(found, FAIL))


def test_notifications_of_their_own(check: Check, router: Router) -> None:
    rabbit = "[oslo_messaging_notifications]\ntransport_url = rabbit://u:secret@h:5672/\n"
    found = check(urls(router.url) + rabbit)
    assert "they go on over rabbit" in json.dumps(found) and "secret" not in json.dumps(found)
    cell = f"[oslo_messaging_notifications]\ntransport_url = {router.url}cell-1\n"
    found = check(urls(router.url) + cell)
    assert "virtual host cell-1" in json.dumps(found)


def test_a_url_in_place_of_that_of_files(router: Router) -> None:
    """As the command does it."""
    text = rpcmq("doctor", "--openstack", "--timeout", "10", "--transport-url", router.url)
    assert "answered" in text and "fail" not in text
    answer = json.loads(rpcmq("doctor", "--openstack", "--json", "--transport-url", "rabbit://h/", code=1))
    assert not answer["ok"] and answer["findings"][-1]["about"] == "transport_url"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--openstack"], "give --config-file FILE"),
        (["--config-file", "nova.conf"], "give --openstack"),
        (["--openstack", "--offline", "--config-file", "nova.conf"], "of a router's check"),
    ],
)
def test_options_that_do_not_go_together(arguments: list[str], text: str) -> None:
    assert text in rpcmq("doctor", *arguments, code=2)


def test_a_release_of_oslo_messaging_that_is_not_supported(monkeypatch: pytest.MonkeyPatch) -> None:
    real = doctor.version
    monkeypatch.setattr(doctor, "version", lambda name: "14.9.0" if name.startswith("oslo") else real(name))
    (failed, told) = doctor.check(["/absent"], "", "", "", 1)
    assert failed[0] == FAIL and "14.9.0 is installed" in failed[2] and "pip install" in failed[3]
    assert told[0] == OK


def test_a_probe_that_hangs_ends(monkeypatch: pytest.MonkeyPatch, router: Router) -> None:
    from threading import Event

    from rpcmq_oslo.doctor.settings import read_settings

    never = Event()
    monkeypatch.setattr(probe._Probe, "run", lambda self: never.wait(60))
    (bus,), _ = read_settings([], router.url, "")
    (finding,) = probe.probed(bus, 0.05)
    never.set()
    assert finding[0] == FAIL and "not done within" in finding[2]
