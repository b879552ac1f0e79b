"""The settings of a service that concern the driver, read as the service reads them."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import oslo_messaging
from oslo_config import cfg
from oslo_messaging import InvalidTransportURL
from oslo_messaging.notify.notifier import _notifier_opts

from rpcmq_oslo.doctor.findings import FAIL, OK, Finding
from rpcmq_oslo.options import GROUP, options_of
from rpcmq_oslo.router_urls import router_urls, virtual_host

__all__ = ["Bus", "read_settings"]

_SCHEME = "rpcmq"
_NOTIFICATIONS = "oslo_messaging_notifications"


@dataclass(frozen=True)
class Bus:
    """A transport url of a service that is the driver's.

    Attributes:
        conf: the service's configuration.
        url: the parsed url.
        shown: how it is written, without secrets.
        routers: the urls of its routers.
        key_file: path of the keys; empty: none.
        exchange: in which the service's topics are.
    """

    conf: cfg.ConfigOpts
    url: Any
    shown: str
    routers: tuple[str, ...]
    key_file: str
    exchange: str


def read_settings(config_files: Sequence[str], transport_url: str, exchange: str) -> tuple[list[Bus], list[Finding]]:
    """Return the urls that are the driver's, that of RPC first, and what is found about all of them.

    Args:
        config_files, transport_url, exchange: as for :func:`rpcmq_oslo.doctor.check`.
    """
    conf = cfg.ConfigOpts()
    arguments = [word for path in config_files for word in ("--config-file", path)]
    findings: list[Finding] = []
    try:
        # No files of its own choice: the program's name, by which they are found, is not the service's.
        conf(arguments, project="rpcmq-doctor", default_config_files=[], default_config_dirs=[])
    except cfg.Error as error:
        findings.append((FAIL, "settings", str(error), "correct it, or run this as the user of the service"))
        return [], findings
    buses: list[Bus] = []
    try:
        url = oslo_messaging.TransportURL.parse(conf, transport_url or None)
        _add(conf, url, bool(transport_url), exchange, buses, findings, "transport_url")
        conf.register_opts(_notifier_opts, group=_NOTIFICATIONS)
        notifications = conf[_NOTIFICATIONS].transport_url
        if notifications and not transport_url:
            url = oslo_messaging.TransportURL.parse(conf, notifications)
            _add(conf, url, True, exchange, buses, findings, "notifications")
    except cfg.Error as error:
        text = f"cannot be read: {error}; a $name in it may be an option that only the service knows"
        findings.append((FAIL, "transport_url", text, "give --transport-url, with the url written out"))
    except (InvalidTransportURL, ValueError) as error:
        findings.append((FAIL, "transport_url", str(error), "write transport_url = rpcmq://host:7700/"))
    return buses, findings


def _add(
    conf: cfg.ConfigOpts, url: Any, is_given: bool, exchange: str, buses: list[Bus], findings: list[Finding], name: str
) -> None:
    """Add what is found about ``url``, and the url to ``buses`` if the driver can use it."""
    shown = _without_secrets(url)
    scheme = url.transport.partition("+")[0]
    location = conf.get_location("transport_url")
    if not is_given and (location is None or location.location == cfg.Locations.opt_default):
        text = f"not set in [DEFAULT] of the files given: oslo.messaging would use {shown}"
        todo = "transport_url = rpcmq://host:7700/, or --transport-url where it is kept elsewhere (cells of Nova)"
        findings.append((FAIL, name, text, todo))
        return
    if scheme != _SCHEME:
        if name == "notifications":
            findings.append((OK, name, f"{shown}: they go on over {scheme}, not over rpcmq", ""))
        else:
            todo = "write transport_url = rpcmq://host:7700/ and restart the service"
            findings.append((FAIL, name, f"{shown}: the service uses {scheme}, not rpcmq", todo))
        return
    try:
        key_file = options_of(conf, url).key_file
        routers = router_urls(url)
    except InvalidTransportURL as error:
        findings.append((FAIL, name, str(error), "correct it: the service does not start like this"))
        return
    own = exchange or conf.control_exchange
    space = f", virtual host {virtual_host(url)}" if virtual_host(url) else ""
    findings.append(
        (
            OK,
            name,
            f"{shown}: {'one router' if len(routers) == 1 else f'{len(routers)} routers'}, exchange {own}{space}",
            "",
        )
    )
    if key_file:
        findings.append(_key_file(key_file))
    if not any(bus.routers == routers and bus.key_file == key_file for bus in buses):
        buses.append(Bus(conf, url, shown, routers, key_file, own))


def _key_file(path: str) -> Finding:
    try:
        mode = stat.S_IMODE(os.stat(path).st_mode)
        with open(path, "rb"):
            pass
    except OSError as error:
        todo = f"correct key_file in [{GROUP}], or run this as the user of the service, who must be able to read it"
        return FAIL, "key_file", f"{path}: {error.strerror}", todo
    if mode & 0o077:
        return FAIL, "key_file", f"{path} has mode {mode:04o}: others can read it", f"chmod 600 {path}"
    return OK, "key_file", f"{path}, mode {mode:04o}", ""


def _without_secrets(url: Any) -> str:
    """Return ``url`` as it is written, without users, passwords and query."""
    hosts = ",".join(f"{host.hostname or ''}{f':{host.port}' if host.port else ''}" for host in url.hosts)
    return f"{url.transport}://{hosts}/{url.virtual_host or ''}"
