"""The choice of a sink by its name."""

from __future__ import annotations

from rpcmq.errors import NotInstalled
from rpcmq.latency.sinks import JsonLines, Sink

__all__ = ["SINKS", "open_sink"]

SINKS = ("parquet", "jsonl")


def open_sink(name: str) -> Sink:
    """The sink of that name, one of ``SINKS``.

    Raises:
        NotInstalled: what it needs is not there.
    """
    if name == "jsonl":
        return JsonLines()
    try:
        # Imported here: loading it costs tenths of a second and 70 MB.
        from rpcmq.latency.parquet import Parquet
    except ModuleNotFoundError as error:
        if str(error.name).partition(".")[0] not in ("numpy", "pyarrow"):
            raise
        raise NotInstalled(f"{error.name} is not installed: pip install 'rpcmq[ship]'") from None
    return Parquet()
