"""The example of docs/adapters.md works as it stands there."""

from __future__ import annotations

import re
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import gevent
import pytest
from gevent import monkey

from rpcmq.testing import InProcessRouter, eventually

DOCUMENT = Path(__file__).parents[2] / "docs" / "adapters.md"
start_new_thread = monkey.get_original("_thread", "start_new_thread")


@pytest.fixture
def example() -> dict[str, Any]:
    (code,) = re.findall(r"^```python\n(.*?)^```$", DOCUMENT.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    names: dict[str, Any] = {"__name__": "bus"}
    exec(compile(code, str(DOCUMENT), "exec"), names)
    return names


def test_the_example_bus_answers_from_another_thread(example: dict[str, Any], router: InProcessRouter) -> None:
    bus = example["Bus"](router.url)
    jobs: SimpleQueue[Any] = SimpleQueue()
    try:
        bus.listen("thumbnails", jobs.put)
        asked = gevent.spawn(bus.ask, "thumbnails", "shrink", image="cat.png")
        refused = gevent.spawn(bus.ask, "thumbnails", "grow", image="cat.png")
        eventually(lambda: jobs.qsize() == 2)
        for job in (jobs.get(), jobs.get()):
            assert repr(job).startswith(f"<Job {job.verb} ")
            if job.verb == "shrink":
                start_new_thread(job.answer, (job.data,))
            else:
                start_new_thread(job.refuse, (RuntimeError("a thumbnail does not grow"),))
        assert asked.get(timeout=20) == {"image": "cat.png"}
        with pytest.raises(RuntimeError, match="does not grow"):
            refused.get(timeout=20)
        with pytest.raises(example["BusError"], match="cats"):
            bus.ask("cats", "shrink", seconds=0.2)
    finally:
        bus.close()
