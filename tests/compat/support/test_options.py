from __future__ import annotations

import logging
import types
from typing import Any

import pytest

from compat.nova import options, transport
from compat.nova.eras import ERAS

# Section 4 of the facts: option, and its default in each era.
KOMBU, FOLSOM_KOMBU = "nova.rpc.impl_kombu", "nova.openstack.common.rpc.impl_kombu"
NOVA, COMMON = "nova.exception", "nova.openstack.common.exception"
DEFAULTS: list[tuple[str, list[Any]]] = [
    ("rpc_backend", [KOMBU, KOMBU, FOLSOM_KOMBU, FOLSOM_KOMBU, FOLSOM_KOMBU]),
    ("rpc_thread_pool_size", [1024, 1024, 64, 64, 64]),
    ("rpc_conn_pool_size", [30] * 5),
    ("rpc_response_timeout", [60] * 5),
    ("rpc_cast_timeout", [30] * 5),
    ("control_exchange", ["nova"] * 5),
    ("fake_rabbit", [False] * 5),
    ("rabbit_host", ["localhost"] * 5),
    ("rabbit_port", [5672] * 5),
    ("rabbit_virtual_host", ["/"] * 5),
    ("rabbit_retry_interval", [1] * 5),
    ("rabbit_max_retries", [0] * 5),
    ("amqp_rpc_single_reply_queue", [False] * 5),
]


@pytest.mark.parametrize(("name", "expected"), DEFAULTS, ids=[name for name, _ in DEFAULTS])
def test_defaults_by_era(stand_in, name, expected):
    for era, value in zip(ERAS[1:], expected, strict=True):
        option = next(each for each in options.OPTIONS if each.name == name and each.group is None)
        assert option.default(era) == value, era


def test_cactus_had_more_patience():
    found = {each.name: each.default("cactus") for each in options.OPTIONS}
    assert (found["rabbit_retry_interval"], found["rabbit_max_retries"]) == (10, 12)


@pytest.mark.parametrize(
    ("era", "modules"),
    [
        ("folsom", {NOVA, COMMON}),
        ("grizzly", {NOVA, COMMON, "cinder.exception", "exceptions"}),
        ("havana", {NOVA, COMMON, "cinder.exception", "exceptions"}),
    ],
)
def test_modules_whose_exceptions_are_rebuilt(stand_in, era, modules):
    stand_in(era)
    assert set(options.value("allowed_rpc_exception_modules")) == modules


@pytest.mark.parametrize("era", ERAS)
def test_every_option_is_registered_in_every_era(stand_in, era):
    load = stand_in(era)
    options.register()
    for conf in (load("nova.flags").FLAGS, load("oslo.config.cfg").CONF):
        for option in options.OPTIONS:
            holder = getattr(conf, option.group) if option.group else conf
            assert option.name in holder
    for option in options.OPTIONS:
        if option.group is None:
            options.value(option.name)


def test_a_configuration_file_with_all_the_old_options(stand_in, tmp_path):
    load = stand_in("folsom")
    text = {"str": "x", "int": "1", "float": "1", "bool": "true", "list": "a,b", "multi": "m"}
    lines = ["[DEFAULT]"] + [f"{o.name} = {text[o.kind]}" for o in options.OPTIONS if o.group is None]
    path = tmp_path / "nova.conf"
    path.write_text("\n".join([*lines, "a_new_rabbit_option = 1"]))
    load("nova.flags").parse_args(["prog", "--config-file", str(path)])
    assert options.value("qpid_hosts") == ["a", "b"]
    assert options.value("rpc_response_timeout") == 1


# --- value --------------------------------------------------------------------------------------


def test_a_value_is_read_at_its_use(load):
    flags = load("nova.flags").FLAGS
    assert options.value("rpc_response_timeout") == 60
    flags.set_override("rpc_response_timeout", 1)
    assert options.value("rpc_response_timeout") == 1
    flags.clear_override("rpc_response_timeout")
    assert options.value("rpc_response_timeout") == 60


def test_the_given_object_goes_first(load):
    flags = load("nova.flags").FLAGS
    flags.rpc_conn_pool_size = 2
    assert options.value("rpc_conn_pool_size", types.SimpleNamespace(rpc_conn_pool_size=3)) == 3
    assert options.value("rpc_conn_pool_size", types.SimpleNamespace()) == 2
    own = load("nova.openstack.common.cfg").ConfigOpts()
    assert options.value("rpc_conn_pool_size", own) == 2


def test_without_any_object_the_default_holds(load):
    assert options.configurations() == []
    assert options.value("rpc_conn_pool_size") == 30


def test_an_unknown_name(load):
    with pytest.raises(KeyError):
        options.value("nobodys")
    flags = load("nova.flags").FLAGS
    assert options.value("report_interval") == 10
    assert flags.connection_type is None and options.value("connection_type") is None


def test_the_router_of_the_environment(load, monkeypatch):
    assert options.value("rpcmq_router") == "tcp://127.0.0.1:7700"
    monkeypatch.setenv("RPCMQ_ROUTER", "tcp://10.0.0.1:1")
    assert options.value("rpcmq_router") == "tcp://10.0.0.1:1"
    load("nova.flags").FLAGS.set_override("rpcmq_router", "tcp://10.0.0.2:2")
    assert options.value("rpcmq_router") == "tcp://10.0.0.2:2"


@pytest.mark.usefixtures("load")
def test_the_router_of_another_cell_listens_on_the_port_of_the_first_of_ours(monkeypatch):
    monkeypatch.setenv("RPCMQ_ROUTER", "tcp://10.0.0.1:7701,tcp://10.0.0.2:7702")
    client = transport.client(server_params={"hostname": "cell"})
    try:
        assert client.config.router == ("tcp://cell:7701",)
    finally:
        client.close()


def test_set_default(load):
    options.set_default("control_exchange", "cinder")
    assert options.value("control_exchange") == "cinder"
    load("nova.flags").FLAGS.set_override("control_exchange", "x")
    assert options.value("control_exchange") == "x"


def test_the_list_of_options_suits_another_object(load):
    conf = load("nova.openstack.common.cfg").ConfigOpts()
    conf.register_opts(options.opts())
    assert conf.rpc_response_timeout == 60 and "rabbit_host" not in conf


# --- another tree's objects ---------------------------------------------------------------------


def foreign_cfg() -> Any:
    """A module like a tree's own cfg: identity decides whether an option is the same."""
    module = types.ModuleType("foreign_cfg")

    class Opt:
        def __init__(self, name: str, default: Any = None, help: str | None = None) -> None:
            self.name, self.default = name, default

    class DuplicateOptError(Exception):
        pass

    class NoSuchGroupError(Exception):
        pass

    class Conf:
        def __init__(self) -> None:
            self.__dict__["opts"] = {}

        def register_opt(self, opt: Any, group: str | None = None) -> None:
            if group:
                raise NoSuchGroupError(group)
            if opt.name in self.opts:
                raise DuplicateOptError(opt.name)
            self.opts[opt.name] = opt

        def __contains__(self, name: str) -> bool:
            return name in self.opts

        def __getattr__(self, name: str) -> Any:
            if name not in self.opts:
                raise AttributeError(name)
            return self.opts[name].default

    for kind in ("StrOpt", "IntOpt", "FloatOpt", "BoolOpt", "ListOpt", "MultiStrOpt"):
        setattr(module, kind, type(kind, (Opt,), {}))
    module.DuplicateOptError, module.Conf, Conf.__module__ = DuplicateOptError, Conf, "foreign_cfg"  # type: ignore[attr-defined]
    return module


def test_a_trees_own_object(load, monkeypatch):
    module = foreign_cfg()
    monkeypatch.setitem(__import__("sys").modules, "foreign_cfg", module)
    conf = module.Conf()
    conf.register_opt(module.IntOpt("rpc_response_timeout", default=5))
    options.register(conf)
    options.register(conf)
    assert options.value("rpc_response_timeout", conf) == 5
    assert type(conf.opts["rpc_conn_pool_size"]) is module.IntOpt
    # A tree's notifier registers this itself, later.
    conf.register_opt(module.MultiStrOpt("notification_driver", default=[]))


def test_gflags_of_a_tree(stand_in, monkeypatch):
    stand_in("diablo")
    defined: dict[str, Any] = {"rabbit_host": "theirs"}

    class Flags:
        def __contains__(self, name: str) -> bool:
            return name in defined

        def __getattr__(self, name: str) -> Any:
            try:
                return defined[name]
            except KeyError:
                raise AttributeError(name) from None

    flags: Any = types.ModuleType("nova.flags")
    flags.FLAGS = Flags()
    for kind in ("string", "integer", "bool", "list", "multistring"):
        setattr(flags, f"DEFINE_{kind}", lambda name, default, help: defined.setdefault(name, default))
    monkeypatch.setitem(__import__("sys").modules, "nova.flags", flags)
    options.register()
    assert defined["rabbit_host"] == "theirs"
    assert options.value("rabbit_host") == "theirs"
    assert options.value("rpc_thread_pool_size") == 1024
    assert options.opts() == []


# --- old brokers --------------------------------------------------------------------------------


def test_ignored_options_are_named_in_one_line(load, caplog):
    flags = load("nova.flags").FLAGS
    flags.set_override("rabbit_host", "broker")
    flags.set_override("qpid_port", "5672")
    flags.set_override("kombu_ssl_version", "3")
    with caplog.at_level(logging.DEBUG, "compat.nova.options"):
        options.log_ignored()
        options.log_ignored(flags)
    assert [record.levelno for record in caplog.records] == [logging.DEBUG]
    assert caplog.messages[0].endswith(": rabbit_host, kombu_ssl_version")


def test_nothing_is_said_where_nothing_is_set(load, caplog):
    load("nova.flags")
    with caplog.at_level(logging.DEBUG, "compat.nova.options"):
        options.log_ignored()
    assert caplog.messages == []
