"""The options that Nova's RPC had, on whatever configuration object a program has, and ours.

``register`` makes them known, ``value`` reads one at its use, so that a test's or a flag file's setting counts
whenever it came. Options of the old brokers are accepted and mean nothing; ``log_ignored`` says once which are set.
Where eras differ, the table below gives a default from an era on.
"""

from __future__ import annotations

import importlib
import logging
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from string import Template
from types import ModuleType
from typing import Any

import compat.nova as shim
from compat.nova.eras import ERAS

__all__ = [
    "DEFAULT_ROUTER",
    "OPTIONS",
    "Option",
    "configurations",
    "default",
    "log_ignored",
    "opts",
    "register",
    "register_nova_options",
    "set_default",
    "value",
]

LOG = logging.getLogger(__name__)

_MISSING = object()
DEFAULT_ROUTER = "tcp://127.0.0.1:7700"


@dataclass(frozen=True)
class Option:
    """One option.

    Attributes:
        kind: ``str``, ``int``, ``float``, ``bool``, ``list`` or ``multi`` (a list, an item each time it is given).
        defaults: the default from an era on, eras ascending.
        old_broker: accepted for the sake of existing configurations, and ignored.
        of_nova: registered by a part of a tree that is not replaced, so never on a tree's own object.
        group: its section; None is the default one.
    """

    name: str
    kind: str
    defaults: Mapping[str, Any]
    help: str
    old_broker: bool = False
    group: str | None = None
    of_nova: bool = False

    def default(self, era: str) -> Any:
        """The default in ``era``; before its first era, the earliest one."""
        best = next(iter(self.defaults.values()))
        for each in ERAS[: ERAS.index(era) + 1]:
            best = self.defaults.get(each, best)
        return [*best] if isinstance(best, list) else best


def _ours(name: str, kind: str, help: str, /, always: Any = _MISSING, **defaults: Any) -> Option:
    return Option(name, kind, defaults if always is _MISSING else {"cactus": always}, help)


def _nova_option(name: str, kind: str, help: str, default: Any, **later: Any) -> Option:
    return Option(name, kind, {"cactus": default} | later, help, of_nova=True)


def _old(names: str, kind: str, default: Any, group: str | None = None, **defaults: Any) -> Iterator[Option]:
    for name in names.split():
        broker = (group or name).partition("_")[0]
        yield Option(name, kind, {"cactus": default} | defaults, f"of {broker}: accepted, ignored", True, group)


_EXCEPTIONS = ["nova.exception"]
_EXCEPTIONS_FOLSOM = ["nova.openstack.common.exception", *_EXCEPTIONS]

_TABLE = (
    _ours(
        "rpc_backend", "str", "module that sends and receives; each name but impl_fake is rpcmq",
        cactus="nova.rpc.impl_carrot", diablo="nova.rpc.impl_kombu", folsom="nova.openstack.common.rpc.impl_kombu",
    ),
    _ours("rpc_thread_pool_size", "int", "green threads of a consumer", cactus=1024, folsom=64),
    _ours("rpc_conn_pool_size", "int", "connections kept for use again", 30),
    _ours("rpc_response_timeout", "int", "seconds to wait for each reply", 60),
    _ours("rpc_cast_timeout", "int", "seconds to wait until a cast is sent", 30),
    _ours(
        "allowed_rpc_exception_modules", "list", "modules whose exceptions are rebuilt at the caller",
        folsom=_EXCEPTIONS_FOLSOM, grizzly=[*_EXCEPTIONS_FOLSOM, "cinder.exception", "exceptions"],
    ),
    _ours("control_exchange", "str", "exchange that topics belong to", "nova"),
    _ours("fake_rabbit", "bool", "where no router is named: use one within this process", False),
    _nova_option(
        "notification_driver", "multi", "modules that send notifications", ["nova.notifier.no_op_notifier"], folsom=[]
    ),
    _nova_option("notification_topics", "list", "topics of notifications, without the priority", ["notifications"]),
    _nova_option("notification_topic", "str", "topic of notifications, without the priority (Diablo)", "notifications"),
    _nova_option("default_notification_level", "str", "priority of a notification that names none", "INFO"),
    _nova_option("default_publisher_id", "str", "sender of a notification that names none", "$host"),
    _nova_option("list_notifier_drivers", "multi", "drivers of the list notifier", ["nova.notifier.no_op_notifier"]),
    # None: RPCMQ_ROUTER of the environment at the time of use, or the port of a router on this host.
    _ours("rpcmq_router", "str", "URL of the rpcmq router", None),
    _ours("rpcmq_shadow", "str", "second backend, to compare read-only calls with: a router's URL or a module", ""),
    _ours(
        "rpcmq_shadow_methods", "list", "methods that only read: patterns of method, or topic:method",
        ["get_*", "list_*", "describe_*", "show_*"],
    ),
    *_old("rabbit_host", "str", "localhost"),
    *_old("rabbit_port", "int", 5672),
    *_old("rabbit_userid rabbit_password", "str", "guest"),
    *_old("rabbit_virtual_host", "str", "/"),
    *_old("rabbit_retry_interval", "int", 10, diablo=1),
    *_old("rabbit_retry_backoff", "int", 2),
    *_old("rabbit_max_retries", "int", 12, diablo=0),
    *_old("rabbit_use_ssl rabbit_durable_queues rabbit_ha_queues", "bool", False),
    *_old("rabbit_hosts", "list", ["$rabbit_host:$rabbit_port"]),
    *_old("amqp_durable_queues amqp_auto_delete amqp_rpc_single_reply_queue", "bool", False),
    *_old("kombu_ssl_version kombu_ssl_keyfile kombu_ssl_certfile kombu_ssl_ca_certs", "str", ""),
    *_old("qpid_hostname", "str", "localhost"),
    # Essex wrote this one as text, and so does every configuration: either is a number here.
    *_old("qpid_port", "int", 5672),
    *_old("qpid_hosts", "list", ["$qpid_hostname:$qpid_port"]),
    *_old("qpid_username qpid_password qpid_sasl_mechanisms", "str", ""),
    *_old("qpid_reconnect qpid_tcp_nodelay", "bool", True),
    *_old("qpid_reconnect_timeout qpid_reconnect_limit qpid_reconnect_interval_min", "int", 0),
    *_old("qpid_reconnect_interval_max qpid_reconnect_interval", "int", 0),
    *_old("qpid_heartbeat", "int", 60),
    *_old("qpid_protocol", "str", "tcp"),
    *_old("qpid_topology_version", "int", 1),
    *_old("rpc_zmq_bind_address", "str", "*"),
    *_old("rpc_zmq_matchmaker", "str", "nova.openstack.common.rpc.matchmaker.MatchMakerLocalhost"),
    *_old("rpc_zmq_port", "int", 9501),
    *_old("rpc_zmq_port_pub", "int", 9502),
    *_old("rpc_zmq_contexts", "int", 1),
    *_old("rpc_zmq_topic_backlog", "int", None),
    *_old("rpc_zmq_ipc_dir", "str", "/var/run/openstack"),
    *_old("rpc_zmq_host", "str", "$host"),
    *_old("matchmaker_ringfile", "str", "/etc/nova/matchmaker_ring.json"),
    *_old("matchmaker_heartbeat_freq", "int", 300),
    *_old("matchmaker_heartbeat_ttl", "int", 600),
    *_old("ringfile", "str", "/etc/oslo/matchmaker_ring.json", group="matchmaker_ring"),
    *_old("host", "str", "127.0.0.1", group="matchmaker_redis"),
    *_old("port", "int", 6379, group="matchmaker_redis"),
    *_old("password", "str", None, group="matchmaker_redis"),
)  # fmt: skip

OPTIONS: tuple[Option, ...] = _TABLE
"""All options, in the order in which they are registered."""

_BY_NAME = {option.name: option for option in OPTIONS if option.group is None}
_KINDS = {
    "str": "StrOpt",
    "int": "IntOpt",
    "float": "FloatOpt",
    "bool": "BoolOpt",
    "list": "ListOpt",
    "multi": "MultiStrOpt",
}
_GFLAGS = {
    "str": "DEFINE_string", "int": "DEFINE_integer", "float": "DEFINE_float", "bool": "DEFINE_bool",
    "list": "DEFINE_list", "multi": "DEFINE_multistring",
}  # fmt: skip

_FLAGS = (("nova.flags", "FLAGS"),)
_CFG = (("nova.openstack.common.cfg", "CONF"), ("nova.common.cfg", "CONF"))
_OSLO = (("oslo.config.cfg", "CONF"), ("oslo_config.cfg", "CONF"))

_CFG_FIRST = _CFG + _FLAGS + _OSLO
_BEFORE_FOLSOM = dict.fromkeys(("cactus", "diablo", "essex"), _FLAGS + _CFG + _OSLO)
_ORDER = _BEFORE_FOLSOM | dict.fromkeys(("grizzly", "havana"), _OSLO + _CFG + _FLAGS)

# Options that the defaults of others name.
_IN_DEFAULTS = ("host", "rabbit_host", "rabbit_port", "qpid_hostname", "qpid_port")

_said_ignored = False


# --- registering --------------------------------------------------------------------------------


def configurations() -> list[Any]:
    """The configuration objects of this program that are loaded; the one in force comes first.

    Up to Essex that is ``nova.flags.FLAGS``, in Folsom ``nova.openstack.common.cfg.CONF``, later ``oslo.config``'s.
    """
    order = _ORDER.get(shim.era(), _CFG_FIRST)
    loaded = (getattr(sys.modules.get(module), name, None) for module, name in order)
    return [*{id(conf): conf for conf in loaded if conf is not None}.values()]


def register(conf: Any = None) -> None:
    """Make every option known to ``conf``, or to each configuration object; one is loaded if there is none.

    An option that the program registered itself stays as it is, and where the object is the shim's own, the
    program may still register it later. Calling this again does nothing.
    """
    era = shim.era()
    if conf is None:
        _load(era)
    for each in [conf] if conf is not None else configurations():
        for option in OPTIONS:
            if not _has(each, option):
                _register_one(each, option, era)


def register_nova_options(*names: str) -> None:
    """Make options that Nova registered known to each configuration object: where ours stands for Nova's module."""
    era = shim.era()
    _load(era)
    for conf in configurations():
        for option in (_BY_NAME[name] for name in names):
            if not _has(conf, option):
                _register_one(conf, option, era, needed=True)


def _load(era: str) -> None:
    """Load the configuration object that a program of ``era`` uses; to Essex even if there is another one already."""
    flags = era in _BEFORE_FOLSOM
    if configurations() and (not flags or "nova.flags" in sys.modules):
        return
    try:
        importlib.import_module("oslo.config.cfg" if era in ("grizzly", "havana") else "nova.flags")
    except ImportError:
        LOG.debug("the program has no configuration object; the defaults hold", exc_info=True)


def opts() -> list[Any]:
    """The options of RPC itself as the program's own kind of option; none where it knows only flags.

    Where they are registered, so that a program may register them there again.
    """
    register()
    conf = next(iter(configurations()), None)
    module = _classes(conf)
    names = [option for option in OPTIONS if not (option.old_broker or option.of_nova)]
    if module is None:
        return []
    return [_registered(conf, option) or _opt(module, option, shim.era()) for option in names if option.group is None]


def _registered(conf: Any, option: Option) -> Any:
    """The object that ``conf``, ours or a tree's, has for an option; None if it keeps them in another way."""
    groups = getattr(vars(conf).get("_state"), "groups", None)
    if groups is not None:
        return groups[None][option.name].opt
    entry = (vars(conf).get("_opts") or {}).get(option.name)
    return entry.get("opt") if isinstance(entry, dict) else None


def set_default(name: str, value: Any) -> None:
    """Change an option's default in every loaded configuration object."""
    register()
    for conf in configurations():
        if hasattr(conf, "set_default"):
            conf.set_default(name, value)
        else:
            conf[name].SetDefault(value)


def _has(conf: Any, option: Option) -> bool:
    try:
        holder = getattr(conf, option.group) if option.group else conf
        return option.name in holder
    except Exception:  # each configuration class has its own way to say no
        return False


def _register_one(conf: Any, option: Option, era: str, needed: bool = False) -> None:
    ours = hasattr(conf, "_state")
    if option.of_nova and not ours and not needed:
        return
    module = _classes(conf)
    try:
        if module is not None:
            how: dict[str, Any] = {"group": option.group} if option.group else {}
            conf.register_opt(_opt(module, option, era), **how, **({"soft": True} if ours else {}))
        elif option.group is None and (flags := sys.modules.get("nova.flags")) is not None:
            # gflags, in a tree of Cactus or Diablo; it has no groups.
            define = getattr(flags, _GFLAGS[option.kind], None) or flags.DEFINE_string
            define(option.name, option.default(era), option.help)
    except Exception as error:
        # DuplicateOptError, DuplicateFlagError; and Essex has no groups but those that were registered.
        if not type(error).__name__.startswith(("Duplicate", "NoSuchGroup")):
            raise


def _classes(conf: Any) -> ModuleType | None:
    """The module with the classes of options that ``conf`` takes: it takes no other's."""
    if conf is None or not hasattr(conf, "register_opt"):
        return None
    modules = (sys.modules[kind.__module__] for kind in type(conf).__mro__)
    return next((module for module in modules if hasattr(module, "StrOpt")), None)


def _opt(module: ModuleType, option: Option, era: str) -> Any:
    return getattr(module, _KINDS[option.kind])(option.name, default=option.default(era), help=option.help)


# --- reading ------------------------------------------------------------------------------------


def default(name: str) -> Any:
    """Return an option's default in the era in force.

    Raises:
        KeyError: it is none of ours.
    """
    if name == "rpcmq_router":
        return os.environ.get("RPCMQ_ROUTER") or DEFAULT_ROUTER
    return _BY_NAME[name].default(shim.era())


def value(name: str, conf: Any = None) -> Any:
    """An option's value now: from ``conf`` if that has it, else from the object in force, else the default.

    One of None counts as not set.

    Raises:
        KeyError: nobody has it, and it is none of ours.
    """
    if conf is not None:
        found = getattr(conf, name, _MISSING)
        if found is not _MISSING and found is not None:
            return found
    modules = sys.modules
    # Written out: it is asked several times for each call.
    for module, attribute in _ORDER.get(shim.era(), _CFG_FIRST):
        loaded = modules.get(module)
        if loaded is not None:
            holder = getattr(loaded, attribute, None)
            cache = getattr(getattr(holder, "_state", None), "cache", None)
            found = cache.get((None, name)) if type(cache) is dict else None
            if found is None:
                found = getattr(holder, name, None)
            if found is not None:
                return found
    if name not in _BY_NAME:
        # Nova's own option, which is None or unknown everywhere.
        if any(getattr(each, name, _MISSING) is None for each in (conf, *configurations()) if each is not None):
            return None
        raise KeyError(name)
    return default(name)


def log_ignored(conf: Any = None) -> None:
    """Log one debug line with the broker options that are set, each once in a process."""
    global _said_ignored
    old = [option for option in OPTIONS if option.old_broker and option.group is None]
    objects = configurations() if conf is None else [conf]
    changed = [option.name for option in old if any(_is_set(option, each) for each in objects)]
    if changed and not _said_ignored:
        _said_ignored = True
        LOG.debug("rpcmq carries the messages; options of another transport are ignored: %s", ", ".join(changed))


def _is_set(option: Option, conf: Any) -> bool:
    names = {name: getattr(conf, name, "") for name in _IN_DEFAULTS}

    def text(value: Any) -> Any:
        # As text, since 5672 and '5672' are the same; some defaults are made of other options.
        return [*map(text, value)] if isinstance(value, list) else Template(str(value)).safe_substitute(names)

    found = getattr(conf, option.name, None)
    return found is not None and bool(text(found) != text(option.default(shim.era())))
