"""The Java process that Spark runs in: quiet, with a directory of its own, and gone at the end of the block."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Thread
from typing import IO, TYPE_CHECKING

from gevent.subprocess import TimeoutExpired
from py4j.clientserver import SHUTDOWN_FINALIZER_WORKER
from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.errors.exceptions.captured import CapturedException
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from rpcmq.errors import RpcError
from rpcmq.latency.jobs.java import Java

if TYPE_CHECKING:
    from gevent.subprocess import Popen
    from py4j.clientserver import ClientServer

__all__ = ["Jvm", "SparkFailed"]

_LOOPBACK = "127.0.0.1"
#: Environment variables that configure another Spark of this machine.
_FOREIGN = ("SPARK_HOME", "SPARK_CONF_DIR", "PYSPARK_SUBMIT_ARGS")
#: Seconds that it is given to end.
_PATIENCE = 10.0
#: Time for it to end after an error that its end may have caused (seconds).
_LAST_GASP = 2.0
#: Time for a session to end after it was told to (seconds): a minute for a batch, and less than the 90 of systemd.
_LONGEST_STOP = 80.0
#: Interval between checks for whether it is to end (seconds).
_LOOK = 0.5
#: Lines of its log that an error carries.
_LAST_LINES = 5

#: Spark asks Java for a module that only its machine learning uses, and that the smaller runtimes do not have.
_PROGRAM = """\
#!/bin/sh
for each; do
    shift
    [ "$each" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$each"
done
exec '{java}' "$@"
"""
_LOGGING = """\
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{yy/MM/dd HH:mm:ss} %p %c{1}: %m%n%ex
logger.shell.name = org.apache.spark.api.python.PythonGatewayServer
logger.shell.level = error
"""


class SparkFailed(RpcError):
    """Spark failed, did not start, or has ended; the text has its own message."""


class Jvm:
    """A Java process, started by Spark's own launcher.

    It ends with its ``with`` block, and by itself when this process is no more. pyspark waits for its answers without
    end; so it is killed when it is aborted, or the block is to end, and that takes too long: requests fail then.

    Args:
        java: what to run.
        directory: for all its files; an empty one.
        conf: Spark's settings.
        alone: whether it talks to no other machine, and then has nothing to do with another Spark of this one.
        stop: set when the block is to end.

    Raises:
        SparkFailed: it did not start.
    """

    def __init__(self, java: Java, directory: Path, conf: Mapping[str, str], alone: bool, stop: Event) -> None:
        self._log = directory / "spark.log"
        environ = {"JAVA_HOME": str(_home(java, directory))}
        if alone:
            # Workers of a local cluster would put their files next to Spark's own.
            environ |= {"SPARK_LOCAL_IP": _LOOPBACK, "SPARK_WORKER_DIR": str(directory / "work")}
        settings = SparkConf(loadDefaults=False)
        settings.setAll([*conf.items(), _java_options(conf, directory)])
        with self._log.open("wb") as log, _environment(environ, _FOREIGN if alone else ()):
            gateway = _launched(settings, log)
        if gateway is None:
            raise SparkFailed(f"Spark did not start on Java {java.version} ({java.home}): {self.said}")
        self._gateway = gateway
        self._process = self._gateway.proc
        self._aborted = self._killed = False
        self._stop = stop
        self._over = Event()
        _never_reconnect(self._gateway, self._process)
        SparkContext._gateway = self._gateway
        SparkContext._jvm = self._gateway.jvm

    @property
    def said(self) -> str:
        """The last lines of its log, without those that say where in the code."""
        lines = [line.strip() for line in self._log.read_text(errors="replace").splitlines()]
        said = [line for line in lines if line and not line.startswith(("at ", "... "))]
        return " / ".join(said[-_LAST_LINES:]) or "it said nothing"

    def __enter__(self) -> Jvm:
        Thread(target=self._kill_when_late, name="rpcmq-spark-end", daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        """Stop Spark, and end the process.

        Raises:
            SparkFailed: it had ended before; or Spark's error, which cannot be asked for its text any more afterwards.
        """
        text = ""
        try:
            if not self._aborted:
                text = self._failure(error) or self._stop_spark()
        finally:
            self._end()
            self._over.set()
            _forget()
        if text:
            raise SparkFailed(text) from error

    def _failure(self, error: BaseException | None) -> str:
        """Return Spark's own part in ``error``; empty if it had none."""
        if isinstance(error, CapturedException):
            return str(error).partition("\n")[0]
        if self._ends(_time_to_end(error)):
            if self._killed:
                return "Spark's Java process did not end in time, and was killed"
            return f"Spark's Java process has ended with exit code {self._process.returncode}: {self.said}"
        if isinstance(error, Py4JNetworkError | ConnectionError):
            return f"Spark's Java process does not answer: {self.said}"
        return ""

    def _stop_spark(self) -> str:
        """Stop Spark; return what went wrong."""
        try:
            with warnings.catch_warnings():
                # pyspark warns that Spark did not stop in good order, and goes on.
                warnings.simplefilter("ignore", RuntimeWarning)
                SparkSession.builder.getOrCreate().stop()
        except Exception as error:
            # Somebody else has told Java to end: a signal to a process group reaches it, too.
            return self._failure(error) or f"Spark did not stop: {error}"
        return ""

    def abort(self) -> None:
        """Abort the process: pending requests to it fail."""
        self._aborted = True
        with suppress(OSError):
            # It reads from there, and ends in good order when that ends.
            self._process.stdin.close()

    def _kill_when_late(self) -> None:
        """Kill the process if it was to end and did not; in a thread of its own."""
        # An abort comes from a signal handler, which must not wait for the lock of an event.
        while not (self._aborted or self._stop.is_set()):
            if self._over.wait(_LOOK):
                return
        if not self._over.wait(_PATIENCE if self._aborted else _LONGEST_STOP):
            self._killed = True
            self._process.kill()

    def _ends(self, seconds: float) -> bool:
        """Return whether the process has ended, or does so within ``seconds``."""
        try:
            self._process.wait(seconds)
        except TimeoutExpired:
            return False
        return True

    def _end(self) -> None:
        self.abort()
        if not self._ends(_PATIENCE):
            self._process.kill()
            self._process.wait()
        # Its thread would go on telling a Java that is no more of each object that is collected: each an error.
        client = self._gateway._gateway_client
        client.is_connected = False
        client.finalizer_deque.clear()
        client.finalizer_deque.append(SHUTDOWN_FINALIZER_WORKER)
        self._gateway.close()
        self._gateway.shutdown_callback_server()


def _never_reconnect(gateway: ClientServer, process: Popen[bytes]) -> None:
    """Have requests fail when ``process`` has ended: somebody else may listen on its port by then."""
    client = gateway._gateway_client
    connect = client._create_new_connection

    def connect_if_it_lives() -> object:
        if process.poll() is not None:
            raise Py4JNetworkError("Java has ended")
        return connect()

    client._create_new_connection = connect_if_it_lives


def _time_to_end(error: BaseException | None) -> float:
    """Return the seconds within which the process ends if ``error`` came of its end."""
    if error is None or isinstance(error, RpcError) or not isinstance(error, Exception):
        return 0.0
    if isinstance(error, Py4JError | ConnectionError) and not isinstance(error, Py4JJavaError):
        # It hung up. On a busy machine it takes its time to end after that.
        return _PATIENCE
    # Half an answer makes all sorts of errors.
    return _LAST_GASP


def _forget() -> None:
    """There is no Spark any more, as far as pyspark knows."""
    context = SparkContext._active_spark_context
    if context is not None:
        context._jsc = None
        context.stop()
    SparkSession._instantiatedSession = SparkSession._activeSession = None
    SparkContext._gateway = SparkContext._jvm = None


def _launched(settings: SparkConf, log: IO[bytes]) -> ClientServer | None:
    with warnings.catch_warnings():
        # pyspark leaves the pipe to a process that did not start to the garbage collector.
        warnings.simplefilter("ignore", ResourceWarning)
        try:
            return launch_gateway(settings, {"stdout": log, "stderr": log})
        except (PySparkRuntimeError, Py4JError, OSError):
            return None


def _home(java: Java, directory: Path) -> Path:
    """Return the ``JAVA_HOME`` for Spark's launcher."""
    program = directory / "java" / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(_PROGRAM.format(java=str(java.home / "bin" / "java").replace("'", "'\\''")))
    program.chmod(0o755)
    return directory / "java"


def _java_options(conf: Mapping[str, str], directory: Path) -> tuple[str, str]:
    name = "spark.driver.extraJavaOptions"
    path = directory / "log4j2.properties"
    path.write_text(_LOGGING)
    # Performance data would be a file in /tmp that stays when the process is killed.
    options = f"-Dlog4j2.configurationFile={path} -Djava.io.tmpdir={directory} -XX:-UsePerfData"
    return name, f"{options} {conf.get(name, '')}".strip()


@contextmanager
def _environment(more: Mapping[str, str], less: tuple[str, ...]) -> Iterator[None]:
    """Within, children get another environment."""
    before = {name: os.environ.get(name) for name in (*more, *less)}
    try:
        for name in less:
            os.environ.pop(name, None)
        os.environ.update(more)
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
