"""A driver of oslo.messaging: the RPC and notifications of OpenStack over rpcmq.

It stands on the public interface of rpcmq for adapters, over clients in plain threads, and imports neither gevent nor
eventlet; in a process that one of them has patched it works as well. :mod:`rpcmq_oslo.driver` is what oslo.messaging
loads.
"""

from __future__ import annotations
