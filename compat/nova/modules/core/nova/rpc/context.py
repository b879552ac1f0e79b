"""The context of a message from Folsom on, and the context of the running green thread.

Its public place is ``nova.rpc.common``.
"""

from __future__ import annotations

import copy
import functools
import importlib
import sys
from collections.abc import Mapping
from typing import Any, Self

from nova.rpc.eras import since


class CommonRpcContext:
    """Any keywords, each of them an attribute."""

    values: dict[str, Any]

    def __init__(self, **kwargs: Any) -> None:
        self.values = kwargs

    def __getattr__(self, key: str) -> Any:
        # copy and pickle ask for special methods before there are values.
        if key == "values" or (key.startswith("__") and key.endswith("__")):
            raise AttributeError(key)
        try:
            return self.values[key]
        except KeyError:
            raise AttributeError(key) from None

    def to_dict(self) -> dict[str, Any]:
        """A deep copy of the values."""
        return copy.deepcopy(self.values)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """The context with these values."""
        return cls(**values)

    def deepcopy(self) -> Self:
        """One that shares nothing with this one."""
        return self.from_dict(self.to_dict())

    def update_store(self) -> None:
        """Make this the context of the running green thread."""
        for store in _stores():
            store.context = self

    def elevated(self, read_deleted: Any = None, overwrite: bool = False) -> Self:
        """A copy with the rights of an administrator."""
        context = self.deepcopy()
        context.values["is_admin"] = True
        roles = context.values.setdefault("roles", [])
        if "admin" not in roles:
            roles.append("admin")
        if read_deleted is not None:
            context.values["read_deleted"] = read_deleted
        return context


def clear_store() -> None:
    """Forget the context of the running green thread; done before each message."""
    for store in _stores():
        try:
            del store.context
        except AttributeError:
            pass  # it has none


def _stores() -> list[Any]:
    """The thread-local ``local.store`` of each name that it goes by in this program."""
    return _stores_among(len(sys.modules))


@functools.lru_cache(maxsize=1)
def _stores_among(modules: int) -> list[Any]:
    # Looked for anew when more modules are loaded.
    names = ("nova.openstack.common.local", "nova.local")
    loaded = [module for name in names if (module := sys.modules.get(name))]
    if not loaded:
        try:
            loaded = [importlib.import_module(names[0] if since("folsom") else names[1])]
        except ImportError:
            return []
    stores = {id(store): store for module in loaded if (store := getattr(module, "store", None)) is not None}
    return list(stores.values())
