"""A router and a service for the commands of a module, and commands run without a process of their own."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Mapping
from types import SimpleNamespace

import pytest
from gevent import get_hub

from rpcmq.cli import main
from tests.server.daemons import environment, router, started


@pytest.fixture(scope="package")
def system() -> Iterator[SimpleNamespace]:
    """``url`` of a router on which ``compute`` is served by node-7, and ``env`` that names it."""
    with router() as daemon:
        env = {"RPCMQ_ROUTER": daemon.url}
        serve = ("serve", "tests.cli.endpoints:Compute", "--topic", "compute", "--host", "node-7")
        with started(*serve, env=env) as service:
            identity = service.wait_for("serving")["identity"]
            yield SimpleNamespace(url=daemon.url, env=env, identity=identity)


@pytest.fixture
def invoke(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., SimpleNamespace]:
    """Run a command in this process; what ``tests.server.daemons.run`` does, but quicker."""

    def invoke(*arguments: str, env: Mapping[str, str] | None = None) -> SimpleNamespace:
        for name in set(os.environ) - set(environment()):
            monkeypatch.delenv(name)
        for name, value in (env or {}).items():
            monkeypatch.setenv(name, value)
        # A command sets these two for its process.
        monkeypatch.setattr(get_hub(), "NOT_ERROR", get_hub().NOT_ERROR)
        monkeypatch.setattr(logging.getLogger(), "handlers", [logging.NullHandler()])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        output = capsys.readouterr()
        return SimpleNamespace(returncode=ended.value.code, stdout=output.out, stderr=output.err)

    return invoke
