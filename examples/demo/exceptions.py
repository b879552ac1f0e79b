"""The cloud's own exceptions. Raised in one process, they arrive in another as themselves."""

from __future__ import annotations

from typing import Any

import rpcmq


class CloudError(Exception):
    """Root of the cloud's exceptions: a text with the fields in it, and an HTTP-like code."""

    template = "something went wrong"
    code = 500

    def __init__(self, text: str | None = None, **fields: Any) -> None:
        super().__init__(text or self.template.format(**fields))
        self.fields = fields


class InstanceNotFound(CloudError):
    template = "instance {instance_id} could not be found"
    code = 404


class NoValidHost(CloudError):
    template = "no valid host: none of {hosts} has {memory_mb} MiB of memory free"


class NoMoreFixedIps(CloudError):
    template = "network {network} has no more fixed ips"


#: Only what is listed is rebuilt; anything else would arrive as rpcmq's RemoteError.
REGISTRY = rpcmq.ExceptionRegistry([InstanceNotFound, NoValidHost, NoMoreFixedIps])
