"""The queue server that the settings of a router describe."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Set
from importlib.util import find_spec

from rpcmq.config import RouterConfig
from rpcmq.errors import ConfigError, NotInstalled
from rpcmq.server.embedded import EmbeddedRouter
from rpcmq.server.queue_process import QueueProcess, QueueServerCommand
from rpcmq.store.location import STORE_VARIABLE, is_database
from rpcmq.transport.key_files import KeyFile

__all__ = ["check_queues", "queue_server", "reachable_url", "start_queue_server"]

#: Addresses that stand for all of a machine, and how it reaches itself there.
_SELF = {"*": "127.0.0.1", "0.0.0.0": "127.0.0.1", "[::]": "[::1]"}


def check_queues(config: RouterConfig) -> None:
    """Check that there can be a queue server, if there is to be one.

    Raises:
        NotInstalled: what its store needs is not installed.
        ConfigError: it could not reach the router.
    """
    if not config.queue.has_server:
        return
    key, package, extra = ("store", "psycopg", "postgres") if config.queue.store else ("dir", "apsw", "queue")
    for needed in (package, "cronsim"):
        if find_spec(needed) is None:
            raise NotInstalled(f"queue.{key}: {needed} is not installed: pip install 'rpcmq[{extra}]'")
    if config.router.listen.startswith("inproc:"):
        raise ConfigError(
            f"queue.{key}: the queue server is a process of its own, which cannot reach router.listen = "
            f"{config.router.listen!r}; listen on tcp:// or ipc://"
        )


def reachable_url(bound: str) -> str:
    """Return the url at which a process of the same machine reaches a router that is ``bound`` there."""
    scheme, separator, rest = bound.partition("://")
    host, colon, port = rest.rpartition(":")
    return f"{scheme}{separator}{_SELF.get(host, host)}{colon}{port}" if scheme == "tcp" else bound


def queue_server(config: RouterConfig, bound: str, owner: str, key: KeyFile | None) -> QueueServerCommand:
    """Return the queue server that is to be run.

    Args:
        bound: the url that the router listens on.
        owner: the router's name, by which its items are known.
        key: of the queue server; None: the router has no keys.
    """
    settings = config.queue
    where = settings.store or os.path.abspath(settings.dir)
    # Without a directory of its own, nobody would find it when the router has died.
    orphan_seconds = settings.orphan_seconds if settings.dir else 0.0
    values = {
        "--owner": owner,
        "--orphan-seconds": orphan_seconds,
        "--takeover-seconds": settings.takeover_seconds,
        "--log-format": config.router.log_format,
        "--log-level": config.router.log_level,
    }
    if not is_database(where):
        values["--store"] = where
    flags = [str(each) for pair in values.items() for each in pair]
    if config.dispatch_log.directory:
        flags.append("--tell-deaths")
    # The settings of the router, and its service manager, are none of those of a client.
    foreign = ("RPCMQ_", "NOTIFY_", "WATCHDOG_")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    if is_database(where):
        environment[STORE_VARIABLE] = where
    directory = os.path.abspath(settings.dir) if settings.dir else tempfile.mkdtemp(prefix="rpcmq-queue-")
    return QueueServerCommand(
        directory,
        reachable_url(bound),
        flags,
        environment,
        key=key.text() if key is not None else "",
        is_temporary=not settings.dir,
    )


def start_queue_server(config: RouterConfig, router: EmbeddedRouter, cores: Set[int]) -> QueueProcess | None:
    """Start the queue server of ``router`` on ``cores``; None: it has none."""
    if not config.queue.has_server:
        return None
    key = router.key_authenticator.queue_keys[0] if router.key_authenticator is not None else None
    return QueueProcess(queue_server(config, router.url, router.settings.router_name, key), cores)
