"""The names that Celery's app and those who start it have in common: the app itself needs Celery."""

from __future__ import annotations

__all__ = ["BROKER", "PIPE", "READY"]

#: In the environment.
BROKER, PIPE = "QUEUE_BENCHMARK_BROKER", "QUEUE_BENCHMARK_PIPE"
#: The worker's line once it works.
READY = "the worker of the benchmark is ready"
