"""Keys generated for a drill whose router uses CURVE; existing keys are never used."""

from __future__ import annotations

from pathlib import Path

from rpcmq.core.router.rights import ALL_VERBS, Key, Right
from rpcmq.server.authorized_keys import AUTHORIZED, ROUTER_KEY, to_toml
from rpcmq.transport.curve import new_pair
from rpcmq.transport.key_files import KeyFile, write_private

__all__ = ["make_keys"]

_NAME = "drill"
#: Each message is looked at, as with most keys: one that may do anything is not. A drill finds its own bounds.
_RIGHTS = (Right(frozenset(ALL_VERBS), ("#",)),)
_MOST_LINKS = 1_000_000


def make_keys(folder: Path) -> str:
    """Make a router's folder of keys in the empty ``folder``, and one key that all processes of a drill have.

    Returns:
        That key's file.
    """
    (folder / AUTHORIZED).mkdir(mode=0o700)
    router, secret = new_pair()
    write_private(folder / ROUTER_KEY, KeyFile(router, secret).text())
    public, secret = new_pair()
    key = Key(_NAME, public, _RIGHTS, ("*",), max_links=_MOST_LINKS, messages_per_second=0.0)
    write_private(folder / AUTHORIZED / f"{_NAME}.toml", to_toml(key, None))
    write_private(folder / f"{_NAME}.key", KeyFile(public, secret, _NAME, router).text())
    return str(folder / f"{_NAME}.key")
