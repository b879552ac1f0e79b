"""Public interface for adapters: programs that offer another messaging interface on top of rpcmq.

Beside ``rpcmq`` and ``rpcmq.errors``, an adapter needs these modules, and imports nothing else:

* :mod:`rpcmq.adapters.calling`: send messages that have keys of their own beside method and args.
* :mod:`rpcmq.adapters.serving`: consume messages as they come, and answer them now or later, from any thread.
* :mod:`rpcmq.adapters.untrusted_values`: print and walk values and exceptions that a peer made, within bounds.
* :mod:`rpcmq.adapters.rights`: the rights of those who speak through a front end.
* :mod:`rpcmq.adapters.settings`: settings from TOML and options, and files that nobody else may change.
* :mod:`rpcmq.adapters.rate_limits`: messages a second, and lines in the log.

See ``docs/adapters.md``.
"""

from __future__ import annotations
