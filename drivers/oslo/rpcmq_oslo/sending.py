"""Sending: calls, casts, fanouts and notifications, with their timeouts and retries."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from oslo_messaging import MessageDeliveryFailure, MessageUndeliverable, MessagingTimeout

from rpcmq import Address
from rpcmq.errors import CallTimeout, NoConsumer, Overloaded, RouterUnreachable, RpcError
from rpcmq_oslo.connections import FOREVER, SharedConnection
from rpcmq_oslo.failures import oslo_error
from rpcmq_oslo.messages import request, result_of

__all__ = ["Outgoing", "Sending"]

T = TypeVar("T")

#: Seconds for which an attempt waits for the router, and between attempts where a queue is full.
_ATTEMPT: Final = 1.0
#: Seconds after which a topic is declared anew: its router may be another one.
_DECLARED_FOR: Final = 30.0
#: Topics of notifications that are remembered as declared.
_MOST_DECLARED: Final = 10_000


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A message on its way out.

    Attributes:
        target: as the application gave it, for errors.
        address: its address.
        context, message: as the application gave them; they are not changed.
        timeout: seconds for all of it; None: for ever.
        retry: attempts beside the first one to hand it to the router; None and negative: any number.
        at_least_once: raise MessageUndeliverable where nobody listens and nobody has it.
    """

    target: Any
    address: Address
    context: Mapping[str, Any]
    message: Mapping[str, Any]
    timeout: float | None = None
    retry: int | None = None
    at_least_once: bool = False

    def __str__(self) -> str:
        name = self.message.get("method") or self.message.get("event_type") or "message"
        return f"{name} to {self.address}"

    @property
    def attempts(self) -> int | None:
        """All attempts to hand it to the router; None: any number."""
        return None if self.retry is None or self.retry < 0 else self.retry + 1


class Sending:
    """Sends over a shared connection.

    Args:
        connection: to the routers.
        allowed_modules: those whose remote exceptions are raised as themselves.
    """

    def __init__(self, connection: SharedConnection, allowed_modules: list[str]) -> None:
        self._connection = connection
        self._allowed_modules = allowed_modules
        self._declared: dict[Address, float] = {}

    def call(self, outgoing: Outgoing, longest_silence: float | None) -> Any:
        """Ask one listener, and return what its method returned.

        Args:
            longest_silence: seconds after which the call is given up without a heartbeat of the server; None: not.

        Raises:
            MessagingTimeout: there is no answer; the text says why.
            MessageDeliveryFailure: all attempts to hand it to the router are used up.
            MessageUndeliverable: nobody listens, and it was to be told so.
            Exception: what the method raised.
        """

        def ask(seconds: float) -> Any:
            return self._connection.client.call(
                outgoing.context,
                outgoing.address,
                request(outgoing.message),
                seconds,
                mandatory=outgoing.at_least_once,
                sign_of_life=min(longest_silence, FOREVER) if longest_silence else None,
            )

        return result_of(self._send(outgoing, ask), self._allowed_modules)

    def cast(self, outgoing: Outgoing) -> None:
        """Tell one listener; return when the router has it.

        It goes to another listener if the one that has it is lost before it has acknowledged it.

        Raises:
            MessagingTimeout, MessageDeliveryFailure, MessageUndeliverable: as :meth:`call`.
        """

        def tell(seconds: float) -> None:
            self._connection.client.cast(
                outgoing.context,
                outgoing.address,
                request(outgoing.message),
                confirm=True,
                idempotent=True,
                mandatory=outgoing.at_least_once,
                timeout=seconds,
            )

        self._send(outgoing, tell)

    def fanout(self, outgoing: Outgoing) -> None:
        """Tell all listeners of this moment; return when the router has it.

        Raises:
            MessagingTimeout, MessageDeliveryFailure: as :meth:`call`.
            MessageUndeliverable: as :meth:`call`.
        """

        def tell(seconds: float) -> int:
            return self._connection.client.fanout_cast(
                outgoing.context, outgoing.address, request(outgoing.message), confirm=True, timeout=seconds
            )

        if not self._send(outgoing, tell) and outgoing.at_least_once:
            raise _undeliverable(outgoing, NoConsumer(f"nobody listens to {outgoing.address}"))

    def notify(self, outgoing: Outgoing) -> None:
        """Give a notification to the router, which keeps it also where nobody has listened yet.

        Raises:
            MessagingTimeout, MessageDeliveryFailure: as :meth:`call`.
        """
        now = time.monotonic()
        if now - self._declared.get(outgoing.address, -_DECLARED_FOR) >= _DECLARED_FOR:
            client = self._connection.client
            self._send(outgoing, lambda seconds: client.declare(outgoing.address, timeout=min(seconds, FOREVER)))
            if len(self._declared) >= _MOST_DECLARED:
                self._declared.clear()
            self._declared[outgoing.address] = now
        self.cast(outgoing)

    def _send(self, outgoing: Outgoing, send: Callable[[float], T]) -> T:
        """Send within the time and the attempts of ``outgoing``; only what the router has not is sent again."""
        deadline = time.monotonic() + min(FOREVER if outgoing.timeout is None else outgoing.timeout, FOREVER)
        attempts = outgoing.attempts
        if attempts is not None:
            self._await_router(outgoing, attempts * _ATTEMPT, deadline)
        else:
            self._connect(outgoing, deadline)
        tried = 0
        reason = f"nothing was left of its {outgoing.timeout} s, and it was not sent"
        # Whole milliseconds, for the texts of errors.
        while (left := round(deadline - time.monotonic(), 3)) > 0:
            try:
                return send(left)
            except NoConsumer as error:
                if outgoing.at_least_once:
                    raise _undeliverable(outgoing, error) from error
                raise oslo_error(error, str(outgoing)) from error
            except Overloaded as error:
                tried += 1
                pause = min(_ATTEMPT, float(error.details.get("retry_after", 0.1)))
                if attempts is not None and tried >= attempts:
                    raise MessageDeliveryFailure(f"{outgoing}: {error} (after {tried} attempts)") from error
                reason = str(error)
                if time.monotonic() + pause >= deadline:
                    raise MessagingTimeout(f"{outgoing}: {error}") from error
                time.sleep(pause)
            except RpcError as error:
                raise oslo_error(error, str(outgoing)) from error
        raise MessagingTimeout(f"{outgoing}: {reason}")

    def _connect(self, outgoing: Outgoing, deadline: float) -> None:
        """Wait for the first connection of this process.

        Raises:
            MessagingTimeout: there was none within the time.
            RefusedByRouter: as :meth:`SharedConnection.connect`.
        """
        try:
            self._connection.connect(deadline - time.monotonic())
        except RouterUnreachable as error:
            raise MessagingTimeout(f"{outgoing}: it was not sent: {error}") from error

    def _await_router(self, outgoing: Outgoing, seconds: float, deadline: float) -> None:
        """Wait for the router, where the attempts are counted: for the ``seconds`` that they would take.

        Raises:
            MessageDeliveryFailure: it is not there.
            MessagingTimeout: it is not there, and the time is over before the attempts are.
        """
        left = deadline - time.monotonic()
        try:
            self._connection.connect(min(seconds, left))
            self._connection.client.connect(max(0.001, min(seconds, left)))
        except (RouterUnreachable, CallTimeout) as error:
            if left < seconds:
                raise MessagingTimeout(f"{outgoing}: it was not sent: {error}") from error
            raise MessageDeliveryFailure(
                f"{outgoing}: it was not sent, with retry={outgoing.retry}: {error}"
            ) from error


def _undeliverable(outgoing: Outgoing, error: NoConsumer) -> Exception:
    target = outgoing.target
    key = f"{target.topic}.{target.server}" if target.server and not target.fanout else target.topic
    undeliverable: Exception = MessageUndeliverable(error, outgoing.address.exchange, key, outgoing.message)
    undeliverable.args = (str(error),)
    return undeliverable
