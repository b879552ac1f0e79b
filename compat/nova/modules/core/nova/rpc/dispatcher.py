"""Select the object of a service that runs a request: the first with the method, in a compatible version.

Where eras differ: Havana also matches the namespace and takes a serializer. Where a version fits but no
object has the method, ``nova.rpc`` raises ``UnsupportedRpcVersion`` and ``nova.openstack.common.rpc``
(2012.2 and later) ``AttributeError``.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import Any

from nova.rpc import common as rpc_common
from nova.rpc.serializer import NoOpSerializer, Serializer


class RpcDispatcher:
    """Hands requests to ``callbacks``.

    Args:
        callbacks: objects with the methods; each may say ``RPC_API_VERSION`` (else ``'1.0'``) and
            ``RPC_API_NAMESPACE`` (else None).
        serializer: applied to arguments and result.
    """

    def __init__(self, callbacks: Sequence[Any], serializer: Serializer | None = None) -> None:
        self.callbacks = callbacks
        self.serializer = NoOpSerializer() if serializer is None else serializer

    def dispatch(self, ctxt: Any, version: str | None, method: str, *namespace: Any, **kwargs: Any) -> Any:
        """Run ``method(ctxt, **kwargs)`` on the first compatible object and return its result.

        Args:
            ctxt: passed on as the first argument.
            version: what the caller needs; none means ``'1.0'``.
            method: its name.
            namespace: at most one, as the fourth argument (Havana).
            kwargs: the method's arguments.

        Raises:
            UnsupportedRpcVersion: no object serves this version.
            AttributeError: some do, but none has the method (from 2012.2 on).
        """
        if len(namespace) > 1:
            raise TypeError(f"dispatch() takes 4 positional arguments, not {3 + len(namespace)}")
        version = version or "1.0"
        served = False
        for callback in self._in_namespace(*namespace):
            fits = self._is_compatible(getattr(callback, "RPC_API_VERSION", "1.0"), version)
            served = served or fits
            if fits and hasattr(callback, method):
                args = {key: self.serializer.deserialize_entity(ctxt, value) for key, value in kwargs.items()}
                return self.serializer.serialize_entity(ctxt, getattr(callback, method)(ctxt, **args))
        if served and (rpc_common.since("grizzly") or "nova.openstack.common.rpc" in sys.modules):
            raise AttributeError(f"No such RPC function '{method}'")
        raise rpc_common.UnsupportedRpcVersion(version=version)

    def _in_namespace(self, namespace: Any = None) -> Iterator[Any]:
        """The objects of a namespace; before Havana there was only one, whatever objects say of theirs."""
        any_of_them = namespace is None and not rpc_common.since("havana")
        for callback in self.callbacks:
            if any_of_them or getattr(callback, "RPC_API_NAMESPACE", None) == namespace:
                yield callback

    @staticmethod
    def _is_compatible(mversion: str, version: str) -> bool:
        return rpc_common.version_is_compatible(mversion, version)
