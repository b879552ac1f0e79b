"""Public interface for adapters: programs that offer another messaging interface on top of rpcmq.

Beside ``rpcmq`` and ``rpcmq.errors``, an adapter needs three modules, and imports nothing else:

* :mod:`rpcmq.adapters.calling`: send messages that have keys of their own beside method and args.
* :mod:`rpcmq.adapters.serving`: consume messages as they come, and answer them now or later, from any thread.
* :mod:`rpcmq.adapters.untrusted_values`: print and walk values and exceptions that a peer made, within bounds.

See ``docs/adapters.md``.
"""

from __future__ import annotations
