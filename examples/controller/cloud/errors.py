"""The errors of this cloud, which its callers catch."""

import rpcmq


@rpcmq.allow  # the process that calls raises it, and what derives from it, as itself
class CloudError(Exception):
    """Root of this cloud's exceptions."""


class InstanceNotFound(CloudError):
    """No instance has this name."""


class NoValidHost(CloudError):
    """No node has room for the instance."""
