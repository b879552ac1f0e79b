"""``rpcmq init`` and ``rpcmq keys``: the keys of a router and of those who may connect to it."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from rpcmq.cli.exit_codes import ExitCode
from rpcmq.cli.moments import parse_moment
from rpcmq.cli.options import State, json_option
from rpcmq.cli.output import Output, add_row, print_folded, print_json, table
from rpcmq.cli.text import plain
from rpcmq.core.common.right_tables import parse_right
from rpcmq.core.router.rights import ALL_VERBS, EVERYTHING, KNOWN_VERBS, Key, Right
from rpcmq.errors import ConfigError, UsageError
from rpcmq.payload.format import accept_mask_with_json, accept_names
from rpcmq.server.authorized_keys import (
    AUTHORIZED,
    ROUTER_KEY,
    AuthorizedKeys,
    mixed_rights,
    read_authorised,
    summary,
    to_toml,
)
from rpcmq.server.mesh_secret import MESH_SECRET, make_mesh_secret
from rpcmq.toml import quoted
from rpcmq.transport.curve import check_libzmq, is_key, new_pair
from rpcmq.transport.key_files import KeyFile, check_folder, is_name, read_key_file, write_private

__all__ = ["init_command", "keys_command"]

_FOLDER = "rpcmq.d"
_CONFIG = "router.toml"
_REVOKED = "revoked"

_folder_option = click.option(
    "--keys",
    "folder",
    metavar="DIR",
    default=_FOLDER,
    envvar="RPCMQ_SECURITY_KEYS",
    show_default=True,
    show_envvar=True,
    help="The router's folder of keys, as `rpcmq init` made it.",
)


def _make_folder(path: Path) -> None:
    """Make a private folder; an existing one is left as it is, but nobody else may be able to write to it."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.mkdir(mode=0o700)
    except FileExistsError:
        check_folder(path)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be made: {error.strerror}") from None


def _write_authorised(folder: Path, key: Key, until: datetime | None) -> Path:
    path = folder / AUTHORIZED / f"{key.name}.toml"
    write_private(path, f"# Who has this key may connect. The router notices changes by itself.\n{to_toml(key, until)}")
    return path


# --- init ---------------------------------------------------------------------------------------


@click.command("init")
@click.argument("folder", metavar="[DIR]", default=_FOLDER)
@click.option(
    "--listen", metavar="URL", default="tcp://127.0.0.1:7700", show_default=True, help="Where the router is to listen."
)
@click.option("--client", metavar="NAME", default="client", show_default=True, help="Name of the first client's key.")
@click.option("--owner", metavar="TEXT", default="", help="Whom to ask about that key.")
@json_option
@click.pass_obj
def init_command(state: State, folder: str, listen: str, client: str, owner: str) -> None:
    """Make a router's keys, a client's key and a ready configuration in DIR (default: rpcmq.d).

    The client's key may do everything. Give each host or program a key of its own with `rpcmq keys add`.
    """
    check_libzmq()
    if not is_name(client):
        raise UsageError(f"--client {client!r}: expected up to 64 letters, digits, '.', '_' and '-'")
    _check_listen(listen)
    root = Path(folder)
    for path in (root / ROUTER_KEY, root / _CONFIG, root / f"{client}.key"):
        if path.exists():
            raise UsageError(f"{path} exists already; nothing was changed")
    _make_folder(root)
    _make_folder(root / AUTHORIZED)
    public, secret = new_pair()
    write_private(root / ROUTER_KEY, KeyFile(public, secret).text("The router's keys. Keep the secret one secret."))
    if not (root / MESH_SECRET).exists():  # of another router of the mesh, copied
        make_mesh_secret(root / MESH_SECRET)
    key_file = _make_client(root, public, {}, client, (EVERYTHING,), owner, None, ())
    config = root / _CONFIG
    write_private(
        config,
        f"# rpcmq router --config {config}\n[router]\nlisten = {quoted(listen)}\n\n"
        f"[security]\nkeys = {quoted(str(root.resolve()))}\n",
    )
    if state.json:
        print_json({"config": str(config), "key_file": str(key_file), "router": public})
        return
    print(f"router:   rpcmq router --config {config}")
    print(f"clients:  export RPCMQ_KEY_FILE={key_file.resolve()}")
    if listen != "tcp://127.0.0.1:7700":
        print(f"          export RPCMQ_ROUTER={_for_clients(listen)}      # as the clients reach it")
    print(f"more:     rpcmq keys add NAME --keys {root} --allow 'serve:compute.#'")
    print(f"mesh:     rpcmq keys add ROUTER --allow 'mesh:*/#' --public {shlex.quote(public)}   # at other routers")
    print("check:    rpcmq doctor --config", config)


def _for_clients(listen: str) -> str:
    """The URL for clients of a router that listens on ``listen``: all interfaces are no address to connect to."""
    host, _, port = listen.rpartition(":")
    return f"tcp://HOST:{port}" if host in ("tcp://0.0.0.0", "tcp://*", "tcp://[::]") else listen


def _check_listen(listen: str) -> None:
    from rpcmq.config import load_router_config

    load_router_config(None, {}, {"router.listen": listen})


def _peers(folder: Path) -> dict[str, str]:
    """The public keys of the routers that the configuration in ``folder`` links to, by their urls."""
    config = folder / _CONFIG
    if not config.exists():
        return {}
    from rpcmq.config import load_router_config

    return {peer.url: peer.server_key for peer in load_router_config(str(config)).mesh.peer if peer.server_key}


def _make_client(
    folder: Path,
    router: str,
    peers: Mapping[str, str],
    name: str,
    rights: tuple[Right, ...],
    owner: str,
    until: datetime | None,
    identities: tuple[str, ...],
    out: Path | None = None,
    formats: int | None = None,
) -> Path:
    public, secret = new_pair()
    path = out or folder / f"{name}.key"
    if (folder / AUTHORIZED / f"{name}.toml").exists():
        raise UsageError(f"key {name!r} exists already; revoke it first, or choose another name")
    comment = "Whoever has this file may connect as this key: RPCMQ_KEY_FILE or key_file=. Keep it secret."
    write_private(path, KeyFile(public, secret, name, router, peers).text(comment))
    expires = until.isoformat() if until is not None else ""
    _write_authorised(folder, Key(name, public, rights, identities, owner, expires, formats=formats), until)
    return path


# --- keys ---------------------------------------------------------------------------------------


@click.group("keys")
def keys_command() -> None:
    """Add, list and revoke the keys that may connect to a router."""


def _right(text: str) -> Right:
    try:
        return parse_right(text, KNOWN_VERBS, ALL_VERBS)
    except ValueError as error:
        raise UsageError(f"--allow {text!r}: {error}") from None


def _formats(names: tuple[str, ...]) -> int | None:
    """Return the mask of the named formats; None (all) if none is named."""
    if not names:
        return None
    try:
        return accept_mask_with_json(names)
    except UsageError as error:
        raise UsageError(f"--format {', '.join(names)}: {error}") from None


@keys_command.command("add")
@click.argument("name")
@_folder_option
@click.option("--allow", metavar="VERBS:TOPICS", multiple=True, help="A right; may be given again.  [default: all]")
@click.option("--identity", metavar="PATTERN", multiple=True, help="An identity that its processes may have.")
@click.option(
    "--format",
    "formats",
    metavar="FORMAT",
    multiple=True,
    help="What its payloads may be: json, pickle, dill; may be given again.  [default: all]",
)
@click.option("--owner", metavar="TEXT", default="", help="Whom to ask about it.")
@click.option("--expires", metavar="WHEN", help="Days as 90d, or a date as 2027-01-31.")
@click.option("--out", metavar="FILE", help="Where its secret key goes.  [default: NAME.key in the folder of keys]")
@click.option("--public", metavar="KEY", help="Authorise this public key, made elsewhere, rather than make a pair.")
@json_option
@click.pass_obj
def add_command(
    state: State,
    name: str,
    folder: str,
    allow: tuple[str, ...],
    identity: tuple[str, ...],
    formats: tuple[str, ...],
    owner: str,
    expires: str | None,
    out: str | None,
    public: str | None,
) -> None:
    """Make the key NAME and authorise it.

    Its file has the public keys of the peers in router.toml of the folder, too, so that whoever has it can begin at any
    of these routers.

    \b
    rpcmq keys add node-7 --allow serve:compute,compute.node-7
    rpcmq keys add api --allow 'call,cast:compute.#' --expires 90d
    rpcmq keys add web --allow call:image --format json
    """
    if not is_name(name):
        raise UsageError(f"{name!r} is no name of a key: expected up to 64 letters, digits, '.', '_' and '-'")
    root = Path(folder)
    router = read_key_file(root / ROUTER_KEY, client=False)
    rights = tuple(map(_right, allow)) or (EVERYTHING,)
    if problem := mixed_rights(rights):
        raise UsageError(f"--allow: {problem}")
    until = parse_moment(expires)
    mask = _formats(formats)
    path: Path | None = None
    peers: dict[str, str] = {}
    if public is not None:
        if not is_key(public):
            raise UsageError(f"--public {public!r} is no key; a key has 40 characters of Z85")
        moment = until.isoformat() if until is not None else ""
        _write_authorised(root, Key(name, public, rights, identity, owner, moment, formats=mask), until)
    else:
        peers = _peers(root)
        made_at = Path(out) if out else None
        path = _make_client(root, router.public, peers, name, rights, owner, until, identity, made_at, mask)
    if state.json:
        told = {"name": name, "key_file": str(path) if path else None, "router": router.public}
        print_json(told | ({"peers": peers} if peers else {}))
    elif path is not None:
        if peers:
            print(f"{path} has the public keys of {', '.join(peers)}, too; copy {name}.toml to their authorized/")
        print(f"{path}: bring it to its owner over a safe way, and delete it here; then RPCMQ_KEY_FILE=...")
    else:
        print(f"authorised {name}; the router's public key is {router.public}")


@keys_command.command("make")
@click.argument("name")
@click.option("--router-key", metavar="KEY", required=True, help="The router's public key.")
@click.option("--out", metavar="FILE", help="Where the key file goes.  [default: NAME.key]")
@json_option
@click.pass_obj
def make_command(state: State, name: str, router_key: str, out: str | None) -> None:
    """Make a key file where it is used, so that its secret never leaves this host.

    Prints the public key, for `rpcmq keys add NAME --public KEY` at the router.
    """
    check_libzmq()
    if not is_name(name):
        raise UsageError(f"{name!r} is no name of a key: expected up to 64 letters, digits, '.', '_' and '-'")
    if not is_key(router_key):
        raise UsageError(f"--router-key {router_key!r} is no key; a key has 40 characters of Z85")
    public, secret = new_pair()
    path = Path(out or f"{name}.key")
    write_private(path, KeyFile(public, secret, name, router_key).text("RPCMQ_KEY_FILE or key_file=. Keep it secret."))
    if state.json:
        print_json({"name": name, "key_file": str(path), "public": public})
    else:
        print(public)


@keys_command.command("list")
@_folder_option
@json_option
@click.pass_obj
def list_command(state: State, folder: str) -> int | None:
    """List the keys that are authorised. The exit code is 1 if a file of a key cannot be read."""
    authorised = Path(folder) / AUTHORIZED
    if not authorised.is_dir():
        raise UsageError(f"{authorised}: no folder of keys here; --keys DIR names another, `rpcmq init` makes one")
    rows, problems = _listed(folder)
    if state.json:
        print_json({"keys": rows, "problems": problems})
    else:
        output = Output()
        made = table("Keys", "name", "owner", "expires", "may", "formats", "identities", "public")
        for row in rows:
            late = "expired " if row["expired"] else ""
            identities = ", ".join(row["identities"])
            formats = "all" if row["formats"] is None else ", ".join(row["formats"])
            cells = (row["name"], row["owner"], late + row["expires"], row["may"], formats, identities, row["public"])
            add_row(made, cells, "red" if late else "")
        print_folded(output, made)
        for problem in problems:
            output.print(plain(problem), style="red", markup=False)
    return ExitCode.FAILED if problems else None


def _listed(folder: str) -> tuple[list[dict[str, Any]], list[str]]:
    authorized_keys = AuthorizedKeys(os.path.join(folder, AUTHORIZED))
    problems = authorized_keys.read()
    now = datetime.now(UTC).timestamp()
    found: Iterable[Any] = authorized_keys.all.values()
    rows = [
        {
            "name": known.key.name,
            "public": known.key.public,
            "owner": known.key.owner,
            "expires": known.key.expires,
            "expired": not known.is_valid(now),
            "identities": list(known.key.identities),
            "formats": list(accept_names(known.key.formats)) if known.key.formats is not None else None,
            "may": summary(known.key),
        }
        for known in found
    ]
    return sorted(rows, key=lambda row: str(row["name"])), problems


@keys_command.command("revoke")
@click.argument("name")
@_folder_option
def revoke_command(name: str, folder: str) -> None:
    """Revoke the key NAME: a running router ends its links within a second or so.

    Its file is kept in revoked/, to be looked at later.
    """
    root = Path(folder)
    path = root / AUTHORIZED / f"{name}.toml"
    if not is_name(name) or not path.exists():
        raise UsageError(
            f"no key {name!r} in {root / AUTHORIZED}; `rpcmq keys list --keys {folder}` shows those there are"
        )
    try:
        public = read_authorised(str(path)).key.public
    except ConfigError:
        public = "(its file was wrong)"
    _make_folder(root / _REVOKED)
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    path.rename(root / _REVOKED / f"{name}.{stamp}.toml")
    print(f"revoked {name} {public}")
