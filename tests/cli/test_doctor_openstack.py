"""``rpcmq doctor --openstack`` where the driver for oslo.messaging is not installed, or cannot be imported.

With it: drivers/oslo/tests/test_doctor.py.
"""

from __future__ import annotations

import sys
from importlib.metadata import EntryPoint

import pytest

from rpcmq.cli import doctor_openstack
from rpcmq.cli.doctor_openstack import openstack_findings


@pytest.mark.parametrize(
    ("installed", "text"),
    [
        ([], f"not installed in {sys.prefix}"),
        ([EntryPoint("openstack", "no_such_module_at_all:check", "rpcmq.doctor")], "No module named"),
    ],
)
def test_without_the_driver_it_says_what_to_install(
    installed: list[EntryPoint], text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor_openstack, "entry_points", lambda **wanted: installed)
    ((level, about, found, todo),) = openstack_findings(["nova.conf"], "", "", "", 1)
    assert (level, about) == ("fail", "rpcmq-oslo") and text in found and "pip install rpcmq-oslo" in todo
