"""Settings of the router and of a client: one dataclass each, from which all else is derived.

The router's settings come, in rising order of precedence, from the defaults below, one TOML file,
the environment and the command line; a client's from the defaults, the environment and arguments.
Each setting states once its default, what it accepts and what it is for. TOML keys
(``link.lost_seconds``), variables (``RPCMQ_LINK_LOST_SECONDS``), flags (``--link-lost-seconds``), help
and documentation follow from that. Whatever is unknown or wrong is refused, all of it in one error.

Times are seconds: a number, or text such as ``"250ms"``, ``"30s"``, ``"5m"``, ``"2h"``, ``"1d"``. Sizes are
bytes: an integer, or text such as ``"64KiB"``, ``"16MiB"``, ``"1GiB"``.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from difflib import get_close_matches
from math import inf
from operator import attrgetter
from typing import Any, NamedTuple, TypeVar

from rpcmq.errors import ConfigError

__all__ = [
    "ClientConfig",
    "FieldInfo",
    "RouterConfig",
    "apply_live",
    "describe_fields",
    "diff_live",
    "live_fields",
    "load_client_config",
    "load_router_config",
]

T = TypeVar("T")

KIB, MIB, GIB = 2**10, 2**20, 2**30
_SIZE_UNITS = {"": 1, "B": 1, "KiB": KIB, "MiB": MIB, "GiB": GIB}
_TIME_UNITS = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_FLAG_WORDS = dict.fromkeys(("1", "true", "yes", "on"), True) | dict.fromkeys(("0", "false", "no", "off"), False)
_DAY = 86400.0

# --- what a setting may hold --------------------------------------------------------------------


@dataclass(frozen=True)
class Kind:
    """What a setting accepts.

    Args:
        name: short, for tables.
        expected: completes the sentence "expected ...".
        check: returns the value to keep; raises ValueError if this is none.
        read: turns the text of a variable or flag into what ``check`` takes.
    """

    name: str
    expected: str
    check: Callable[[Any], Any]
    read: Callable[[str], Any] = str


def _in_range(value: float, low: float, high: float) -> bool:
    return not isinstance(value, bool) and low <= value <= high


def _range(low: float, high: float) -> str:
    return f">= {low:.15g}" if high == inf else f"from {low:.15g} to {high:.15g}"


def _integer(low: int, high: float = inf) -> Kind:
    def check(value: object) -> int:
        if not isinstance(value, int) or not _in_range(value, low, high):
            raise ValueError
        return value

    return Kind("integer", f"an integer {_range(low, high)}", check, int)


def _number(low: float, high: float) -> Kind:
    def check(value: object) -> float:
        if not isinstance(value, int | float) or not _in_range(value, low, high):
            raise ValueError
        return float(value)

    return Kind("number", f"a number {_range(low, high)}", check, float)


def _seconds(low: float, high: float) -> Kind:
    def check(value: object) -> float:
        if isinstance(value, str):
            parts = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?) ?(ms|[smhd]?)", value)
            if parts is None:
                raise ValueError
            value = float(parts[1]) * _TIME_UNITS[parts[2]]
        if not isinstance(value, int | float) or not _in_range(value, low, high):
            raise ValueError
        return float(value)

    text = f"seconds {_range(low, high)}, as a number or text like '250ms', '30s', '5m'"
    return Kind("seconds", text, check)


def _size(low: int, high: float = inf) -> Kind:
    def check(value: object) -> int:
        if isinstance(value, str):
            parts = re.fullmatch(r"([0-9]+) ?([KMG]iB|B?)", value)
            if parts is None:
                raise ValueError
            value = int(parts[1]) * _SIZE_UNITS[parts[2]]
        if not isinstance(value, int) or not _in_range(value, low, high):
            raise ValueError
        return value

    text = f"bytes {_range(low, high)}, as an integer or text like '64KiB', '16MiB'"
    return Kind("bytes", text, check)


def _matching(name: str, expected: str, accepts: Callable[[str], object]) -> Kind:
    def check(value: object) -> str:
        if not isinstance(value, str) or not accepts(value):
            raise ValueError
        return value

    return Kind(name, expected, check)


def _choice(*choices: str) -> Kind:
    return _matching("choice", "one of " + ", ".join(map(repr, choices)), choices.__contains__)


def _read_flag(text: str) -> bool:
    if text.lower() not in _FLAG_WORDS:
        raise ValueError
    return _FLAG_WORDS[text.lower()]


def _check_flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError
    return value


def _check_globals(value: object) -> tuple[str, ...]:
    if not isinstance(value, list | tuple):
        raise ValueError
    for item in value:
        if not isinstance(item, str) or not re.fullmatch(r"numpy|[^\W\d][\w.]*:(\*|[^\W\d][\w.]*)", item):
            raise ValueError
    return tuple(value)


def _check_hosts(value: object) -> tuple[str, ...]:
    if not isinstance(value, list | tuple):
        raise ValueError
    for item in value:
        if not isinstance(item, str) or not re.fullmatch(r"[^\s:/\[\]]+", item):
            raise ValueError
    return tuple(value)


def _split(text: str) -> list[str]:
    return [item.strip() for item in text.split(",") if item.strip()]


def _is_address(text: str, port_pattern: str = "[0-9]{1,5}") -> bool:
    parts = re.fullmatch(rf"(?:[^\s:/\[\]]+|\[[0-9A-Fa-f:.%]+\]):({port_pattern})", text)
    return parts is not None and (parts[1] == "*" or int(parts[1]) <= 65535)


def _is_url(text: str, port_pattern: str) -> bool:
    scheme, _, rest = text.partition("://")
    if scheme == "tcp":
        return _is_address(rest, port_pattern)
    return scheme in ("ipc", "inproc") and rest.isprintable() and rest != ""


_NAME = _matching(
    "text",
    "printable text of at most 255 bytes",
    lambda text: text.isprintable() and len(text.encode(errors="replace")) <= 255,
)
_LISTEN_URL = _matching(
    "URL",
    "a URL like 'tcp://127.0.0.1:7700' (port 0 or *: any free one), 'ipc:///run/rpcmq.sock' or 'inproc://name'",
    lambda text: _is_url(text, r"[0-9]{1,5}|\*"),
)
_CONNECT_URL = _matching(
    "URL",
    "a URL like 'tcp://127.0.0.1:7700', 'ipc:///run/rpcmq.sock' or 'inproc://name'",
    lambda text: _is_url(text, "0*[1-9][0-9]{0,4}") and not text.startswith("tcp://*"),
)
_OPTIONAL_ADDRESS = _matching(
    "address",
    "host:port like '127.0.0.1:7780' (port 0: any free one), or '' for off",
    lambda text: text == "" or _is_address(text),
)
_RATE = Kind("number", "messages a second >= 0; 0: no limit", _number(0, inf).check, float)
_OPTIONAL_PATH = _matching("path", "a path, or '' for off", lambda text: text == "" or text.isprintable())
_FLAG = Kind("flag", "true or false", _check_flag, _read_flag)
_GLOBALS = Kind(
    "list",
    "a list of 'module:qualname', 'module:*' or 'numpy' (as text: separated by commas)",
    _check_globals,
    _split,
)
_HOSTS = Kind(
    "list",
    "a list of host names without ports (as text: separated by commas)",
    _check_hosts,
    _split,
)
_LOG_LEVELS = _choice("debug", "info", "warning", "error")
_COUNT = _integer(1)
_BYTES = _size(KIB)


@dataclass(frozen=True)
class _Setting:
    kind: Kind
    help: str
    live: bool
    env: bool
    flag: str


def _setting(default: T, kind: Kind, help: str, *, live: bool = False, env: bool = True, flag: str = "") -> T:
    return field(default=default, metadata={"setting": _Setting(kind, help, live, env, flag)})


# --- the settings -------------------------------------------------------------------------------


@dataclass(frozen=True)
class RouterSettings:
    """The daemon itself."""

    listen: str = _setting("tcp://127.0.0.1:7700", _LISTEN_URL, "endpoint that serves every link")
    name: str = _setting("", _NAME, "name in logs and views; empty: the host's name")
    id: int = _setting(1, _integer(1, 2**32 - 1), "number of this router, unique among linked ones")
    http: str = _setting("", _OPTIONAL_ADDRESS, "address of /healthz and the JSON views; empty: off")
    http_hosts: tuple[str, ...] = _setting(
        (), _HOSTS, "names in the Host header that router.http answers to, beside addresses and this machine's name"
    )
    log_level: str = _setting("info", _LOG_LEVELS, "least severe log records that are written", live=True)
    log_format: str = _setting("text", _choice("text", "json"), "form of a log record")
    max_bytes: int = _setting(
        0, _size(0), "bytes held for all peers together; 0: half of the memory of the host or control group", live=True
    )
    drain_seconds: float = _setting(
        30.0, _seconds(0, _DAY), "seconds that SIGTERM waits for what is running to finish", live=True
    )
    recovery_seconds: float = _setting(
        2.5, _seconds(0, 3600), "seconds after a start in which links come back before casts and events are routed"
    )
    io_threads: int = _setting(1, _integer(1, 64), "ZeroMQ I/O threads")
    insecure: bool = _setting(False, _FLAG, "listen beyond this host without keys: whoever gets there can do anything")


@dataclass(frozen=True)
class LinkSettings:
    """Connections of processes: their liveness and what is queued on the way out."""

    heartbeat_seconds: float = _setting(5.0, _seconds(0.05, 3600), "seconds between two heartbeats")
    unresponsive_seconds: float = _setting(
        12.0, _seconds(0.1, _DAY), "seconds of silence after which a link gets no new work", live=True
    )
    lost_seconds: float = _setting(60.0, _seconds(0.1, _DAY), "seconds of silence after which a link is lost")
    resume_seconds: float = _setting(30.0, _seconds(0, _DAY), "seconds in which an identity may resume", live=True)
    consumer_grace_seconds: float = _setting(
        0.5,
        _seconds(0, 3600),
        "seconds that a consumer may be away before its work is taken from it",
        live=True,
    )
    handshake_seconds: float = _setting(10.0, _seconds(0.1, 3600), "seconds that a new link has to say HELLO")
    max_links: int = _setting(100_000, _COUNT, "links at a time", live=True)
    max_handshakes: int = _setting(
        1_000, _COUNT, "connections at a time that have not said HELLO; beyond it the oldest are cut", live=True
    )
    inbox_max_bytes: int = _setting(
        128 * MIB, _BYTES, "bytes of one link that came and wait because its messages cost much work", live=True
    )
    max_bytes: int = _setting(256 * MIB, _BYTES, "bytes of calls and casts of one link that have not ended", live=True)
    outbox_max_bytes: int = _setting(
        256 * MIB, _BYTES, "bytes waiting to be sent to one link or acknowledged by it", live=True
    )
    outbox_max_messages: int = _setting(100_000, _COUNT, "messages waiting to be sent to one link", live=True)


@dataclass(frozen=True)
class QueueSettings:
    """Calls and casts that wait for a consumer's credit."""

    max_messages: int = _setting(100_000, _COUNT, "messages waiting in one topic", live=True)
    max_bytes: int = _setting(256 * MIB, _BYTES, "bytes waiting in one topic", live=True)


@dataclass(frozen=True)
class MailboxSettings:
    """Casts kept while their consumer is away."""

    max_seconds: float = _setting(
        600.0, _seconds(0, 30 * _DAY), "seconds that a cast is kept while its consumer is away", live=True
    )
    unclaimed_seconds: float = _setting(
        60.0, _seconds(0, 30 * _DAY), "seconds that one is kept for a topic never registered", live=True
    )
    max_unclaimed_topics: int = _setting(10_000, _COUNT, "topics never registered that may hold messages", live=True)


@dataclass(frozen=True)
class TopicSettings:
    """The table of topics."""

    max_topics: int = _setting(1_000_000, _COUNT, "topics known at a time", live=True)


@dataclass(frozen=True)
class MessageSettings:
    """Any message."""

    max_bytes: int = _setting(64 * MIB, _size(KIB, GIB), "bytes of one message")
    max_ttl_seconds: float = _setting(_DAY, _seconds(1, 30 * _DAY), "most seconds that a message may live")


@dataclass(frozen=True)
class CallSettings:
    """Calls under way."""

    max_in_flight: int = _setting(1_000_000, _COUNT, "calls not yet ended, in all", live=True)
    default_timeout_seconds: float = _setting(60.0, _seconds(0.001, _DAY), "seconds for a call without ttl")


@dataclass(frozen=True)
class PubSubSettings:
    """What one subscriber may hold; beyond it a slow one loses its own messages."""

    max_messages: int = _setting(10_000, _COUNT, "messages waiting for one subscriber", live=True)
    max_bytes: int = _setting(16 * MIB, _BYTES, "bytes waiting for one subscriber", live=True)
    max_patterns: int = _setting(1_000, _COUNT, "patterns of one subscriber", live=True)
    max_pattern_states: int = _setting(
        10_000, _COUNT, "states that one subscriber's patterns can add to the match of an event", live=True
    )


@dataclass(frozen=True)
class StatsSettings:
    """The router's own table of latencies."""

    max_methods: int = _setting(10_000, _COUNT, "methods of topics that are counted one by one")


@dataclass(frozen=True)
class DispatchLogSettings:
    """A record of each message that has ended, in files: docs/dispatch-log.md."""

    directory: str = _setting("", _OPTIONAL_PATH, "folder of the dispatch log; empty: off", flag="--dispatch-log")
    segment_records: int = _setting(
        50_000, _integer(1000, 5_000_000), "records after which a file is complete", live=True
    )
    segment_seconds: float = _setting(
        10.0, _seconds(0.1, 3600), "seconds after which a file is complete: how late its readers are", live=True
    )
    ship: bool = _setting(False, _FLAG, "run `rpcmq ship` beside the router, with what follows")
    ship_seconds: float = _setting(1.0, _seconds(0.05, 3600), "seconds between two looks for complete files")
    keep_seconds: float = _setting(30 * _DAY, _seconds(1, 3650 * _DAY), "seconds that shipped records are kept")
    keep_bytes: int = _setting(10 * GIB, _BYTES, "bytes of shipped records above which the oldest go")
    keep_ready_seconds: float = _setting(
        _DAY, _seconds(0, 3650 * _DAY), "seconds that a segment stays in ready/ when its records are in log/"
    )


@dataclass(frozen=True)
class SecuritySettings:
    """CURVE: who may connect, and what a key may do at most: docs/security.md."""

    keys: str = _setting(
        "", _OPTIONAL_PATH, "folder with router.key and authorized/, as `rpcmq init` makes it; empty: no CURVE",
        flag="--keys",
    )  # fmt: skip
    max_bytes_per_key: int = _setting(
        GIB,
        _BYTES,
        "bytes held for all links of one key, both ways, beyond which it is refused calls and casts",
        live=True,
    )
    max_links_per_key: int = _setting(10_000, _COUNT, "links of one key, unless its file says otherwise", live=True)
    messages_per_second: float = _setting(
        0.0, _RATE, "calls, casts and events of one key, unless its file says otherwise; 0: no limit", live=True
    )


@dataclass(frozen=True)
class RouterConfig:
    """All settings of a router, one attribute a section."""

    router: RouterSettings = field(default_factory=RouterSettings)
    link: LinkSettings = field(default_factory=LinkSettings)
    queue: QueueSettings = field(default_factory=QueueSettings)
    mailbox: MailboxSettings = field(default_factory=MailboxSettings)
    topics: TopicSettings = field(default_factory=TopicSettings)
    message: MessageSettings = field(default_factory=MessageSettings)
    call: CallSettings = field(default_factory=CallSettings)
    pubsub: PubSubSettings = field(default_factory=PubSubSettings)
    security: SecuritySettings = field(default_factory=SecuritySettings)
    stats: StatsSettings = field(default_factory=StatsSettings)
    dispatch_log: DispatchLogSettings = field(default_factory=DispatchLogSettings)


@dataclass(frozen=True)
class ClientConfig:
    """All settings of a client; those without a variable are given as arguments only."""

    router: str = _setting("tcp://127.0.0.1:7700", _CONNECT_URL, "URL of the router")
    identity: str = _setting("", _NAME, "name of this process; empty: host, program, pid and a random part")
    key_file: str = _setting(
        "", _OPTIONAL_PATH, "this process's CURVE keys, as `rpcmq init` and `rpcmq keys add` make it"
    )
    exchange: str = _setting("", _NAME, "namespace of the topics")
    shell: str = _setting(
        "auto",
        _choice("auto", "gevent", "threads"),
        "where the client lives: the gevent hub of the thread that makes it, or a background thread; "
        "auto: gevent in a patched program or where a hub is in use, else the thread",
    )
    timeout: float = _setting(60.0, _seconds(0.001, _DAY), "seconds for a call that names no timeout")
    format: str = _setting("pickle", _choice("pickle", "json", "dill"), "payload format tried first")
    allow: tuple[str, ...] = _setting((), _GLOBALS, "classes that may come in; docs/what-you-can-send.md")
    accept_dill: bool = _setting(False, _FLAG, "load dill, which runs any code its sender likes")
    trust_file: str = _setting(
        "", _OPTIONAL_PATH, "what each topic's payloads may be: formats, globals, signatures; docs/security.md"
    )
    trust_audit: str = _setting(
        "", _OPTIONAL_PATH, "file to note in what each topic's pickles really name, in the form of a trust_file"
    )
    mac_file: str = _setting("", _OPTIONAL_PATH, "keys to sign payloads with, as `rpcmq trust key` makes it")
    cast_window: int = _setting(1_000, _COUNT, "casts not yet confirmed after which the next one waits", env=False)
    cast_window_bytes: int = _setting(
        16 * MIB, _BYTES, "bytes of casts not yet confirmed after which the next one waits", env=False
    )
    cast_window_total_bytes: int = _setting(
        64 * MIB, _BYTES, "bytes of casts, with those that full queues hold up, after which all wait", env=False
    )
    cast_kept: int = _setting(
        10_000, _COUNT, "casts that no consumer has yet kept for a restart of the router", env=False
    )
    cast_kept_bytes: int = _setting(
        16 * MIB, _BYTES, "bytes of casts that no consumer has yet, kept for the next router", env=False
    )
    reconnect_max_seconds: float = _setting(
        2.0,
        _seconds(0.01, 3600),
        "most seconds between two attempts to connect; never more than a quarter of router.recovery_seconds",
        env=False,
    )
    linger_seconds: float = _setting(
        1.0,
        _seconds(0.0, 3600),
        "most seconds that close, stop and the end of the program wait for the router to have what is queued",
        env=False,
    )
    retry_budget_ratio: float = _setting(0.1, _number(0, 1), "retries allowed for each call made", env=False)
    connect_timeout: float = _setting(
        5.0, _seconds(0.01, 3600), "seconds to wait for the router at first use", env=False
    )


# The first must be less than the second: silence is noticed by a missing heartbeat, then acted on.
_ASCENDING = (
    ("link.heartbeat_seconds", "link.unresponsive_seconds"),
    ("link.unresponsive_seconds", "link.lost_seconds"),
)

# --- derived ------------------------------------------------------------------------------------


class FieldInfo(NamedTuple):
    """One setting as documentation, ``--help`` and the loaders see it.

    ``flag`` and ``env`` are None where the setting has none.
    """

    key: str
    kind: Kind
    default: Any
    help: str
    live: bool
    flag: str | None
    env: str | None


def describe_fields(config: RouterConfig | ClientConfig | None = None) -> Iterator[FieldInfo]:
    """Every setting of the router (or of ``config``), in the order of the file; defaults are its values."""
    config = RouterConfig() if config is None else config
    of_router = isinstance(config, RouterConfig)
    for key, default, setting in _walk(config):
        name = re.sub("[._]", "-", key.removeprefix("router."))
        env = "RPCMQ_" + key.replace(".", "_").upper() if setting.env else None
        flag = (setting.flag or f"--{name}") if of_router else None
        yield FieldInfo(key, setting.kind, default, setting.help, setting.live, flag, env)


def _walk(config: Any, prefix: str = "") -> Iterator[tuple[str, Any, _Setting]]:
    for each in fields(config):
        value = getattr(config, each.name)
        if is_dataclass(value):
            yield from _walk(value, f"{each.name}.")
        else:
            yield prefix + each.name, value, each.metadata["setting"]


_ROUTER_FIELDS = {info.key: info for info in describe_fields()}
_CLIENT_FIELDS = {info.key: info for info in describe_fields(ClientConfig())}
# A host may run a router and clients in one environment: each leaves the other's variables alone.
_VARIABLES = {info.env for table in (_ROUTER_FIELDS, _CLIENT_FIELDS) for info in table.values() if info.env}


class _Values:
    """Collects values from sources of rising precedence, and everything that is wrong with them."""

    def __init__(self, known: Mapping[str, FieldInfo]) -> None:
        self.known = known
        self.values: dict[str, Any] = {}
        self.problems: list[str] = []
        self._origins: dict[str, str] = {}
        self._wrong: set[str] = set()

    def take(self, source: str, shown: str, key: str, value: Any, *, text: bool = False) -> None:
        kind = self.known[key].kind
        try:
            self.values[key] = kind.check(kind.read(value) if text else value)
            self._origins[key] = f"{source}: {shown} = {value!r}"
        except ValueError:
            self.problems.append(f"{source}: {shown} = {value!r}: expected {kind.expected}")
            self._wrong.add(key)

    def unknown(self, source: str, shown: str, candidates: Iterable[str]) -> None:
        known = sorted(candidates)
        name = shown.rpartition(".")[2]
        near = get_close_matches(shown, known, 1, 0.8) or [key for key in known if key.endswith(f".{name}")]
        self.problems.append(f"{source}: {shown}: unknown" + (f"; did you mean {near[0]}?" if near else ""))

    def take_file(self, path: str) -> None:
        try:
            with open(path, "rb") as file:
                tables = tomllib.load(file)
        except OSError as error:
            self.problems.append(f"{path}: cannot be read: {error.strerror}")
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            self.problems.append(f"{path}: not valid TOML: {error}")
        else:
            self._take_tables(path, tables)

    def _take_tables(self, path: str, tables: Mapping[str, Any]) -> None:
        sections = {key.partition(".")[0] for key in self.known}
        for section, table in tables.items():
            if section not in sections:
                self.unknown(path, section, sections if isinstance(table, dict) else self.known)
            elif not isinstance(table, dict):
                self.problems.append(f"{path}: {section} = {table!r}: expected a table [{section}]")
            else:
                for name, value in table.items():
                    self.take_key(path, f"{section}.{name}", value)

    def take_key(self, source: str, key: str, value: Any) -> None:
        if key in self.known:
            self.take(source, key, key, value)
        else:
            self.unknown(source, key, self.known)

    def take_environment(self, environ: Mapping[str, str]) -> None:
        keys = {info.env: key for key, info in self.known.items()}
        for name in sorted(environ):
            if name in keys:
                self.take("environment", name, keys[name], environ[name], text=True)
            elif name.startswith("RPCMQ_") and name not in _VARIABLES:
                self.unknown("environment", name, _VARIABLES)

    def check_order(self) -> None:
        for low, high in _ASCENDING:
            if self._get(low) < self._get(high) or self._wrong & {low, high}:
                continue
            # Blame what was set, not a default.
            wrong, relation, other = (high, "more", low) if high in self._origins else (low, "less", high)
            self.problems.append(f"{self._origins[wrong]}: expected {relation} than {other} = {self._get(other)!r}")

    def _get(self, key: str) -> Any:
        return self.values.get(key, self.known[key].default)

    def finish(self) -> dict[str, Any]:
        if self.problems:
            raise ConfigError("\n".join(self.problems))
        return self.values


def load_router_config(
    path: str | None = None, environ: Mapping[str, str] | None = None, flags: Mapping[str, Any] | None = None
) -> RouterConfig:
    """The router's settings: flags before environment before file before defaults.

    Args:
        path: the TOML file, if there is one.
        environ: variables; only those that start with ``RPCMQ_`` are looked at.
        flags: values by key (``"link.lost_seconds"``), as text or as they would be in TOML; None: not given.

    Raises:
        ConfigError: one line for each value that is unknown or wrong, in whichever source.
    """
    values = _Values(_ROUTER_FIELDS)
    if path is not None:
        values.take_file(path)
    values.take_environment(environ or {})
    for key, value in (flags or {}).items():
        if value is None:
            continue
        info = _ROUTER_FIELDS.get(key)
        if info is None:
            values.unknown("command line", key, _ROUTER_FIELDS)
        else:
            values.take("command line", str(info.flag), key, value, text=isinstance(value, str))
    values.check_order()
    return _with_values(RouterConfig(), values.finish())


def load_client_config(
    environ: Mapping[str, str] | None = None, arguments: Mapping[str, Any] | None = None
) -> ClientConfig:
    """A client's settings: arguments before environment before defaults. An argument of None is not given.

    Raises:
        ConfigError: one line for each value that is unknown or wrong, in whichever source.
    """
    values = _Values(_CLIENT_FIELDS)
    values.take_environment(environ or {})
    for key, value in (arguments or {}).items():
        if value is not None:
            values.take_key("argument", key, value)
    return replace(ClientConfig(), **values.finish())


def _with_values(config: RouterConfig, values: Mapping[str, Any]) -> RouterConfig:
    sections: dict[str, dict[str, Any]] = {}
    for key, value in values.items():
        section, _, name = key.partition(".")
        sections.setdefault(section, {})[name] = value
    changed = {section: replace(getattr(config, section), **names) for section, names in sections.items()}
    return replace(config, **changed)


# --- reload -------------------------------------------------------------------------------------


def live_fields() -> frozenset[str]:
    """Keys of the router's settings that SIGHUP can change."""
    return frozenset(info.key for info in _ROUTER_FIELDS.values() if info.live)


def diff_live(old: RouterConfig, new: RouterConfig) -> tuple[dict[str, Any], dict[str, Any]]:
    """What a reload changes now and what needs a restart, each as the new values by key."""
    changes: dict[str, Any] = {}
    refused: dict[str, Any] = {}
    for key, info in _ROUTER_FIELDS.items():
        value = attrgetter(key)(new)
        if value != attrgetter(key)(old):
            (changes if info.live else refused)[key] = value
    return changes, refused


def apply_live(config: RouterConfig, changes: Mapping[str, Any]) -> RouterConfig:
    """``config`` with the changes that ``diff_live`` allowed: what runs after the reload."""
    return _with_values(config, changes)
