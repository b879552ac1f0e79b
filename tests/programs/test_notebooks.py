"""A notebook: cells that are run one by one in an event loop of the main thread, and long pauses between them."""

from __future__ import annotations

import json
import signal
import sys
from typing import Any

from rpcmq.testing import eventually
from tests.programs.groups import CHECKOUT, PROGRAMS, Group

OUTPUT = ["ready", "Out ", "Error "]


class Notebook(Group):
    def __init__(self, environment: dict[str, str]) -> None:
        command = [sys.executable, str(PROGRAMS / "embedded_loop.py")]
        super().__init__(command, {**environment, "PYTHONPATH": str(CHECKOUT)}, "notebook")
        self.expect("ready")

    def run(self, cell: str) -> Any:
        """Run a cell, and return its value, or ``Error`` and the exception as text."""
        self.tell(cell)
        return self.result()

    def result(self) -> Any:
        kind, text = self.expect(r"^(Out|Error) (.*)").groups()
        return json.loads(text) if kind == "Out" else f"Error {text}"


def test_cells_call_cast_and_are_interrupted(cloud):
    compute = cloud.compute
    with Notebook(cloud.environment) as notebook:
        run = notebook.run
        run("from rpcmq import as_cast, rpc; from examples.compute_service import Compute")
        assert run("compute = rpc.stub(Compute, 'compute', timeout=20); compute.show(None, 'i-1')") == "state of i-1"
        assert run("list(compute.list_instances(None))") == ["i-1", "i-2", "i-3"]
        assert run("compute.show(None, 'missing')") == "Error LookupError there is no instance missing"
        # Awaited, over the same connection.
        run("from rpcmq import aio")
        message = "{'method': 'show', 'args': {'instance_id': 'i-2'}}"
        assert run(f"await aio.call(None, 'compute', {message}, 20)") == "state of i-2"
        assert run("[i async for i in aio.multicall(None, 'compute', {'method': 'list_instances'}, 20)]") == [
            "i-1", "i-2", "i-3",
        ]  # fmt: skip
        (link,) = cloud.expect_links(1)
        # What a cell has cast is run while nobody runs a cell.
        run("[as_cast(compute.reboot)(None, f'i-{n}') for n in range(100)]")
        cloud.expect_casts([f"i-{n}" for n in range(100)])
        # A cell that waits can be interrupted, whether it blocks the loop or not, and the next one is run.
        for number, cell in enumerate(("rpc.call(None, 'compute', {'method': 'hold'}, 60)",
                                       "await aio.call(None, 'compute', {'method': 'hold'}, 60)"), 1):  # fmt: skip
            notebook.tell(cell)
            eventually(lambda number=number: compute.holding == number)  # type: ignore[misc]
            notebook.signal(signal.SIGINT)
            assert notebook.result().startswith(("Error KeyboardInterrupt", "Error CancelledError"))
            eventually(lambda number=number: compute.cancelled == number)  # type: ignore[misc]
            assert run("compute.show(None, 'i-1')") == "state of i-1"
        assert cloud.expect_links(1)[0]["identity"] == link["identity"]
        # The kernel ends when its front end goes, with a cast of the last moment.
        run("as_cast(compute.reboot)(None, 'last')")
        notebook.tell("")
        assert notebook.wait() == 0, notebook.said()
        notebook.assert_said_only(OUTPUT)
    cloud.expect_casts(["last"])
    cloud.expect_nobody()
