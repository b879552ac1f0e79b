"""Programs of asyncio in which gevent cannot be imported: each scenario prints what came of it.

edges.py ROUTER LOOP SCENARIO
"""

import asyncio
import os
import sys
import threading
from typing import Any

for name in ("gevent", "greenlet"):
    sys.modules[name] = None  # type: ignore[assignment]

import uvloop  # noqa: E402

from rpcmq import aio, rpc  # noqa: E402
from rpcmq.errors import UsageError  # noqa: E402

URL, LOOP = sys.argv[1], sys.argv[2]
os.environ["RPCMQ_ROUTER"] = URL
new_loop = uvloop.new_event_loop if LOOP == "uvloop" else asyncio.new_event_loop


def message(method: str, **args: object) -> dict[str, object]:
    return {"method": method, "args": args}


def run(main: Any) -> Any:
    with asyncio.Runner(loop_factory=new_loop) as runner:
        return runner.run(main)


def ends_with_casts() -> None:
    async def main() -> None:
        for number in range(1000):
            await aio.cast(None, "compute", message("note", value=number))
        await aio.publish(None, "last", 1)

    run(main())


def one_connection() -> None:
    """Threads, and the event loops of several threads, share one."""

    async def main() -> Any:
        blocking = await asyncio.to_thread(rpc.call, None, "compute", message("add", a=1))
        return blocking, await aio.call(None, "compute", message("add", a=2)), aio.client().identity

    results: list[Any] = []
    threads = [threading.Thread(target=lambda: results.append(run(main()))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    here = rpc.call(None, "compute", message("add", a=3))
    processes = rpc.client().query("processes")["processes"]
    print(here, [result[:2] for result in results], len({result[2] for result in results}), len(processes))


def closed_under_a_call(direct: bool = False) -> None:
    """The task is still referred to, so nothing but the client can notice."""
    loop = new_loop()
    client = aio.Client(URL)
    if direct:
        add = client.call(None, "compute", message("add", a=1), direct=True)
        print(loop.run_until_complete(add), dict(client.threads.process.direct.fallbacks))
    task = loop.create_task(client.call(None, "compute", message("until_cancelled"), 60, direct=direct))

    async def begun() -> None:
        while not await client.call(None, "compute", message("is_begun")):
            await asyncio.sleep(0.01)

    loop.run_until_complete(begun())
    loop.close()

    async def left() -> Any:
        while (await client.query("calls"))["calls"]:
            await asyncio.sleep(0.01)
        return await client.call(None, "compute", message("add", a=1))

    print(run(left()), task.done(), flush=True)
    if direct:
        sys.stdin.readline()
    run(client.close())
    os._exit(0)  # Python would complain of the task


def closed_under_a_direct_call() -> None:
    closed_under_a_call(direct=True)


def forked() -> None:
    """The child of a fork goes on with an event loop of its own; in the parent's it is refused."""

    async def child(client: aio.Client) -> Any:
        return await client.call(None, "compute", message("add", a=2)), client.identity

    async def main() -> None:
        client = aio.Client(URL, "parent")
        print(await client.call(None, "compute", message("add", a=1)), flush=True)
        pid = os.fork()
        if pid == 0:
            coroutine = client.call(None, "compute", message("add", a=1))
            try:
                coroutine.send(None)
            except UsageError as error:
                print("no event loop" in str(error), flush=True)
            threading.Thread(target=lambda: print(*run(child(client)), flush=True)).start()
            for thread in threading.enumerate():
                if thread is not threading.current_thread() and not thread.daemon:
                    thread.join()
            os._exit(0)
        _, status = await asyncio.to_thread(os.waitpid, pid, 0)
        print(status, await client.call(None, "compute", message("add", a=3)), client.identity, flush=True)
        await client.close()

    run(main())


def closed_client() -> None:
    async def main() -> None:
        client = aio.Client(URL)
        waiting = asyncio.create_task(client.call(None, "compute", message("hold")))
        while not (await client.query("calls"))["calls"]:
            await asyncio.sleep(0.01)
        await client.close()
        try:
            await waiting
        except Exception as error:
            print(type(error).__name__)
        for verb in (client.call, client.cast, client.publish, client.subscribe):
            given = (None, "compute", message("add")) if verb != client.subscribe else ("#", print)
            try:
                await verb(*given)
            except UsageError as error:
                print(error)
        await client.close()

    run(main())


def serves_until_a_signal() -> None:
    class Endpoint:
        async def slow(self, ctx: Any) -> str:
            await asyncio.sleep(0.3)
            return "drained"

    async def main() -> None:
        async with aio.Service("slow", Endpoint(), router=URL) as service:
            print("serving", flush=True)
            await service.wait()
        print("stopped", flush=True)

    run(main())


globals()[sys.argv[3]]()
