"""A gateway for browsers and other languages: JSON over WebSocket. It uses what rpcmq offers to adapters only."""

from __future__ import annotations

from rpcmq.gateway.server import Gateway
from rpcmq.gateway.settings import GatewaySettings, load_settings
from rpcmq.gateway.tokens import Token, TokenFile

__all__ = ["Gateway", "GatewaySettings", "Token", "TokenFile", "load_settings"]
