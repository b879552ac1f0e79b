"""The one Spark session of the whole suite: whatever needs Spark is tested in this folder. And both engines."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rpcmq.errors import NotInstalled
from rpcmq.latency.jobs.engine import Engine
from rpcmq.latency.jobs.local import Local
from rpcmq.latency.jobs.session import QUICK, session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.latency.jobs.streams import Log

#: Of a test that needs Spark.
_SECONDS = 600

#: Little of everything. While it is there ``session`` starts no other: a command run in this process gets this one.
LITTLE = QUICK | {
    "spark.driver.memory": "1g",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
}


# Before pytest itself leaves out what is marked.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what needs Spark, and give it, which may have to start that first, more time.

    Where a signal ends a test while it talks to Spark, all that comes after it gets wrong answers.
    """
    for item in items:
        fixtures = {*getattr(item, "fixturenames", ())}
        if {"spark", "engine"} & fixtures and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(_SECONDS))
        chosen = getattr(item, "callspec", None)
        if "spark" in fixtures or (chosen is not None and chosen.params.get("engine") == "spark"):
            item.add_marker(pytest.mark.spark)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Spark, on one core, and in one worker of pytest's."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        try:
            # All workers have that directory.
            (tmp_path_factory.getbasetemp().parent / "spark").mkdir()
        except FileExistsError:
            pytest.fail("another worker has a Spark session; pytest -n gives all that need it to one, without --dist")
    try:
        with session("rpcmq tests", "local[1]", **LITTLE) as started:
            yield started
    except NotInstalled as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session", params=["duckdb", "spark"])
def engine(request: pytest.FixtureRequest) -> Engine:
    """One engine, then the other: what is said of one is said of both."""
    if request.param == "duckdb":
        return Local()
    from rpcmq.latency.jobs.spark import Spark

    return Spark(request.getfixturevalue("spark"))


@pytest.fixture
def log(tmp_path: Path) -> Log:
    """The log of a stream, in which nothing is yet."""
    # Not at the top: it needs Spark, and some tests of this folder do not.
    from tests.latency.jobs.streams import Log

    return Log(tmp_path / "log")


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """The directory that a stream writes to."""
    return tmp_path / "out"
