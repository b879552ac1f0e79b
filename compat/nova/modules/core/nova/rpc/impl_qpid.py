"""The driver that configurations of ``qpid`` name: it is rpcmq."""

from __future__ import annotations

from typing import Any

from nova.rpc.driver import *  # noqa: F403

#: Options of its own: none, since those of the broker mean nothing here.
qpid_opts: list[Any] = []

cast_to_server, fanout_cast_to_server = of_module(__name__)  # noqa: F405
