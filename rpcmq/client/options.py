"""Options of a call or cast, and the defaults of a client and of topics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from rpcmq.client.arguments import check_seconds
from rpcmq.client.hedging import HedgeAfter, hedge_terms, refuse_hedge
from rpcmq.client.retry import Retry
from rpcmq.errors import UsageError
from rpcmq.payload.bounded_text import short_repr
from rpcmq.wire import Address
from rpcmq.wire.hedge import HedgeTerms

__all__ = ["CallOptions", "Defaults", "check_hedge"]

_SWITCHES = ("idempotent", "mandatory", "direct", "confirm")
_SECONDS = ("timeout", "sign_of_life", "ttl")


@dataclass(frozen=True, slots=True, kw_only=True)
class CallOptions:
    """The options that :class:`Client`'s verbs take as keywords. None: not said here.

    ``timeout`` is for all verbs; ``retry``, ``sign_of_life``, ``direct``, ``first_of``, ``hedge_after`` and
    ``exception_wins`` are for ``call``; ``confirm`` for ``cast`` and ``fanout_cast``; ``ttl`` for ``cast``;
    ``idempotent`` for ``call`` and ``cast``, ``mandatory`` for these and ``multicall``. A default that a verb does not
    take is left out, and so are default ``first_of`` and ``hedge_after`` for calls that are not idempotent, or direct.
    See the verbs for what they mean.

    Raises:
        UsageError: a value is of the wrong type or range.
    """

    timeout: float | None = None
    idempotent: bool | None = None
    mandatory: bool | None = None
    retry: Retry | int | bool | None = None
    sign_of_life: float | None = None
    direct: bool | None = None
    confirm: bool | None = None
    ttl: float | None = None
    first_of: int | None = None
    hedge_after: HedgeAfter | None = None
    exception_wins: bool | None = None

    def __post_init__(self) -> None:
        for name in _SECONDS:
            seconds = getattr(self, name)
            if seconds is not None:
                check_seconds(name, seconds)
        for name in _SWITCHES:
            switch = getattr(self, name)
            if switch is not None and not isinstance(switch, bool):
                raise UsageError(f"{name} must be True, False or None, not {short_repr(switch)}")
        if self.retry:
            Retry.of(self.retry)
        hedge_terms(self.first_of, self.hedge_after, self.exception_wins)

    @property
    def hedge(self) -> HedgeTerms | None:
        """The terms on which several consumers may have the call; None: they may not."""
        if not self.idempotent or self.direct:
            return None
        return hedge_terms(self.first_of, self.hedge_after, self.exception_wins)

    def or_else(self, defaults: CallOptions) -> CallOptions:
        """These options, and those of ``defaults`` where nothing is said here."""
        said: dict[str, Any] = {name: value for name in _NAMES if (value := getattr(self, name)) is not None}
        return replace(defaults, **said)


_NAMES = tuple(field.name for field in fields(CallOptions))


class Defaults:
    """The options of a client and of its topics, for where a call says nothing.

    Args:
        options: for all topics.
        topics: for some topics, given as for :meth:`Client.call`, and their servers; they come first.
        exchange: of topics that are given by name.

    Raises:
        UsageError: something is of the wrong type.
    """

    def __init__(
        self, options: CallOptions | None, topics: Mapping[str | Address, CallOptions] | None, exchange: str
    ) -> None:
        self._exchange = exchange
        self._options = _checked("options", options) if options is not None else CallOptions()
        self._topics: dict[tuple[str, str], CallOptions] = {}
        for topic, each in (topics or {}).items():
            self._topics[self._names(topic)] = _checked(f"topic_options[{short_repr(topic)}]", each).or_else(
                self._options
            )
        self.said = bool(self._topics) or self._options != CallOptions()

    def of(self, topic: str | Address) -> CallOptions:
        """The options of ``topic``; those of ``compute`` are also those of ``compute.node-7``, if that has none."""
        if not self._topics:
            return self._options
        exchange, name = self._names(topic)
        while name:
            found = self._topics.get((exchange, name))
            if found is not None:
                return found
            name = name.rpartition(".")[0]
        return self._options

    def _names(self, topic: str | Address) -> tuple[str, str]:
        if isinstance(topic, Address):
            return topic.exchange, f"{topic.topic}.{topic.server}" if topic.server else topic.topic
        if not isinstance(topic, str):
            raise UsageError(f"topic must be a str or an Address, not {type(topic).__name__}: {short_repr(topic)}")
        return self._exchange, topic


def check_hedge(options: CallOptions, defaults: Defaults, topic: str | Address) -> None:
    """Refuse ``options`` of a call that ask for several consumers where the call can have only one.

    Raises:
        UsageError: it is not idempotent, or direct, by itself or by ``defaults``.
    """
    if hedge_terms(options.first_of, options.hedge_after, options.exception_wins) is not None:
        all_of_them = options.or_else(defaults.of(topic)) if defaults.said else options
        refuse_hedge(all_of_them.idempotent or all_of_them.retry, all_of_them.direct)


def _checked(name: str, options: object) -> CallOptions:
    if not isinstance(options, CallOptions):
        raise UsageError(f"{name} must be a CallOptions, not {short_repr(options)}")
    return options
