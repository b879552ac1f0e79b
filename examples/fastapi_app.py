"""FastAPI: ``async def`` endpoints await rpcmq.aio, those with ``def`` run in threads and use rpcmq.rpc.

    uvicorn examples.fastapi_app:app

Both share one connection. ``RPCMQ_ROUTER`` names the router; compute_service.py is the service.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Protocol

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse

from examples.compute_service import Compute, Context
from rpcmq import aio, rpc
from rpcmq.errors import CallTimeout, NoConsumer, Overloaded, RouterUnreachable


class AsyncCompute(Protocol):
    """The methods of Compute, to be awaited."""

    async def show(self, ctx: Context, instance_id: str) -> str: ...
    async def reboot(self, ctx: Context, instance_id: str) -> str: ...


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    yield
    # uvicorn ends itself by the signal that it got, and skips what Python does at the end of a program.
    rpc.client().close()


app = FastAPI(lifespan=lifespan)
in_threads = rpc.stub(Compute, "compute", timeout=5)
in_tasks = aio.stub(AsyncCompute, "compute", timeout=5)


@app.get("/instances")
def list_instances() -> list[str]:
    return list(in_threads.list_instances(None))


@app.get("/instances/{instance_id}")
async def show(instance_id: str) -> dict[str, str]:
    return {"id": instance_id, "state": await in_tasks.show(None, instance_id)}


@app.post("/instances/{instance_id}/reboot", status_code=202)
async def reboot(instance_id: str) -> dict[str, str]:
    await aio.as_cast(in_tasks.reboot)(None, instance_id)
    return {"id": instance_id, "state": "rebooting"}


@app.exception_handler(LookupError)
async def unknown(request: Request, error: Exception) -> Any:
    return JSONResponse({"error": str(error)}, 404)


@app.exception_handler(RouterUnreachable)
@app.exception_handler(NoConsumer)
@app.exception_handler(Overloaded)
async def unavailable(request: Request, error: Exception) -> Any:
    return JSONResponse({"error": str(error)}, 503)


@app.exception_handler(CallTimeout)
async def timed_out(request: Request, error: Exception) -> Any:
    return JSONResponse({"error": str(error)}, 504)
