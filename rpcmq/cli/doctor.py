"""``rpcmq doctor``: find present and future problems of a router's set-up, with advice."""

from __future__ import annotations

import ctypes
import os
import resource
import stat
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from time import time
from typing import Any

import click

from rpcmq.cli.doctor_nodes import node_findings, running_node_findings
from rpcmq.cli.doctor_openstack import openstack_findings
from rpcmq.cli.doctor_queues import queue_problems
from rpcmq.cli.options import State, connects, json_option, make_client, positive
from rpcmq.cli.output import Output, add_row, print_folded, print_json, table
from rpcmq.cli.text import counted
from rpcmq.config import RouterConfig, load_client_config, load_router_config
from rpcmq.config.values import is_connect_url
from rpcmq.errors import ConfigError, RpcError, UsageError
from rpcmq.server.authorized_keys import AUTHORIZED, ROUTER_KEY, AuthorizedKeys
from rpcmq.server.mesh_secret import MESH_SECRET, read_mesh_secret
from rpcmq.server.mesh_urls import wrong_peers
from rpcmq.server.open_binds import open_binds
from rpcmq.server.queue_key import NAME as QUEUE_SERVER_KEY
from rpcmq.transport.curve import OLDEST_SAFE, check_libzmq, libzmq_version
from rpcmq.transport.key_files import read_key_file
from rpcmq.wire.bodies import MESH_TYPE

__all__ = ["doctor_command"]

OK, WARN, FAIL = "ok", "warning", "fail"
_STYLES = {OK: "green", WARN: "yellow", FAIL: "red"}
#: Days before expiry from which a key is reported; and the allowed difference of clocks (seconds).
_SOON_DAYS = 14
_CLOCK = 5.0
_DAY = 86400.0
_SPARE_FILES = 100
#: The addresses at which a process of this host reaches a router that listens on all interfaces.
_HERE = {"tcp://*:": "tcp://127.0.0.1:", "tcp://0.0.0.0:": "tcp://127.0.0.1:", "tcp://[::]:": "tcp://[::1]:"}
#: adjtimex(2): the clock is not synchronised.
_TIME_ERROR = 5


@dataclass(frozen=True)
class Finding:
    """A finding: severity, subject, observation, advice (empty if none)."""

    level: str
    about: str
    text: str
    todo: str = ""


@click.command("doctor")
@click.option("--config", metavar="FILE", help="The router's TOML file, as `rpcmq router --config` has it.")
@click.option("--keys", "folder", metavar="DIR", help="The router's folder of keys.  [default: as the settings say]")
@click.option("--offline", is_flag=True, help="Do not ask a running router.")
@click.option("--openstack", is_flag=True, help="Check a service of OpenStack in place of a router.")
@click.option(
    "--config-file", "files", metavar="FILE", multiple=True, help="The service's, with --openstack; may recur."
)
@click.option("--transport-url", metavar="URL", default="", help="In place of that of the files, with --openstack.")
@click.option("--timeout", type=positive, default=3.0, show_default=True, help="Seconds.")
@json_option
@connects
@click.pass_obj
def doctor_command(
    state: State,
    config: str | None,
    folder: str | None,
    offline: bool,
    openstack: bool,
    files: tuple[str, ...],
    transport_url: str,
    timeout: float,
) -> int:
    """Check versions, endpoints, keys, rights, nodes and their files, payloads, clock and limits; say what to do.

    Settings are read as `rpcmq router` reads them. A running router (--router, RPCMQ_ROUTER, else the one that
    listens where the settings say) is asked what was used since its start, if this process has a key with the
    right "admin" there. The exit code is 1 if anything fails; warnings do not change it.

    With --openstack the transport_url of --config-file (nova.conf, neutron.conf) is checked: the installation, each
    router, keys and rights, and a call, cast, fanout and notification over oslo.messaging to a server of the doctor's
    own. --exchange is the service's control_exchange (nova, neutron), --key-file an operator's key for the question
    which routers of the mesh are missing in the url. Run it in the environment, and as the user, of the service.
    """
    if openstack:
        if config or folder or offline or state.router:
            raise UsageError("--config, --keys, --offline and --router are of a router's check, and not of --openstack")
        if not files and not transport_url:
            raise UsageError("--openstack: give --config-file FILE (nova.conf, for one), or --transport-url URL")
        keys, exchange = state.key_file or "", state.exchange or ""
        rows = openstack_findings(files, transport_url, exchange, keys, timeout)
        findings = [Finding(*row) for row in rows]
    elif files or transport_url:
        raise UsageError("--config-file and --transport-url are of the check of a service: give --openstack")
    else:
        findings = list(_findings(state, config, folder, offline, timeout))
    failed = any(finding.level == FAIL for finding in findings)
    if state.json:
        print_json({"ok": not failed, "findings": [asdict(finding) for finding in findings]})
    else:
        made = table("", "", "about", "found", "to do")
        for finding in findings:
            cells = (finding.level, finding.about, finding.text, finding.todo)
            add_row(made, cells, "" if finding.level == OK else _STYLES[finding.level])
        print_folded(Output(), made)
    return int(failed)


def _findings(state: State, path: str | None, folder: str | None, offline: bool, timeout: float) -> Iterator[Finding]:
    yield from _versions()
    try:
        flags = {"security.keys": folder} if folder else {}
        config = load_router_config(path, os.environ, flags)
    except ConfigError as error:
        for line in str(error).splitlines():
            yield Finding(FAIL, "settings", line, "correct it: the router does not start like this")
        return
    yield from _binds(config)
    yield from _peers(config)
    yield from (Finding(*row) for row in node_findings(config))
    yield from _keys(config)
    yield from _payloads()
    yield from _clock()
    yield from _files(config)
    if not offline:
        yield from _running(_with_router(state, config), timeout)


def _versions() -> Iterator[Finding]:
    from rpcmq import __version__

    python = ".".join(map(str, sys.version_info[:3]))
    shown = ".".join(map(str, libzmq_version()))
    yield Finding(OK, "versions", f"rpcmq {__version__}, Python {python}, libzmq {shown}")
    try:
        check_libzmq()
    except ConfigError as error:
        oldest = ".".join(map(str, OLDEST_SAFE))
        yield Finding(FAIL, "libzmq", str(error), f"upgrade pyzmq to a wheel with libzmq {oldest} or later")


def _binds(config: RouterConfig) -> Iterator[Finding]:
    found = open_binds(config)
    for text in found:
        level = WARN if config.router.insecure else FAIL
        seen, _, todo = text.rpartition("; ")
        why = "router.insecure is set: " if config.router.insecure else "the router will not start: "
        yield Finding(level, "open endpoint", why + seen, todo)
    if not found:
        how = "with CURVE" if config.security.keys else "this host only, no keys needed"
        yield Finding(OK, "endpoints", f"{config.router.listen}: {how}")


def _peers(config: RouterConfig) -> Iterator[Finding]:
    for problem in wrong_peers(config):
        seen, _, todo = problem.rpartition("; ")
        yield Finding(FAIL, "mesh", seen, todo)


def _keys(config: RouterConfig) -> Iterator[Finding]:
    folder = config.security.keys
    if not folder:
        return
    root = Path(folder)
    try:
        read_key_file(root / ROUTER_KEY, client=False)
    except ConfigError as error:
        yield Finding(FAIL, "router key", str(error), f"see that {root / ROUTER_KEY} is there, whole and of mode 600")
    for directory in (root, root / AUTHORIZED):
        mode = _mode(directory)
        if mode & 0o022:
            text = f"{directory} has mode {mode:04o}: others can authorise keys"
            yield Finding(FAIL, "folder", text, f"chmod 700 {directory}")
        elif mode & 0o055:
            yield Finding(WARN, "folder", f"{directory} has mode {mode:04o}", f"chmod 700 {directory}")
    for secret in sorted(_secrets(root)):
        if _mode(secret) & 0o077 and secret.name != ROUTER_KEY:
            yield Finding(
                FAIL, "client key", f"{secret} can be read by others", f"chmod 600 {secret}, or delete it here"
            )
    yield from _mesh_secret(config, root / MESH_SECRET)
    yield from _authorised(root)


def _mesh_secret(config: RouterConfig, path: Path) -> Iterator[Finding]:
    try:
        if path.exists():
            read_mesh_secret(path)
            yield Finding(OK, "mesh secret", f"{path}: every router of the mesh must have the same")
        elif config.mesh.peer:
            text = f"{path} is missing: to the other routers, a process that comes from here is a new one"
            yield Finding(WARN, "mesh secret", text, "copy it from another router of the mesh, and restart this one")
    except ConfigError as error:
        yield Finding(FAIL, "mesh secret", str(error), f"see that {path} is whole and of mode 600")


def _mode(path: Path) -> int:
    """Return its permissions; 0 if it cannot be read, which is reported elsewhere."""
    try:
        return stat.S_IMODE(path.stat().st_mode)
    except OSError:
        return 0


def _secrets(root: Path) -> list[Path]:
    try:
        return list(root.glob("*.key"))
    except OSError:
        return []


def _authorised(root: Path) -> Iterator[Finding]:
    keys = AuthorizedKeys(str(root / AUTHORIZED))
    for problem in keys.read():
        yield Finding(FAIL, "key file", problem, "correct it: the router does not start like this")
    now = time()
    for known in sorted(keys.all.values(), key=lambda known: known.key.name):
        key, until = known.key, known.until
        about = f"key {key.name}"
        if not known.is_valid(now):
            text = f"has expired on {key.expires}"
            yield Finding(WARN, about, text, f"rpcmq keys revoke {key.name}, or set a later `expires` in its file")
        elif until is not None and until - now < _SOON_DAYS * _DAY:
            text = f"expires in {(until - now) / _DAY:.1f} days"
            yield Finding(WARN, about, text, "add a new key for its process now, and revoke this one later")
        if not key.owner:
            yield Finding(WARN, about, "has no owner", 'write `owner = "..."` into its file: whom to ask about it')
        if not key.rights:
            yield Finding(
                WARN, about, "has no rights: it can connect and do nothing", "give it [[rights]], or revoke it"
            )
        if any(right.everything for right in key.rights):
            yield Finding(
                WARN, about, "may do everything", "give it the rights that it needs only; see docs/security.md"
            )
    yield Finding(OK, "keys", f"{len(keys)} authorised in {root / AUTHORIZED}")


def _payloads() -> Iterator[Finding]:
    try:
        config = load_client_config(os.environ)
    except ConfigError as error:
        for line in str(error).splitlines():
            yield Finding(FAIL, "client settings", line, "correct it: clients do not start like this")
        return
    if config.accept_dill:
        text = "RPCMQ_ACCEPT_DILL is on here: whoever may send to a process like this runs code in it"
        yield Finding(WARN, "payloads", text, "unset it, unless every key that may call here is trusted like root")
    if config.key_file:
        try:
            read_key_file(config.key_file, client=True)
        except ConfigError as error:
            yield Finding(FAIL, "client key", str(error), "correct RPCMQ_KEY_FILE or that file")


def _clock() -> Iterator[Finding]:
    if time() < datetime(2025, 1, 1, tzinfo=UTC).timestamp():
        yield Finding(FAIL, "clock", f"it is {datetime.now(UTC):%Y-%m-%d} here", "set the clock: keys expire by it")
    try:
        adjtimex = ctypes.CDLL(None).adjtimex
    except (OSError, AttributeError):
        return
    # struct timex, all zero: only asks. It is at most 208 bytes.
    if adjtimex(ctypes.create_string_buffer(512)) == _TIME_ERROR:
        yield Finding(
            WARN, "clock", "not synchronised", "run NTP (chrony, systemd-timesyncd): keys expire by the clock"
        )
    else:
        yield Finding(OK, "clock", "synchronised")


def _files(config: RouterConfig) -> Iterator[Finding]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = config.link.max_links + config.link.max_handshakes + _SPARE_FILES
    if hard != resource.RLIM_INFINITY and hard < wanted:
        text = f"link.max_links and link.max_handshakes need {wanted} open files; the limit here is {hard}"
        yield Finding(WARN, "open files", text, "raise LimitNOFILE= (or ulimit -n), or lower link.max_links")
    else:
        yield Finding(OK, "open files", f"limit {soft}, at most {hard}")


# --- a running router ---------------------------------------------------------------------------


def _with_router(state: State, config: RouterConfig) -> State:
    """``state`` with the router to ask; an empty one where nobody has named it, and nobody can know its port."""
    if state.router is not None or os.environ.get("RPCMQ_ROUTER"):
        return state
    url = config.router.listen
    for everywhere, here in _HERE.items():
        if url.startswith(everywhere):
            url = here + url.removeprefix(everywhere)
    return replace(state, router=url if is_connect_url(url) else "")


def _running(state: State, timeout: float) -> Iterator[Finding]:
    if state.router == "":
        text = "not asked: router.listen leaves its port to the system"
        yield Finding(WARN, "running router", text, "give --router, or say --offline")
        return
    try:
        with make_client(state, timeout) as client:
            router = client.query("summary", timeout)
            keys = client.query("keys", timeout)["keys"]
            processes = client.query("processes", timeout)["processes"]
            queues = list(queue_problems(client, router["router"], timeout))
            nodes = list(running_node_findings(client, timeout))
    except ConfigError:
        return  # told above
    except RpcError as error:
        todo = "start it, or give --router, and --key-file with a key that has the right admin; or say --offline"
        yield Finding(WARN, "running router", f"not asked: {error}", todo)
        return
    up = float(router["uptime_seconds"])
    yield Finding(OK, "running router", f"{router['router']}, up {up:.0f} s, {counted(router['links'], 'link')}")
    for warning in router["warnings"]:
        seen, _, todo = str(warning).rpartition("; ")
        yield Finding(WARN, "open endpoint", f"running like this: {seen}", todo)
    skew = router["boot"] / 1000 + up - time()
    if abs(skew) > _CLOCK:
        text = f"the router's clock was {abs(skew):.0f} s {'ahead of' if skew > 0 else 'behind'} ours at its start"
        yield Finding(WARN, "clock", text, "synchronise both by NTP: keys expire by the clock")
    refused = {what: count for what, count in router["refused"].items() if "key" in what or "denied" in what}
    if refused:
        text = ", ".join(f"{count} {what}" for what, count in refused.items())
        yield Finding(WARN, "refused", text, "the router's log and `rpcmq ls --view keys` say whom")
    for problem in queues:
        yield Finding(WARN, *problem)
    for row in nodes:
        yield Finding(*row)
    for key in keys:
        yield from _used(key, up)
    yield from _dill(processes)


def _used(row: dict[str, Any], up: float) -> Iterator[Finding]:
    if row["name"] == QUEUE_SERVER_KEY:
        return  # the router's own, in no file
    about = f"key {row['name']}"
    since = f"since the router's start {up / 3600:.1f} h ago"
    # Only one end of a link between routers proves its right at the other: which one it was says nothing.
    rights = [right for right in row["rights"] if "mesh" not in right["verbs"]]
    if not row["connects"]:
        if len(rights) < len(row["rights"]):
            return
        yield Finding(WARN, about, f"was never used {since}", f"if nobody needs it: rpcmq keys revoke {row['name']}")
        return
    for right in rights:
        if not right["used"]:
            exchanges = "" if right["exchanges"] == [""] else f" in {','.join(right['exchanges'])}"
            text = f"{','.join(right['verbs'])} on {','.join(right['topics'])}{exchanges} was never used {since}"
            yield Finding(WARN, about, text, "take the right out of its file if it is not needed")


def _dill(processes: list[dict[str, Any]]) -> Iterator[Finding]:
    by_topic: dict[str, list[str]] = {}
    for row in processes:
        if "dill" in row["accepts"] and row["queue_type"] != MESH_TYPE:  # a router runs nothing of what it passes on
            for topic in (*row["consumers"], *row.get("patterns", [])):
                by_topic.setdefault(topic, []).append(row["identity"])
    for topic, identities in sorted(by_topic.items()):
        text = f"{len(identities)} consumers accept dill, {identities[0]} for one: who may send there runs code in them"
        todo = "switch accept_dill off, or see that only trusted keys may call or cast there"
        yield Finding(WARN, f"topic {topic}", text, todo)
    if not by_topic:
        yield Finding(OK, "payloads", "no consumer accepts dill")
