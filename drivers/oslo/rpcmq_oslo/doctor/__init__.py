"""The checks of ``rpcmq doctor --openstack``: environment, settings, routers, and messages of its own over them."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from importlib.metadata import PackageNotFoundError, requires, version

from rpcmq_oslo.doctor.findings import FAIL, OK, Finding

__all__ = ["check"]


def check(
    config_files: Sequence[str], transport_url: str, exchange: str, key_file: str, timeout: float
) -> Iterator[Finding]:
    """Yield what is found; what comes later needs what has come before, so a failure may be the last finding.

    Args:
        config_files: of the service, as it is given them.
        transport_url: in place of theirs; empty: theirs.
        exchange: the service's ``control_exchange``; empty: as the files say.
        key_file: keys with which routers are asked for their mesh; empty: those of the service.
        timeout: seconds for each router, and for each step of the call.
    """
    versions = list(_versions())
    yield from versions
    if any(level == FAIL for level, *_ in versions):
        return
    # Of a release that is not supported they may not even be imported.
    from rpcmq_oslo.doctor.probe import probed
    from rpcmq_oslo.doctor.routers import routers_of
    from rpcmq_oslo.doctor.settings import read_settings

    settings, findings = read_settings(config_files, transport_url, exchange)
    yield from findings
    for bus in settings:
        reachable = yield from routers_of(bus, key_file, timeout)
        if reachable:
            yield from probed(bus, timeout)


def _versions() -> Iterator[Finding]:
    from packaging.requirements import Requirement

    for text in requires("rpcmq-oslo") or ():
        wanted = Requirement(text)
        try:
            found = version(wanted.name)
        except PackageNotFoundError:
            yield FAIL, "versions", f"{wanted.name} is not installed in {sys.prefix}", f"pip install '{wanted}'"
            continue
        if not wanted.specifier.contains(found, prereleases=True):
            yield (
                FAIL,
                "versions",
                f"rpcmq-oslo {version('rpcmq-oslo')} works with {wanted}, and {found} is installed in {sys.prefix}",
                f"pip install '{wanted}', or a release of rpcmq-oslo for {wanted.name} {found}",
            )
    names = ("rpcmq-oslo", "oslo.messaging", "rpcmq")
    try:
        shown = ", ".join(f"{name} {version(name)}" for name in names)
    except PackageNotFoundError:
        return  # told above
    yield OK, "versions", f"{shown}, in {sys.prefix}", ""
