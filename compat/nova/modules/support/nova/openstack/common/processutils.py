"""Running other programs, as ``nova.utils.execute`` does (Grizzly's name for it)."""

from __future__ import annotations

import logging
import os
import random
import shlex
from collections.abc import Sequence
from typing import Any

import gevent
from gevent import subprocess

LOG = logging.getLogger(__name__)


class InvalidArgumentError(Exception):
    """``execute`` got an argument that it does not know."""


class UnknownArgumentError(InvalidArgumentError):
    """``execute`` got an argument that it does not know."""


class NoRootWrapSpecified(Exception):
    """A program should run as root, but nothing was said about how."""


class ProcessExecutionError(OSError):
    """A program ended with a code that was not expected; the text has all that is known of it."""

    def __init__(
        self,
        stdout: str | None = None,
        stderr: str | None = None,
        exit_code: int | None = None,
        cmd: str | None = None,
        description: str | None = None,
    ) -> None:
        self.stdout = stdout
        self.stderr = stderr
        self.exit_code = "-" if exit_code is None else exit_code
        self.cmd = cmd
        self.description = description or "Unexpected error while running command."
        super().__init__(
            f"{self.description}\nCommand: {cmd}\nExit code: {self.exit_code}\nStdout: {stdout!r}\nStderr: {stderr!r}"
        )


def execute(
    *cmd: Any,
    process_input: str | bytes | None = None,
    check_exit_code: bool | int | Sequence[int] = (0,),
    delay_on_retry: bool = True,
    attempts: int = 1,
    run_as_root: bool = False,
    root_helper: str = "",
    shell: bool = False,
    addl_env: dict[str, str] | None = None,
    cwd: str | None = None,
    **unknown: Any,
) -> tuple[str, str]:
    """Run a program in this green thread; others go on meanwhile.

    Args:
        check_exit_code: the codes that are no error; False: all; True: 0.
        attempts: runs at most, with a short pause between.
        root_helper: command in front, if ``run_as_root`` and this process is not root's.

    Returns:
        What it wrote to standard output and to standard error.

    Raises:
        ProcessExecutionError: it ended with another code.
        UnknownArgumentError: a keyword is not known.
    """
    if unknown:
        raise UnknownArgumentError(f"Got unknown keyword args to execute: {sorted(unknown)}")
    ignore_code = check_exit_code is False
    if isinstance(check_exit_code, bool):
        check_exit_code = [0]
    codes = [check_exit_code] if isinstance(check_exit_code, int) else [*check_exit_code]
    words = [str(word) for word in cmd]
    if run_as_root and root_helper and os.geteuid() != 0:
        words = [*shlex.split(root_helper), *words]
    shown = " ".join(words)
    data = process_input.encode() if isinstance(process_input, str) else process_input
    while True:
        attempts -= 1
        LOG.debug("Running cmd (subprocess): %s", shown)
        process = subprocess.Popen(
            shown if shell else words, shell=shell, cwd=cwd, env={**os.environ, **(addl_env or {})},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        out, err = (text.decode(errors="replace") for text in process.communicate(data))
        if ignore_code or process.returncode in codes:
            return out, err
        if attempts <= 0:
            raise ProcessExecutionError(out, err, process.returncode, shown)
        LOG.debug("%r failed. Retrying.", shown)
        if delay_on_retry:
            gevent.sleep(random.randint(20, 200) / 100.0)


def trycmd(*args: Any, discard_warnings: bool = False, **kwargs: Any) -> tuple[str, str]:
    """Like :func:`execute`, with a failure told as the text of standard error.

    Args:
        discard_warnings: what a program that succeeded wrote to standard error is dropped.
    """
    try:
        out, err = execute(*args, **kwargs)
        failed = False
    except ProcessExecutionError as error:
        out, err, failed = "", str(error), True
    return out, "" if discard_warnings and not failed else err
