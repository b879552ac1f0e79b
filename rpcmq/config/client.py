"""The settings of a client."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypedDict

from rpcmq.config.values import (
    BYTES,
    CONNECT_URLS,
    COUNT,
    DAY,
    FLAG,
    GLOBALS,
    MIB,
    NAME,
    OPTIONAL_PATH,
    choice,
    number,
    seconds,
    setting,
)

__all__ = ["ClientConfig", "ClientSettings", "ConnectionSettings"]


@dataclass(frozen=True)
class ClientConfig:
    """All settings of a client; those without a variable are given as arguments only."""

    router: tuple[str, ...] = setting(
        ("tcp://127.0.0.1:7700",),
        CONNECT_URLS,
        "URL of the router, or of several: callers use one, or the next when it is gone; services, subscribers use all",
    )
    identity: str = setting("", NAME, "name of this process; empty: host, program, pid and a random part")
    key_file: str = setting(
        "", OPTIONAL_PATH, "this process's CURVE keys, as `rpcmq init` and `rpcmq keys add` make it"
    )
    exchange: str = setting("", NAME, "namespace of the topics")
    shell: str = setting(
        "auto",
        choice("auto", "gevent", "threads"),
        "where the client lives: the gevent hub of the thread that makes it, or a plain thread of its own; "
        "auto: gevent where it has patched the program or a hub is in use, else the thread",
    )
    timeout: float = setting(60.0, seconds(0.001, DAY), "seconds for a call that names no timeout")
    format: str = setting("pickle", choice("pickle", "json", "dill"), "payload format tried first")
    allow: tuple[str, ...] = setting((), GLOBALS, "classes that may come in; docs/what-you-can-send.md")
    accept_dill: bool = setting(False, FLAG, "accept dill payloads, which run arbitrary code of their sender")
    trust_file: str = setting(
        "", OPTIONAL_PATH, "what each topic's payloads may be: formats, globals, signatures; docs/security.md"
    )
    trust_audit: str = setting(
        "", OPTIONAL_PATH, "file that records the globals named by each topic's pickles, in the form of a trust_file"
    )
    mac_file: str = setting("", OPTIONAL_PATH, "keys to sign payloads with, as `rpcmq trust key` makes it")
    cast_window: int = setting(1_000, COUNT, "casts not yet confirmed after which the next one waits", env=False)
    cast_window_bytes: int = setting(
        16 * MIB, BYTES, "bytes of casts not yet confirmed after which the next one waits", env=False
    )
    cast_window_total_bytes: int = setting(
        64 * MIB, BYTES, "bytes of casts, with those that full queues hold up, after which all wait", env=False
    )
    cast_kept: int = setting(
        10_000, COUNT, "casts that no consumer has yet kept for a restart of the router", env=False
    )
    cast_kept_bytes: int = setting(
        16 * MIB, BYTES, "bytes of casts that no consumer has yet, kept for the next router", env=False
    )
    answers_kept_bytes: int = setting(
        16 * MIB, BYTES, "bytes of answers kept in a mesh until their callers have them", env=False
    )
    reconnect_max_seconds: float = setting(
        2.0,
        seconds(0.01, 3600),
        "most seconds between two attempts to connect; never more than a quarter of router.recovery_seconds",
        env=False,
    )
    linger_seconds: float = setting(
        1.0,
        seconds(0.0, 3600),
        "most seconds that close, stop and the end of the program wait for the router to have what is queued",
        env=False,
    )
    retry_budget_ratio: float = setting(0.1, number(0, 1), "retries allowed for each call made", env=False)
    connect_timeout: float = setting(5.0, seconds(0.01, 3600), "seconds to wait for the router at first use", env=False)


class ConnectionSettings(TypedDict, total=False):
    """The settings of :class:`ClientConfig` as keywords of a service, for type checkers; None: not given.

    ``router``, ``identity`` and ``exchange`` are parameters of their own.
    """

    key_file: str | None
    shell: Literal["auto", "gevent", "threads"] | None
    timeout: float | str | None
    format: Literal["pickle", "json", "dill"] | None
    allow: str | Sequence[str] | None
    accept_dill: bool | None
    trust_file: str | None
    trust_audit: str | None
    mac_file: str | None
    cast_window: int | None
    cast_window_bytes: int | str | None
    cast_window_total_bytes: int | str | None
    cast_kept: int | None
    cast_kept_bytes: int | str | None
    answers_kept_bytes: int | str | None
    reconnect_max_seconds: float | str | None
    linger_seconds: float | str | None
    retry_budget_ratio: float | None
    connect_timeout: float | str | None


class ClientSettings(ConnectionSettings, total=False):
    """The same as keywords of a client, of which only ``router`` and ``identity`` are parameters of their own."""

    exchange: str | None
