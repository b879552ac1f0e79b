"""A program of threads that knows nothing of gevent, as a script, a view of a web server or a notebook.

``python -m rpcmq.drill.plain OPTIONS`` with OPTIONS as JSON. Its threads, the main one too, call and cast with
``rpcmq.rpc``; then it computes and sleeps, as such programs do, without a turn for anybody; and again. SIGTERM ends it
after a round.
"""

from __future__ import annotations

import json
import logging
import signal
import sys
import threading
import time
from types import FrameType

import rpcmq
from rpcmq import rpc
from rpcmq.drill.common import TOPIC, Options, listen, outcome_of, say, write_links
from rpcmq.drill.history import Recorder, What
from rpcmq.drill.names import traceparent_of
from rpcmq.drill.topology import Topology
from rpcmq.errors import RpcError

__all__ = ["main"]

#: Beside the main one, which sends as well.
_THREADS = 2
#: That a thread sends in a round, beside a call.
_CASTS = 10


class _Program:
    def __init__(self, options: Options, recorder: Recorder) -> None:
        self._options = options
        self._recorder = recorder
        self._topology = Topology(**options.topology)
        self.stopping = False

    def run(self) -> None:
        number = 0
        while not self.stopping:
            threads = [threading.Thread(target=self._send, args=(f"{number}-{n}",)) for n in range(_THREADS)]
            for thread in threads:
                thread.start()
            self._send(f"{number}-main")
            for thread in threads:
                thread.join()
            number += 1
            self._be_busy()

    def _send(self, name: str) -> None:
        name = f"{self._options.name}-{name}"
        timeout, recorder = self._topology.timeout, self._recorder
        recorder.write(What.SUBMIT, name, verb="call", topic=TOPIC, timeout=timeout)
        try:
            of = rpc.call(None, TOPIC, _message(name), timeout, traceparent=traceparent_of(name))
        except RpcError as error:
            recorder.write(What.END, name, outcome=outcome_of(error), text=str(error)[:200])
        else:
            recorder.write(What.END, name, outcome="ok", of=of)
        for number in range(_CASTS):
            id = f"{name}-{number}"
            recorder.write(What.SUBMIT, id, verb="cast", topic=TOPIC)
            try:
                rpc.cast(None, TOPIC, _message(id), timeout=timeout, traceparent=traceparent_of(id))
            except RpcError as error:
                recorder.write(What.END, id, outcome=outcome_of(error), text=str(error)[:200])
            else:
                recorder.write(What.RETURN, id)

    def _be_busy(self) -> None:
        seconds = self._topology.busy_seconds
        self._recorder.write(What.BUSY, seconds=seconds)
        say("busy")
        end = time.monotonic() + seconds
        while time.monotonic() < end - seconds / 2:
            sum(range(10_000))
        while (left := end - time.monotonic()) > 0:
            time.sleep(left)


def _message(id: str) -> dict[str, object]:
    args = {"id": id, "topic": TOPIC, "seconds": 0.0, "fails": False, "hogs": False, "text": ""}
    return {"method": "work", "args": args}


def main(text: str) -> None:
    """Be a plain program of a drill."""
    logging.basicConfig(level=logging.ERROR, format="%(levelname)s %(name)s %(message)s")
    options = Options(**json.loads(text))
    with Recorder(options.history, options.name) as recorder:
        listen(recorder)
        program = _Program(options, recorder)

        def stop(number: int, frame: FrameType | None) -> None:
            program.stopping = True

        signal.signal(signal.SIGTERM, stop)
        with rpcmq.Client(options.router, options.place) as client:
            write_links(client, recorder)
            rpc.configure(client)
            say("ready")
            program.run()
            recorder.write(What.DONE, left=0)


if __name__ == "__main__":
    main(*sys.argv[1:])
