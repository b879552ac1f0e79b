"""The driver that configurations of ``carrot`` name: it is rpcmq."""

from __future__ import annotations

from nova.rpc.driver import *  # noqa: F403

cast_to_server, fanout_cast_to_server = of_module(__name__)  # noqa: F405
