"""The library that applications import: clients and services."""

from rpcmq.client.client import Client, Target
from rpcmq.client.request import Request, current_request
from rpcmq.client.retry import Retry
from rpcmq.client.service import Service
from rpcmq.client.subscription import Subscription

__all__ = ["Client", "Request", "Retry", "Service", "Subscription", "Target", "current_request"]
