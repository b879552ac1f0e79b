"""The engines that fit where a client lives."""

from __future__ import annotations

from rpcmq.client.outside_codec import outside_codec
from rpcmq.client.process import Process
from rpcmq.client.thread_process import ThreadProcess
from rpcmq.config import ClientConfig
from rpcmq.payload import Codec
from rpcmq.transport.shell import ClientShell
from rpcmq.transport.thread_shell import ThreadShell

__all__ = ["process_in"]


def process_in(shell: ClientShell, config: ClientConfig, codec: Codec) -> Process:
    """The engines of a process in ``shell``; any thread may start calls and casts of those in a plain thread."""
    if isinstance(shell, ThreadShell):
        return ThreadProcess(config, outside_codec(codec), shell)
    return Process(config, codec, shell)
