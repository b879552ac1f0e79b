"""``rpcmq doctor --openstack``: the checks of the driver for oslo.messaging, where that is installed.

rpcmq knows nothing of OpenStack: the driver's distribution has an entry point, which yields what it finds.
"""

from __future__ import annotations

import logging
import sys
import warnings
from collections.abc import Iterator, Sequence
from importlib.metadata import entry_points

__all__ = ["openstack_findings"]

_GROUP, _NAME = "rpcmq.doctor", "openstack"
_INSTALL = "pip install rpcmq-oslo into the environment of the service, and run the rpcmq of that environment"


def openstack_findings(
    config_files: Sequence[str], transport_url: str, exchange: str, key_file: str, timeout: float
) -> Iterator[tuple[str, str, str, str]]:
    """Yield level, subject, observation and advice.

    Args:
        config_files: of the service.
        transport_url, exchange: in place of those of the files; empty: those.
        key_file: keys of an operator; empty: those of the service.
        timeout: seconds for each router and step.
    """
    found = list(entry_points(group=_GROUP, name=_NAME))
    if not found:
        yield "fail", "rpcmq-oslo", f"not installed in {sys.prefix}", _INSTALL
        return
    # What matters of their logs is found and told.
    logging.basicConfig(level=logging.CRITICAL)
    warnings.simplefilter("ignore")
    try:
        check = found[0].load()
    except ImportError as error:
        yield "fail", "rpcmq-oslo", f"cannot be imported in {sys.prefix}: {error}", _INSTALL
        return
    yield from check(config_files, transport_url, exchange, key_file, timeout)
