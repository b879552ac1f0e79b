"""Celery's app: ``python -m celery -A benchmarks.queue_celery worker`` runs it as well.

The broker and the pipe that tells what was worked are in the environment, for Celery starts processes of its own.
"""

from __future__ import annotations

import os
from typing import Any

from celery import Celery
from celery.signals import worker_ready

from benchmarks.queue_celery_names import BROKER, PIPE, READY
from benchmarks.queue_work import ARGUMENTS, Worked

__all__ = ["app", "charge"]

app = Celery("benchmark", broker=os.environ[BROKER], set_as_current=False)
app.conf.update(
    task_ignore_result=True,
    # What is being worked when its worker dies is not lost.
    task_acks_late=True,
    task_default_queue="billing",
    broker_connection_retry_on_startup=True,
    broker_pool_limit=64,
    worker_hijack_root_logger=False,
)
if os.environ[BROKER].startswith("amqp:"):
    app.conf.broker_transport_options = {"confirm_publish": True}
_worked = Worked(os.environ[PIPE])


@app.task(name="charge")
def charge(ctx: dict[str, Any], msg: dict[str, Any]) -> None:
    """Work an item."""
    assert msg["args"] == ARGUMENTS
    _worked.one()


@worker_ready.connect
def _say_ready(**_: object) -> None:
    print(READY, flush=True)
