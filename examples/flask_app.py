"""Flask: views that call and cast. Nothing is to be set up, whatever server runs them.

    flask --app examples.flask_app run
    gunicorn --worker-class gthread --threads 8 examples.flask_app:app

``RPCMQ_ROUTER`` names the router; compute_service.py is the service.
"""

from __future__ import annotations

from typing import Any

from flask import Flask, request

from examples.compute_service import Compute
from rpcmq import as_cast, rpc
from rpcmq.errors import CallTimeout, NoConsumer, Overloaded, RouterUnreachable

app = Flask(__name__)
# Made while the module is imported, also before a fork: the client connects when it is first used.
compute = rpc.stub(Compute, "compute", timeout=5)


@app.get("/instances")
def list_instances() -> Any:
    return list(compute.list_instances(context()))


@app.get("/instances/<instance_id>")
def show(instance_id: str) -> Any:
    return {"id": instance_id, "state": compute.show(context(), instance_id)}


@app.post("/instances/<instance_id>/reboot")
def reboot(instance_id: str) -> Any:
    as_cast(compute.reboot)(context(), instance_id)
    return {"id": instance_id, "state": "rebooting"}, 202


@app.errorhandler(LookupError)
def unknown(error: LookupError) -> Any:
    return {"error": str(error)}, 404


@app.errorhandler(RouterUnreachable)
@app.errorhandler(NoConsumer)
@app.errorhandler(Overloaded)
def unavailable(error: Exception) -> Any:
    return {"error": str(error)}, 503


@app.errorhandler(CallTimeout)
def timed_out(error: CallTimeout) -> Any:
    return {"error": str(error)}, 504


def context() -> dict[str, str]:
    return {"user": request.headers.get("X-User", "anonymous")}
