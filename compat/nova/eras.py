"""The releases of Nova that the shim distinguishes, and how each is recognised.

An era is given by the user, or read off the tree that is overlaid, or, where there is no tree, seen
from the modules that a program imports.
"""

from __future__ import annotations

from collections.abc import Container
from pathlib import Path

__all__ = ["ERAS", "of_imports", "of_tree"]

#: Oldest first: ``ERAS.index(a) < ERAS.index(b)`` says that a is older.
ERAS = ("cactus", "diablo", "essex", "folsom", "grizzly", "havana")

#: Newest first: (era, what only it and later ones have): a file, or ``file: text`` in that file.
_IN_TREES = (
    (
        "havana",
        (
            "openstack/common/rpc/serializer.py",
            "rpcclient.py",
            "baserpc.py",
        ),
    ),
    (
        "grizzly",
        (
            "openstack/common/rpc/__init__.py: oslo.config",
            "config.py: oslo.config",
            "service.py: oslo.config",
            "manager.py: oslo.config",
        ),
    ),
    (
        "folsom",
        (
            "openstack/common/rpc",
            "rpc/dispatcher.py",
            "rpc/proxy.py",
            "openstack/common/timeutils.py",
            "manager.py: create_rpc_dispatcher",
            "service.py: create_rpc_dispatcher",
        ),
    ),
    (
        "essex",
        (
            "rpc/impl_fake.py",
            "rpc/impl_qpid.py",
            "openstack/common/cfg.py",
            "flags.py: openstack.common",
            "context.py: overwrite",
        ),
    ),
    (
        "diablo",
        (
            "rpc/__init__.py",
            "rpc.py: multicall",
            "service.py: ConsumerSet",
            "service.py: consume_in_thread",
            "context.py: user_id",
        ),
    ),
    (
        "cactus",
        (
            "rpc.py",
            "service.py: AdapterConsumer",
            "context.py",
        ),
    ),
)

#: The same for a program without a tree: the modules that it imports. Without any of them it is an Essex.
_IN_IMPORTS = (
    ("havana", ("nova.openstack.common.rpc.serializer", "nova.rpcclient", "nova.baserpc")),
    ("grizzly", ("oslo.config.cfg",)),
    ("folsom", ("nova.openstack.common.rpc", "nova.rpc.dispatcher", "nova.rpc.proxy")),
)


def of_tree(tree: Path) -> str | None:
    """The era of the ``nova`` package below ``tree``; None if nothing in it tells."""
    package = tree / "nova"
    for era, signs in _IN_TREES:
        if any(_has(package, sign) for sign in signs):
            return era
    return None


def of_imports(imported: Container[str]) -> str:
    """The era of a program that has ``imported`` these modules; "essex" as long as nothing tells of a later one."""
    for era, names in _IN_IMPORTS:
        if any(name in imported for name in names):
            return era
    return "essex"


def _has(package: Path, sign: str) -> bool:
    name, _, text = sign.partition(": ")
    path = package / name
    if not text:
        return path.exists()
    try:
        return text in path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
