"""Send what the verbs of :class:`~rpcmq.Client` refuse from an application."""

from __future__ import annotations

from rpcmq.client.arguments import LegacyMessage

__all__ = ["LegacyMessage"]
