"""The exceptions of this cloud."""

from nova import exception


class InstanceNotFound(exception.NotFound):
    message = _("Instance %(instance_id)s could not be found.")


class NoValidHost(exception.NovaException):
    message = _("No host has %(memory_mb)d MB free.")
