"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import click

from rpcmq.config import describe_fields
from rpcmq.config.values import ValueType

if TYPE_CHECKING:
    from rpcmq.client import Client
    from rpcmq.payload import ExceptionRegistry

__all__ = ["ParamOf", "State", "connects", "json_option", "log_options", "make_client", "positive", "setting"]

Command = TypeVar("Command", bound=Callable[..., Any])

#: A number above zero.
positive = click.FloatRange(min=0, min_open=True)


@dataclass
class State:
    """Global options, overridden by the command's own.

    Attributes:
        router: URL of the router; None: from the environment.
        exchange: namespace of the topics; None: from the environment.
        key_file: CURVE keys; None: from the environment.
        json: print for programs, not for readers.
    """

    router: str | None
    exchange: str | None = None
    key_file: str | None = None
    json: bool = False


def _keep(name: str) -> Callable[[click.Context, click.Parameter, Any], None]:
    def callback(ctx: click.Context, parameter: click.Parameter, value: Any) -> None:
        if value is not None and value is not False:
            setattr(ctx.obj, name, value)

    return callback


def connects(command: Command) -> Command:
    """``--router``, ``--exchange`` and ``--key-file``: for a command that talks to a router."""
    router = click.option(
        "--router", metavar="URL", expose_value=False, callback=_keep("router"), help="URL of the router."
    )
    exchange = click.option(
        "--exchange",
        metavar="NAME",
        expose_value=False,
        callback=_keep("exchange"),
        help="Namespace of the topics.  [env: RPCMQ_EXCHANGE]",
    )
    key_file = click.option(
        "--key-file",
        metavar="FILE",
        expose_value=False,
        callback=_keep("key_file"),
        help="CURVE keys for this router.  [env: RPCMQ_KEY_FILE]",
    )
    return router(exchange(key_file(command)))


def json_option(command: Command) -> Command:
    """``--json``: for a command that prints data; errors become JSON, too."""
    return click.option(
        "--json", is_flag=True, expose_value=False, callback=_keep("json"), help="Print JSON, for programs."
    )(command)


def log_options(command: Command) -> Command:
    """``--log-format`` and ``--log-level``: for a command that runs on and logs."""
    level = click.option(
        "--log-level", type=click.Choice(["debug", "info", "warning", "error"]), default="info", show_default=True
    )
    return click.option("--log-format", type=click.Choice(["text", "json"]), default="text", show_default=True)(
        level(command)
    )


class ParamOf(click.ParamType):  # type: ignore[type-arg]  # click 8.1 knows no argument
    """The parameter type of what a setting takes."""

    def __init__(self, kind: ValueType) -> None:
        self._kind = kind
        self.name = kind.name

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Like :class:`click.ParamType` has it."""
        try:
            return self._kind.check(self._kind.read(value) if isinstance(value, str) else value)
        except ValueError:
            self.fail(f"{value!r}: expected {self._kind.expected}", param, ctx)


def setting(flag: str, key: str, help: str) -> Callable[[Command], Command]:
    """An option that takes what the router's setting ``key`` takes, from its variable too, with its default."""
    info = next(info for info in describe_fields() if info.key == key)
    return click.option(
        flag,
        key.rpartition(".")[2],
        type=ParamOf(info.kind),
        default=info.default,
        envvar=info.env,
        show_default=True,
        show_envvar=True,
        help=help,
    )


def make_client(
    state: State,
    timeout: float,
    shell: Literal["gevent"] | None = "gevent",
    call_timeout: float | None = None,
    payload_format: Literal["json"] | None = None,
    exceptions: ExceptionRegistry | None = None,
) -> Client:
    """A client for one command.

    Args:
        timeout: seconds that the command may take; connecting takes no longer either.
        shell: where it lives; None: in gevent unless ``RPCMQ_SHELL`` says threads.
        call_timeout: seconds for a call that names no timeout; default: ``timeout``.
        payload_format: tried first; default: from the environment.
        exceptions: classes that are rebuilt; default: the built-in ones.
    """
    import logging

    from gevent import get_hub

    from rpcmq.client import Client

    # Ctrl-C ends the command wherever it comes; gevent need not print where that was.
    hub: Any = get_hub()
    hub.NOT_ERROR = (*hub.NOT_ERROR, KeyboardInterrupt)

    # Failures are raised and reported once; of the log, only errors matter here.
    logging.basicConfig(level=logging.ERROR, format="rpcmq: %(message)s")
    return Client(
        state.router,
        shell=shell,
        exchange=state.exchange,
        key_file=state.key_file,
        format=payload_format,
        exceptions=exceptions,
        timeout=timeout if call_timeout is None else call_timeout,
        connect_timeout=max(0.01, min(5.0, timeout)),
    )
