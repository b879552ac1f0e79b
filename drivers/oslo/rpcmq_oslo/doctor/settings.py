"""The settings of a service that concern the driver, read as the service reads them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import oslo_messaging
from oslo_config import cfg
from oslo_messaging import InvalidTransportURL
from oslo_messaging.notify.notifier import _notifier_opts

from rpcmq import threads
from rpcmq.errors import ConfigError
from rpcmq_oslo.doctor.findings import FAIL, OK, WARN, Finding
from rpcmq_oslo.options import GROUP, OPTION_NAMES, options_of
from rpcmq_oslo.router_urls import SCHEME, router_urls, virtual_host

__all__ = ["Bus", "read_settings"]

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
    findings += _group_findings(config_files)
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
        # Of a port that is no number it tells only how Python says so.
        text = str(error) if isinstance(error, InvalidTransportURL) else f"a port in it is no number: {error}"
        findings.append((FAIL, "transport_url", text, "write transport_url = rpcmq://host:7700/"))
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
    if scheme != SCHEME:
        if name == "notifications":
            findings.append((OK, name, f"{shown}: they go on over {scheme}, not over rpcmq", ""))
        else:
            todo = "write transport_url = rpcmq://host:7700/ and restart the service"
            findings.append((FAIL, name, f"{shown}: the service uses {scheme}, not rpcmq", todo))
        return
    try:
        # First, as in the driver: it refuses passwords.
        routers = router_urls(url)
        key_file = options_of(conf, url).key_file
    except InvalidTransportURL as error:
        findings.append((FAIL, name, str(error), "correct it: the service does not start like this"))
        return
    own = exchange or conf.control_exchange
    if len(routers) < len(url.hosts):
        text = f"{shown}: a router is named twice, which counts once"
        findings.append((WARN, name, text, "name another one of the mesh, or leave it out"))
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
        findings.append(finding := _key_file(key_file, routers))
        if finding[0] == FAIL:
            # Each router would be told to be at fault for it.
            return
    if not any(bus.routers == routers and bus.key_file == key_file for bus in buses):
        buses.append(Bus(conf, url, shown, routers, key_file, own))


def _group_findings(config_files: Sequence[str]) -> Iterator[Finding]:
    """Yield the names in the driver's group that are no options, or are there twice: oslo.config does not tell."""
    known = ", ".join(OPTION_NAMES)
    for path in config_files:
        sections: dict[str, dict[str, list[str]]] = {}
        # It has been read before: its form is right.
        cfg.ConfigParser(path, sections).parse()
        for name, values in sections.get(GROUP, {}).items():
            if name not in OPTION_NAMES:
                text = f"{path}: [{GROUP}] has {name}, which is no option of the driver, and is not looked at"
                yield WARN, "settings", text, f"correct the name, or leave it out; options are: {known}"
            elif len(values) > 1:
                text = f"{path}: [{GROUP}] has {name} {len(values)} times; the last one counts: {values[-1]}"
                yield WARN, "settings", text, "leave the others out"


def _key_file(path: str, routers: Sequence[str]) -> Finding:
    """Return whether the service could connect with the keys in ``path``; nothing is connected."""
    try:
        threads.Client(list(routers), key_file=path).close()
    except ConfigError as error:
        return FAIL, "key_file", str(error), _advice_for_key_file(path, str(error))
    return OK, "key_file", f"{path}, for its owner alone", ""


def _advice_for_key_file(path: str, error: str) -> str:
    if "cannot be read" in error:
        return f"correct key_file in [{GROUP}], or run this as the user of the service, who must be able to read it"
    if "chmod" in error:
        return f"chmod 600 {path}"
    return (
        f"correct key_file in [{GROUP}] if it is another file; else bring it here once more from where it was made, or "
        "make a new one: rpcmq keys add at the router"
    )


def _without_secrets(url: Any) -> str:
    """Return ``url`` as it is written, without users, passwords and query."""
    hosts = ",".join(f"{host.hostname or ''}{f':{host.port}' if host.port else ''}" for host in url.hosts)
    return f"{url.transport}://{hosts}/{url.virtual_host or ''}"
