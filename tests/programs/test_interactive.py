"""Python in a terminal: somebody types calls and casts, presses Ctrl-C, thinks for a while, and leaves."""

from __future__ import annotations

import sys

import pytest

from rpcmq import Service
from rpcmq.testing import eventually
from rpcmq.testing.processes import RouterProcess
from tests.programs.conftest import Cloud, RecordingCompute
from tests.programs.groups import CHECKOUT
from tests.programs.terminal import Terminal

PROMPT = r"^>>> "


class Session(Terminal):
    def __init__(self, environment: dict[str, str]) -> None:
        plain = {"PYTHON_BASIC_REPL": "1", "TERM": "dumb", "PYTHONPATH": str(CHECKOUT), "PYTHONSTARTUP": ""}
        super().__init__([sys.executable, "-q", "-i"], {**environment, **plain})
        self.expect(PROMPT)

    def run(self, line: str) -> str:
        """Enter a line; return what is shown for it."""
        self.type(line + "\n")
        return self.expect(PROMPT).partition("\n")[2].strip()


@pytest.mark.parametrize("leave", ["exit()\n", "\x04"], ids=["exit", "end of input"])
def test_a_session(cloud, leave):
    compute = cloud.compute
    with Session(cloud.environment) as session:
        run = session.run
        assert run("from rpcmq import as_cast, rpc") == ""
        assert run("from examples.compute_service import Compute") == ""
        assert run("compute = rpc.stub(Compute, 'compute', timeout=20)") == ""
        assert run("compute.show(None, 'i-1')") == "'state of i-1'"
        assert run("list(compute.list_instances(None))") == "['i-1', 'i-2', 'i-3']"
        assert run("compute.shwo(None, 'i-1')").endswith("no public method 'shwo'; did you mean show?")
        assert run("compute.show(None, 'missing')").endswith("LookupError: there is no instance missing")
        # A cast is run while nobody types.
        assert run("for n in range(100): as_cast(compute.reboot)(None, f'i-{n}')\n") in ("", "...")
        cloud.expect_casts([f"i-{n}" for n in range(100)])
        (link,) = cloud.expect_links(1)
        # Ctrl-C ends a call, and tells the service.
        held, cancelled = compute.holding, compute.cancelled
        session.type("rpc.call(None, 'compute', {'method': 'hold'}, 60)\n")
        eventually(lambda: compute.holding > held)
        session.type("\x03")
        assert session.expect(PROMPT).rstrip().endswith("KeyboardInterrupt")
        eventually(lambda: compute.cancelled > cancelled)
        assert run("compute.show(None, 'i-2')") == "'state of i-2'"
        assert cloud.expect_links(1)[0]["identity"] == link["identity"]
        # What is cast in the line before the end is not lost, and the end says nothing.
        assert run("as_cast(compute.reboot)(None, 'last')") == ""
        session.type(leave)
        assert session.wait() == 0, session.shown
        assert session.expect(r"\Z").strip() in ("", "exit()"), session.shown
    cloud.expect_casts(["last"])
    cloud.expect_nobody()


@pytest.mark.long
def test_a_session_that_is_idle_at_its_prompt_answers_heartbeats():
    with (
        RouterProcess(link_heartbeat_seconds=0.5, link_unresponsive_seconds=3.0) as router,
        Service("compute", RecordingCompute(), host="n", router=router.url),
    ):
        cloud = Cloud(router, RecordingCompute())
        with Session(cloud.environment) as session:
            session.run("from rpcmq import rpc")
            session.run("rpc.cast(None, 'compute', {'method': 'reboot', 'args': {'instance_id': 'i-1'}})")
            (link,) = cloud.expect_links(1)
            before = link["connected_seconds"]
            # For so long that it would be called unresponsive.
            eventually(lambda: cloud.expect_links(1)[0]["connected_seconds"] > before + 5)
            # On a busy machine an answer may be late; one that never comes is never made up for.
            eventually(lambda: [link["state"] for link in cloud.processes()] == ["answering"], 60)
            (link,) = cloud.processes()
            assert link["counters"] == {"connects": 1}
