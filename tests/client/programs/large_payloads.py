"""Sends large payloads in each way there is, and small ones between; prints what arrived.

large_payloads.py plain|patched ROUTER
"""

import sys

if sys.argv[1] == "patched":
    from gevent import monkey

    monkey.patch_all()

import gevent

import rpcmq
from rpcmq.client.request import current_request
from rpcmq.errors import RemoteError
from rpcmq.testing import eventually

#: From the first that is detached to one that libzmq writes in many pieces.
SIZES = (40_000, 70_000, 1 << 20, 5 << 20)


class Files:
    def __init__(self) -> None:
        self.noted: list[int] = []

    def size(self, ctx: object, data: bytes) -> int:
        return len(data)

    def read(self, ctx: object, size: int) -> bytes:
        return bytes(size)

    def note(self, ctx: object, data: bytes) -> None:
        self.noted.append(len(data))

    def pieces(self, ctx: object, size: int) -> object:
        for _ in range(3):
            yield bytes(size)

    def report(self, ctx: object, size: int) -> str:
        current_request().progress(bytes(size))  # type: ignore[union-attr]
        return "done"

    def fail(self, ctx: object, size: int) -> None:
        raise ValueError("x" * size)


def call(method: str, **args: object) -> object:
    return client.call(None, "files", {"method": method, "args": args}, timeout=20)


files = Files()
service = rpcmq.Service("files", files, host="n", router=sys.argv[2], direct=True)
service.start()
client = rpcmq.Client(sys.argv[2])
events: list[int] = []
client.subscribe("files.#", lambda ctx, topic, payload: events.append(len(payload)))
for size in SIZES:
    assert call("size", data=bytes(size)) == size
    assert call("size", data=b"small") == 5
    answer = call("read", size=size)
    assert isinstance(answer, bytes) and len(answer) == size
    for data in (b"first", bytes(size), b"last"):
        client.cast(None, "files", {"method": "note", "args": {"data": data}})
        client.publish(None, "files.new", data)
    eventually(lambda size=size: sorted(files.noted) == [4, 5, size] and events == [5, size, 4])  # type: ignore[misc]
    files.noted.clear()
    events.clear()
    message = {"method": "pieces", "args": {"size": size}}
    assert [len(piece) for piece in client.multicall(None, "files", message, timeout=20)] == [size] * 3
    progress: list[object] = []
    message = {"method": "report", "args": {"size": size}}
    client.call(None, "files", message, timeout=20, on_progress=progress.append)
    assert [len(value) for value in progress] == [size]  # type: ignore[arg-type]
    try:
        call("fail", size=size)
    except (ValueError, RemoteError) as error:
        assert "xxx" in str(error), error
    together = [gevent.spawn(call, "size", data=bytes(size)) for _ in range(4)]
    assert [greenlet.get() for greenlet in together] == [size] * 4
    message = {"method": "size", "args": {"data": bytes(size)}}
    assert client.call(None, "files.n", message, timeout=20, direct=True) == size
for end in (client, service.client):
    assert not end.process.uplink.discarded, end.process.uplink.discarded
    assert end.process.connection.lost_wakeups == 0
    assert end.process.connection.reconnects == 0
assert service.stop(2.0)
client.close()
print("arrived", SIZES)
