"""Exceptions, each with its text."""

import sys


class NovaException(Exception):
    message = "An unknown exception occurred."

    def __init__(self, message=None, **kwargs):
        self.kwargs = kwargs
        if not message:
            message = self.message % kwargs
        super(NovaException, self).__init__(message)


class VolumeNotFound(NovaException):
    message = "Volume %(volume_id)s could not be found."


class BackupFailed(NovaException):

    def __init__(self, volume_id, reason):
        self.volume_id = volume_id
        super(BackupFailed, self).__init__(
                "No backup of %s: %s" % (volume_id, reason))


class save_and_reraise_exception(object):
    """Cleans up after an exception, then raises it again."""

    def __enter__(self):
        self.type_, self.value, self.tb = sys.exc_info()
        return self

    def __exit__(self, exc_type, exc_val, exc_tb):
        if exc_type is None:
            raise self.type_, self.value, self.tb
