from __future__ import annotations

import dataclasses
import re
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from gevent import subprocess
from hypothesis import given
from hypothesis import strategies as st

from rpcmq.config import (
    ClientConfig,
    ClientSettings,
    ConnectionSettings,
    RouterConfig,
    apply_live,
    describe_fields,
    diff_live,
    live_fields,
    load_client_config,
    load_router_config,
)
from rpcmq.config.peers import Peer
from rpcmq.errors import ConfigError

EXAMPLE = Path(__file__).parent.parent / "docs" / "router.example.toml"
ROUTER = {info.key: info for info in describe_fields()}
CLIENT = {info.key: info for info in describe_fields(ClientConfig())}


def value_of(config: object, key: str) -> Any:
    for name in key.split("."):
        config = getattr(config, name)
    return config


def problems_of(*arguments: Any, **keywords: Any) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load_router_config(*arguments, **keywords)
    return str(caught.value).splitlines()


@pytest.fixture
def router_toml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Writes router.toml into the current directory and returns its name."""
    monkeypatch.chdir(tmp_path)

    def write(text: str | bytes) -> str:
        Path("router.toml").write_bytes(text if isinstance(text, bytes) else text.encode())
        return "router.toml"

    return write


# --- defaults and the shipped example -----------------------------------------------------------


def test_without_any_source_all_is_default():
    assert load_router_config() == RouterConfig()
    assert load_client_config() == ClientConfig()


@pytest.mark.parametrize("info", [*ROUTER.values(), *CLIENT.values()], ids=lambda info: info.key)
def test_each_default_is_what_its_kind_accepts_and_keeps(info):
    checked = info.kind.check(info.default)
    assert checked == info.default
    assert type(checked) is type(info.default)


@pytest.mark.parametrize("info", [i for i in [*ROUTER.values(), *CLIENT.values()] if i.kind.name == "seconds"])
def test_times_say_their_unit(info):
    assert "second" in info.help


@pytest.mark.parametrize("info", [i for i in [*ROUTER.values(), *CLIENT.values()] if i.kind.name == "bytes"])
def test_sizes_say_their_unit(info):
    assert "bytes" in info.help


def test_the_example_is_the_defaults():
    assert load_router_config(str(EXAMPLE)) == RouterConfig()


def test_the_example_has_each_setting_with_its_help_in_order():
    tables = tomllib.loads(EXAMPLE.read_text())
    # TOML cannot append to an empty array, so that the tables of nodes are shown in a comment.
    known = {key: info for key, info in ROUTER.items() if key != "node"}
    assert "\n# [[node]]\n" in EXAMPLE.read_text()
    assert [f"{section}.{name}" for section, table in tables.items() for name in table] == list(known)
    comments = re.findall(r"^# (.*)\n(\w+) = ", EXAMPLE.read_text(), re.MULTILINE)
    assert len(comments) == len(known)
    for (comment, name), info in zip(comments, known.values(), strict=True):
        assert info.key.endswith(f".{name}")
        assert comment.startswith(info.help)
        assert comment.endswith("[live]") == info.live


def test_names_follow_from_the_key():
    info = ROUTER["link.lost_seconds"]
    assert (info.flag, info.env, info.live) == ("--link-lost-seconds", "RPCMQ_LINK_LOST_SECONDS", False)
    assert ROUTER["router.log_format"].flag == "--log-format"
    assert ROUTER["router.log_format"].env == "RPCMQ_ROUTER_LOG_FORMAT"
    flags = [info.flag for info in ROUTER.values() if info.key != "node"]
    assert len(set(flags)) == len(flags)


def test_only_the_settings_of_a_deployment_have_client_variables():
    assert {info.env for info in CLIENT.values()} - {None} == {
        "RPCMQ_ROUTER",
        "RPCMQ_IDENTITY",
        "RPCMQ_KEY_FILE",
        "RPCMQ_EXCHANGE",
        "RPCMQ_SHELL",
        "RPCMQ_TIMEOUT",
        "RPCMQ_FORMAT",
        "RPCMQ_ALLOW",
        "RPCMQ_ACCEPT_DILL",
        "RPCMQ_TRUST_FILE",
        "RPCMQ_TRUST_AUDIT",
        "RPCMQ_MAC_FILE",
    }


def test_each_setting_of_a_client_is_a_keyword_for_type_checkers():
    fields = {field.name for field in dataclasses.fields(ClientConfig)}
    assert set(ClientSettings.__annotations__) == fields - {"router", "identity"}
    assert set(ConnectionSettings.__annotations__) == fields - {"router", "identity", "exchange"}


def test_the_settings_cannot_be_changed_in_place():
    with pytest.raises(dataclasses.FrozenInstanceError):
        RouterConfig().link.lost_seconds = 1.0  # type: ignore[misc]
    hash(RouterConfig())
    hash(ClientConfig())


# --- precedence ---------------------------------------------------------------------------------


def test_flags_go_before_environment_before_file_before_default(router_toml):
    path = router_toml("[queue]\nmax_messages = 1\n[link]\nmax_links = 1\n[topics]\nmax_topics = 1\n")
    environ = {"RPCMQ_QUEUE_MAX_MESSAGES": "2", "RPCMQ_LINK_MAX_LINKS": "2", "PATH": "/bin"}
    config = load_router_config(path, environ, {"queue.max_messages": 3, "router.name": None})
    assert config.queue.max_messages == 3
    assert config.link.max_links == 2
    assert config.topics.max_topics == 1
    assert config.message == RouterConfig().message


@pytest.mark.parametrize("value", [7, "7"])
def test_a_flag_may_be_text_or_a_value(value: object):
    assert load_router_config(flags={"router.id": value}).router.id == 7


def test_a_client_takes_arguments_before_environment():
    environ = {"RPCMQ_ROUTER": "tcp://10.0.0.1:7700", "RPCMQ_TIMEOUT": "5m", "RPCMQ_ALLOW": "a.b:C, d:E.f"}
    config = load_client_config(environ, {"timeout": 2, "identity": None, "cast_window_bytes": "1MiB"})
    assert config.router == ("tcp://10.0.0.1:7700",)
    assert config.timeout == 2.0
    assert config.allow == ("a.b:C", "d:E.f")
    assert config.identity == ""
    assert config.cast_window_bytes == 2**20


@pytest.mark.parametrize("text", ["1", "true", "Yes", "ON"])
def test_a_variable_can_switch_on(text: str):
    assert load_client_config({"RPCMQ_ACCEPT_DILL": text}).accept_dill is True


@pytest.mark.parametrize("text", ["0", "false", "No", "OFF"])
def test_a_variable_can_switch_off(text: str):
    assert load_client_config({"RPCMQ_ACCEPT_DILL": text}).accept_dill is False


# --- units --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        ("30", 30),
        ("2.5", 2.5),
        ('"250ms"', 0.25),
        ('"30s"', 30),
        ('"1.5 s"', 1.5),
        ('"5m"', 300),
        ('"2h"', 7200),
        ('"1d"', 86400),
        ('"45"', 45),
    ],
)
def test_times(router_toml, written: str, seconds: float):
    kept = load_router_config(router_toml(f"[router]\ndrain_seconds = {written}")).router.drain_seconds
    assert kept == pytest.approx(seconds)
    assert type(kept) is float


@pytest.mark.parametrize(
    ("written", "size"),
    [
        ("4096", 4096),
        ('"4096"', 4096),
        ('"2048B"', 2048),
        ('"64KiB"', 2**16),
        ('"16 MiB"', 2**24),
        ('"2GiB"', 2**31),
    ],
)
def test_sizes(router_toml, written: str, size: int):
    assert load_router_config(router_toml(f"[queue]\nmax_bytes = {written}")).queue.max_bytes == size


# --- refusals -----------------------------------------------------------------------------------


def test_a_wrong_value_names_file_key_value_and_what_is_expected(router_toml):
    path = router_toml("[queue]\nmax_messages = -3\n")
    assert problems_of(path) == ["router.toml: queue.max_messages = -3: expected an integer >= 1"]


def test_all_problems_of_all_sources_are_told_at_once(router_toml):
    path = router_toml(
        """
        listen = "tcp://127.0.0.1:7700"
        link = 3
        [router]
        id = -1
        colour = "red"
        [queu]
        max_bytes = 1
        [pubsub]
        max_patterns = true
        max_links = 1
        """.replace("        ", "")
    )
    environ = {
        "RPCMQ_LINK_LOST_SECOND": "9",
        "RPCMQ_QUEUE_MAX_BYTES": "64kb",
        "RPCMQ_ROUTER": "is the client's",
    }
    assert problems_of(path, environ, {"router.log_format": "xml", "router.port": "1"}) == [
        "router.toml: listen: unknown; did you mean router.listen?",
        "router.toml: link = 3: expected a table [link]",
        "router.toml: router.id = -1: expected an integer from 0 to 4294967295",
        "router.toml: router.colour: unknown",
        "router.toml: queu: unknown; did you mean queue?",
        "router.toml: pubsub.max_patterns = True: expected an integer >= 1",
        "router.toml: pubsub.max_links: unknown; did you mean link.max_links?",
        "environment: RPCMQ_LINK_LOST_SECOND: unknown; did you mean RPCMQ_LINK_LOST_SECONDS?",
        f"environment: RPCMQ_QUEUE_MAX_BYTES = '64kb': expected {ROUTER['queue.max_bytes'].kind.expected}",
        "command line: --log-format = 'xml': expected one of 'text', 'json'",
        "command line: router.port: unknown",
    ]


def test_a_wrong_value_is_told_even_if_a_flag_overrules_it(router_toml):
    path = router_toml("[router]\nid = 'one'\n")
    assert len(problems_of(path, flags={"router.id": 2})) == 1


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("router.id", True),
        ("router.id", 1.0),
        ("router.id", 2**32),
        ("router.id", [1]),
        ("router.io_threads", "many"),
        ("router.name", 5),
        ("router.name", "two\nlines"),
        ("router.name", "é" * 128),
        ("router.log_level", "loud"),
        ("router.log_level", 10),
        ("router.drain_seconds", -1),
        ("router.drain_seconds", float("nan")),
        ("router.drain_seconds", float("inf")),
        ("router.drain_seconds", True),
        ("router.drain_seconds", "5 minutes"),
        ("router.drain_seconds", "-5s"),
        ("router.drain_seconds", "1e3"),
        ("router.drain_seconds", ""),
        ("router.drain_seconds", "٣s"),
        ("message.max_bytes", "64 mb"),
        ("message.max_bytes", "1.5MiB"),
        ("message.max_bytes", 1.5),
        ("message.max_bytes", 0),
        ("message.max_bytes", "9" * 5000),
        ("router.listen", ""),
        ("router.listen", "127.0.0.1:7700"),
        ("router.listen", "http://127.0.0.1:7700"),
        ("router.listen", "tcp://127.0.0.1"),
        ("router.listen", "tcp://127.0.0.1:70000"),
        ("router.listen", "tcp://::1:7700"),
        ("router.listen", "tcp://a b:7700"),
        ("router.listen", "tcp://127.0.0.1:7700/x"),
        ("router.listen", "ipc://"),
        ("router.http", "7780"),
        ("router.http", "127.0.0.1:*"),
        ("router.http", "http://127.0.0.1:7780"),
    ],
)
def test_wrong_values(key: str, value: object):
    [problem] = problems_of(flags={key: value})
    assert problem == f"command line: {ROUTER[key].flag} = {value!r}: expected {ROUTER[key].kind.expected}"


@pytest.mark.parametrize(
    "url",
    ["tcp://*:7700", "tcp://127.0.0.1:0", "tcp://eth0:*", "tcp://[::1]:7700", "ipc:///run/r", "inproc://r"],
)
def test_listening_urls(url: str):
    assert load_router_config(flags={"router.listen": url}).router.listen == url


@pytest.mark.parametrize("address", ["", "127.0.0.1:7780", "[::1]:0", "localhost:80"])
def test_http_addresses(address: str):
    assert load_router_config(flags={"router.http": address}).router.http == address


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("router", "tcp://*:7700"),
        ("router", "tcp://127.0.0.1:0"),
        ("router", "tcp://127.0.0.1:*"),
        ("timeout", 0),
        ("format", "yaml"),
        ("allow", "a:b"),
        ("allow", ["os.system"]),
        ("allow", ["a.*:b"]),
        ("allow", ["a:*b"]),
        ("allow", [b"a:b"]),
        ("accept_dill", "yes"),
        ("accept_dill", 1),
        ("cast_window", 0),
        ("retry_budget_ratio", 1.5),
        ("retry_budget_ratio", "0.1"),
    ],
)
def test_wrong_client_arguments(key: str, value: object):
    with pytest.raises(ConfigError) as caught:
        load_client_config({}, {key: value})
    assert str(caught.value) == f"argument: {key} = {value!r}: expected {CLIENT[key].kind.expected}"


@pytest.mark.parametrize(
    ("environ", "says"),
    [
        (
            {"RPCMQ_ACCEPT_DILL": "perhaps"},
            "environment: RPCMQ_ACCEPT_DILL = 'perhaps': expected true or false",
        ),
        (
            {"RPCMQ_ALLOW": "a:b c:d"},
            "environment: RPCMQ_ALLOW = 'a:b c:d': expected a list of 'module:qualname'",
        ),
        ({"RPCMQ_TIMOUT": "5"}, "environment: RPCMQ_TIMOUT: unknown; did you mean RPCMQ_TIMEOUT?"),
        ({"RPCMQ_CAST_WINDOW": "5"}, "environment: RPCMQ_CAST_WINDOW: unknown"),
    ],
)
def test_wrong_client_variables(environ: dict[str, str], says: str):
    with pytest.raises(ConfigError) as caught:
        load_client_config(environ)
    assert str(caught.value).startswith(says)


@pytest.mark.parametrize(
    "value",
    [
        ["tcp://a:7700", "tcp://b:7700"],
        ("tcp://a:7700", "tcp://b:7700", "tcp://a:7700"),
        "tcp://a:7700,tcp://b:7700",
        " tcp://a:7700 , tcp://b:7700".strip(),
    ],
)
def test_several_routers_are_a_list_or_text_with_commas(value: object):
    assert load_client_config({}, {"router": value}).router == ("tcp://a:7700", "tcp://b:7700")
    if isinstance(value, str):
        assert load_client_config({"RPCMQ_ROUTER": value}).router == ("tcp://a:7700", "tcp://b:7700")


def test_a_path_may_have_commas():
    assert load_client_config({}, {"router": "ipc:///run/a,b"}).router == ("ipc:///run/a,b",)
    urls = ("ipc:///run/a,b", "ipc:///run/c")
    assert load_client_config({"RPCMQ_ROUTER": ",".join(urls)}).router == urls


@pytest.mark.parametrize("value", [[], "", ["tcp://a:7700", ""], "tcp://a:7700,b:7700", "tcp://a:7700,", [7], 7])
def test_a_list_of_routers_with_something_else_is_refused(value: object):
    with pytest.raises(ConfigError, match=r"router = .*: expected a URL like .*or a list of them"):
        load_client_config({}, {"router": value})


def test_an_unknown_argument_is_refused_with_the_nearest():
    with pytest.raises(ConfigError, match=r"^argument: identiti: unknown; did you mean identity\?$"):
        load_client_config({}, {"identiti": "x"})


def test_router_and_clients_share_an_environment():
    environ = {"RPCMQ_ROUTER": "tcp://127.0.0.1:7701", "RPCMQ_ROUTER_LISTEN": "tcp://127.0.0.1:7701"}
    assert load_client_config(environ).router == (load_router_config(None, environ).router.listen,)


def test_a_client_loads_neither_a_routers_settings_nor_asyncio() -> None:
    """Programs start, and start again after each deployment: their import is as short as it can be."""
    avoided = {"rpcmq.config.router", "asyncio"}
    code = f"import sys, rpcmq; rpcmq.Client, rpcmq.Service; print({avoided} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "set()\n"


def test_liveness_times_must_ascend(router_toml):
    path = router_toml("[link]\nunresponsive_seconds = 3\n")
    assert problems_of(path) == [
        "router.toml: link.unresponsive_seconds = 3: expected more than link.heartbeat_seconds = 5.0"
    ]
    assert load_router_config(path, flags={"link.heartbeat_seconds": 1}).link.heartbeat_seconds == 1


def test_equal_liveness_times_do_not_ascend():
    assert len(problems_of(flags={"link.unresponsive_seconds": 5})) == 1


def test_a_default_is_not_blamed():
    assert problems_of(flags={"link.heartbeat_seconds": "15s"}) == [
        "command line: --link-heartbeat-seconds = '15s': expected less than link.unresponsive_seconds = 12.0"
    ]


def test_order_is_not_judged_on_wrong_values():
    assert len(problems_of(flags={"link.heartbeat_seconds": 15, "link.unresponsive_seconds": "long"})) == 1


def test_an_absent_file_is_one_clear_line():
    assert problems_of("no/such.toml") == ["no/such.toml: cannot be read: No such file or directory"]


def test_a_folder_is_one_clear_line(tmp_path: Path):
    assert problems_of(str(tmp_path)) == [f"{tmp_path}: cannot be read: Is a directory"]


@pytest.mark.parametrize("text", [b"[router\n", b"id = 1\nid = 2\n", b"name = '\xff'\n"])
def test_what_is_not_toml_is_one_clear_line(router_toml, text: bytes):
    [problem] = problems_of(router_toml(text))
    assert problem.startswith("router.toml: not valid TOML: ")


# --- the mesh -----------------------------------------------------------------------------------

KEY = "rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7"


def test_peers_are_a_list_or_text_with_commas_and_tables_with_more(router_toml):
    path = router_toml(
        f"""
        [mesh]
        name = "eu"
        advertise = ["tcp://b.example:7700"]
        [[mesh.peer]]
        url = "tcp://c:7700"
        server_key = "{KEY}"
        allow_in = ["compute.#", "nova/#"]
        [[mesh.peer]]
        url = "ipc:///run/d"
        """
    )
    mesh = load_router_config(path, {"RPCMQ_MESH_PEERS": "tcp://a:7700,tcp://b:7701"}).mesh
    assert (mesh.name, mesh.peers) == ("eu", ("tcp://a:7700", "tcp://b:7701"))
    assert mesh.peer == (
        Peer("tcp://c:7700", KEY, ("compute.#", "nova/#"), ("*/#",)),
        Peer("ipc:///run/d"),
    )
    assert mesh.advertise == ("tcp://b.example:7700",)


PATTERNS = "a list of topic patterns like 'compute.#', 'EXCHANGE/compute.#' or '*/#' (every topic of every exchange)"


@pytest.mark.parametrize(
    ("table", "problem"),
    [
        ("peer = 5", "mesh.peer = 5: expected tables [[mesh.peer]] with url, and server_key, allow_in or allow_out"),
        ("peer = ['tcp://a:7700']", "mesh.peer[0] = 'tcp://a:7700': expected a table [[mesh.peer]]"),
        ("peer = [{}]", "mesh.peer[0] = {}: expected a table with url"),
        ("peer = [{url = 'a:7700'}]", "mesh.peer[0].url = 'a:7700': expected a URL like 'tcp://10.0.0.7:7700'"),
        (
            "peer = [{url = 'tcp://a:7700', weight = 1}]",
            "mesh.peer[0].weight = 1: expected no other keys than url, server_key, allow_in, allow_out",
        ),
        (
            "peer = [{url = 'tcp://a:7700'}, {url = 'tcp://b:7700', server_key = 'short'}]",
            "mesh.peer[1].server_key = 'short': expected the router's public key, 40 characters of Z85, or ''",
        ),
        (
            "peer = [{url = 'tcp://a:7700'}, {url = 'tcp://a:7700'}]",
            "mesh.peer[1].url = 'tcp://a:7700': expected another url than in the tables before",
        ),
        (
            "peer = [{url = 'tcp://a:7700', allow_in = ['a..b']}]",
            "mesh.peer[0].allow_in = ['a..b']: expected " + PATTERNS,
        ),
    ],
)
def test_a_wrong_peer_names_its_table_and_key(router_toml, table: str, problem: str):
    assert problems_of(router_toml(f"[mesh]\n{table}\n")) == [f"router.toml: {problem}"]


def test_the_times_of_the_mesh_must_ascend():
    [problem] = problems_of(flags={"mesh.silence_seconds": 6})
    assert problem == "command line: --mesh-silence-seconds = 6: expected less than mesh.lost_seconds = 6.0"


def test_tables_have_no_variable_and_no_flag():
    assert (ROUTER["mesh.peer"].flag, ROUTER["mesh.peer"].env) == (None, None)
    assert (ROUTER["mesh.peers"].flag, ROUTER["mesh.peers"].env) == ("--peer", "RPCMQ_MESH_PEERS")


SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.lists(st.integers(), max_size=2)


@given(st.dictionaries(st.sampled_from(sorted(ROUTER)) | st.text(max_size=10), SCALARS, max_size=8))
def test_whatever_is_set_is_taken_or_refused(flags: dict[str, Any]):
    try:
        config = load_router_config(flags=flags)
    except ConfigError:
        return
    for key, value in flags.items():
        assert value is None or key in ROUTER
    for info in describe_fields(config):
        assert info.kind.check(info.default) == info.default


@given(st.dictionaries(st.sampled_from(sorted(i.env for i in ROUTER.values() if i.env)), st.text(), max_size=5))
def test_whatever_is_in_the_environment_is_taken_or_refused(environ: dict[str, str]):
    problems: list[str] = []
    try:
        load_router_config(None, environ)
    except ConfigError as error:
        # One line each: what was given is quoted, line ends and all.
        problems = str(error).split("\n")
    assert all(line.startswith("environment: RPCMQ_") for line in problems)


# --- reload -------------------------------------------------------------------------------------


def test_which_settings_are_live():
    assert live_fields() == {
        "router.log_level",
        "router.drain_seconds",
        "link.unresponsive_seconds",
        "link.resume_seconds",
        "link.consumer_grace_seconds",
        "link.max_links",
        "link.max_handshakes",
        "security.max_links_per_key",
        "security.messages_per_second",
        "router.max_bytes",
        "security.max_bytes_per_key",
        "link.max_bytes",
        "link.inbox_max_bytes",
        "link.outbox_max_bytes",
        "link.outbox_max_messages",
        "queue.max_messages",
        "queue.max_bytes",
        "mailbox.max_seconds",
        "mailbox.unclaimed_seconds",
        "mailbox.max_unclaimed_topics",
        "topics.max_topics",
        "call.max_in_flight",
        "hedge.budget",
        "hedge.burst",
        "hedge.unbounded",
        "hedge.sample",
        "hedge.policy_file",
        "pubsub.max_messages",
        "pubsub.max_bytes",
        "pubsub.max_patterns",
        "pubsub.max_pattern_states",
        "mesh.silence_seconds",
        "mesh.lost_seconds",
        "mesh.recovery_seconds",
        "mesh.return_seconds",
        "mesh.rebalance_seconds",
        "mesh.max_patterns",
        "mesh.max_pattern_bytes",
        "mesh.max_addresses",
        "mesh.max_address_bytes",
        "mesh.max_transit_bytes",
        "dispatch_log.segment_records",
        "dispatch_log.segment_seconds",
    }


def test_a_reload_applies_what_is_live_and_names_the_rest():
    old = load_router_config(flags={"router.id": 4})
    new = load_router_config(flags={"router.id": 5, "router.log_level": "debug", "queue.max_messages": 7})
    changes, refused = diff_live(old, new)
    assert changes == {"router.log_level": "debug", "queue.max_messages": 7}
    assert refused == {"router.id": 5}
    running = apply_live(old, changes)
    assert (running.router.id, running.router.log_level, running.queue.max_messages) == (4, "debug", 7)
    assert diff_live(running, new) == ({}, {"router.id": 5})


def test_a_reload_of_the_same_changes_nothing():
    assert diff_live(RouterConfig(), RouterConfig()) == ({}, {})
    assert apply_live(RouterConfig(), {}) == RouterConfig()
