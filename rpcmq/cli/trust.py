"""``rpcmq trust``: keys that payloads are signed with, and trust policies."""

from __future__ import annotations

import click

from rpcmq.cli.options import State, json_option
from rpcmq.cli.output import Output, add_row, print_folded, print_json, table
from rpcmq.transport.mac_files import new_mac_key, read_mac_keys, use_mac_key

__all__ = ["trust_command"]


@click.group("trust")
def trust_command() -> None:
    """Manage payload signing keys, and check trust policies."""


@trust_command.command("key")
@click.argument("file")
@click.argument("name")
def key_command(file: str, name: str) -> None:
    """Add a new key NAME to FILE, which is made if it is not there.

    Bring it to all processes before one signs with it: `rpcmq trust use`.
    """
    if new_mac_key(file, name):
        print(f"{file}: RPCMQ_MAC_FILE; bring it over a safe way to all who are to sign or to check payloads")
    else:
        print(f"{file}: can be read with now; when all have it: rpcmq trust use {file} {name}")


@trust_command.command("use")
@click.argument("file")
@click.argument("name")
def use_command(file: str, name: str) -> None:
    """From the next start of a process with FILE on, the key NAME signs."""
    use_mac_key(file, name)
    others = [each for each in read_mac_keys(file).secrets if each != name]
    print(f"{file}: {name} signs; still read: {', '.join(others) or 'no others'}")


@trust_command.command("check")
@click.argument("file")
@json_option
@click.pass_obj
def check_command(state: State, file: str) -> None:
    """Read the trust policy FILE as a process would, and show what it says."""
    from rpcmq.payload import Codec
    from rpcmq.payload.format import accept_names
    from rpcmq.payload.trust import read_policy

    policy = read_policy(file)
    policy.check(Codec())
    rows = [
        {
            "topics": list(rule.topics),
            "exchanges": list(rule.exchanges),
            "formats": list(accept_names(rule.formats)) if rule.formats is not None else None,
            "globals": list(rule.allow),
            "only": rule.only,
            "require": rule.require,
            "keys": {name: list(accept_names(mask)) for name, mask in rule.keys.items()} if rule.keys else None,
        }
        for rule in policy.rules
    ]
    if state.json:
        print_json({"window": policy.window, "skew": policy.skew, "remember": policy.remember, "topics": rows})
        return
    made = table(file, "topics", "exchanges", "formats", "globals", "signed")
    for rule in policy.rules:
        formats = ", ".join(accept_names(rule.formats)) if rule.formats is not None else "as the process"
        names = f"{len(rule.allow)}" + ("" if rule.only else " and the process's")
        signed = "yes" if rule.require else "by key" if rule.keys is not None else "no need"
        exchanges = ", ".join(exchange or "(without a name)" for exchange in rule.exchanges)
        add_row(made, (", ".join(rule.topics), exchanges, formats, names, signed), "")
    print_folded(Output(), made)
