"""Running services of one process until they end or a signal comes."""

from __future__ import annotations

import logging
import signal
from typing import Any

import gevent
from gevent.event import Event

from nova.openstack.common import threadgroup

LOG = logging.getLogger(__name__)


class SignalExit(SystemExit):
    """A signal ends the process."""

    def __init__(self, signo: int, exccode: int = 1) -> None:
        super().__init__(exccode)
        self.signo = signo


class Service:
    """Something that is started, stopped and waited for; ``tg`` is its green threads."""

    def __init__(self, threads: int = 1000) -> None:
        self.tg = threadgroup.ThreadGroup(threads)

    def start(self) -> None:
        """Begin."""

    def stop(self) -> None:
        """End its timers and threads."""
        self.tg.stop()

    def wait(self) -> None:
        """Wait for their end."""
        self.tg.wait()


class Launcher:
    """Starts services, each in a green thread, and waits for them."""

    def __init__(self) -> None:
        self._services: list[Any] = []
        self._threads: list[Any] = []

    def launch_service(self, service: Any, workers: int = 1) -> None:
        """Start one more; ``workers`` above 1 would be processes, and are one here."""
        self._services.append(service)
        self._threads.append(gevent.spawn(self.run_service, service))

    @staticmethod
    def run_service(service: Any) -> None:
        """Start a service and wait for it."""
        service.start()
        service.wait()

    def stop(self) -> None:
        """Stop all services."""
        for service in self._services:
            service.stop()

    def wait(self) -> None:
        """Wait for all services."""
        gevent.joinall(self._threads, raise_error=True)


class ServiceLauncher(Launcher):
    """A launcher that SIGTERM and SIGINT stop."""

    def wait(self) -> None:
        """Wait for all services, or for a signal, which stops them.

        Raises:
            SystemExit: with code 1, after a signal.
        """
        signalled = Event()
        watchers = [gevent.signal_handler(signo, signalled.set) for signo in (signal.SIGTERM, signal.SIGINT)]
        try:
            ended = gevent.spawn(super().wait)
            waited: list[Any] = [ended, signalled]
            gevent.wait(waited, count=1)
            if signalled.is_set():
                LOG.info("Caught a signal, exiting")
                self.stop()
                raise SystemExit(1)
            ended.get()
        finally:
            for watcher in watchers:
                watcher.cancel()


class ProcessLauncher(ServiceLauncher):
    """Runs in this process what once ran in several."""


def launch(service: Any, workers: int | None = None) -> Launcher:
    """Start a service; wait for what is returned."""
    launcher = ServiceLauncher()
    launcher.launch_service(service, workers or 1)
    return launcher
