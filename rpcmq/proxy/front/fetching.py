"""Requests from a front end to fetchers, through the routers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from time import time
from typing import Any

import gevent

from rpcmq import Address, Client, stream
from rpcmq.errors import (
    CallTimeout,
    LinkLost,
    NoConsumer,
    Overloaded,
    PayloadError,
    RemoteError,
    RouterUnreachable,
    RpcError,
)
from rpcmq.proxy.answers import Answer, share_key
from rpcmq.proxy.fetcher.fetch import request_lines
from rpcmq.proxy.front.fetchers import KnownFetchers
from rpcmq.proxy.http.errors import TruncatedBody
from rpcmq.proxy.messages import ResponseHead
from rpcmq.proxy.settings import FetchSettings

__all__ = ["STREAM_BYTES", "Fetching", "NoResponse", "OriginAnswer"]

_SAFE = frozenset(("GET", "HEAD", "OPTIONS"))
#: Seconds beyond those that a fetcher takes at most.
_MARGIN = 5.0
#: Longest wait for a fetcher where there is none (seconds).
_START_SECONDS = 3.0
#: Longest wait for a piece of a body (seconds). Origins that stall are given up by their fetcher before.
_PIECE_SECONDS = 90.0
_DROP_SECONDS = 5.0
#: Items of a stream that a caller of rpcmq lets come before it has taken them.
_STREAM_WINDOW = 16
#: Bytes of a response that may be on their way to a client, much memory or little being free.
STREAM_BYTES = (_STREAM_WINDOW * 256 * 1024, _STREAM_WINDOW * 16 * 1024)


class NoResponse(Exception):
    """No origin has answered.

    Attributes:
        status: 502, 503 where there is too much to do, or 504 where it took too long.
    """

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class OriginAnswer:
    """A response of an origin.

    Attributes:
        head: its head.
        first: the beginning of its body, or all of it.
        is_whole: whether ``first`` is all.
        has_end: False: nobody can tell whether the body is complete, because the connection's end ends it.
        requested_at: time of the wall clock when it was sent to the origin, at the latest.
        responded_at: time of the wall clock at which it came.
    """

    __slots__ = (
        "_client", "_rest", "_server", "_token", "_topic", "first", "has_end", "head", "is_whole", "requested_at",
        "responded_at",
    )  # fmt: skip

    def __init__(self, client: Client, topic: str, answer: Answer, requested_at: float) -> None:
        self.head = ResponseHead(answer.status, answer.headers, answer.reason)
        self.first = answer.body
        self.is_whole = not answer.token
        self.has_end = not answer.ends_with_connection
        self.requested_at = requested_at - answer.lead
        self.responded_at = time()
        self._client = client
        self._topic = topic
        self._server = answer.server
        self._token = answer.token
        self._rest: Iterator[bytes] | None = None

    def body(self, stream_bytes: int = STREAM_BYTES[0]) -> Iterator[bytes]:
        """Yield all of the body.

        Args:
            stream_bytes: that may be on their way.

        Raises:
            TruncatedBody: the rest does not come.
        """
        if not self.is_whole:
            args = {"token": self._token, "most": stream_bytes // _STREAM_WINDOW}
            address = Address(self._topic, self._server)
            self._rest = self._client.multicall(None, address, {"method": "rest", "args": args}, _PIECE_SECONDS)
        if self.first:
            yield self.first
        if self._rest is None:
            return
        try:
            with closing(self._rest) as rest:  # type: ignore[type-var]  # the iterator of a multicall has close()
                yield from rest
        except (CallTimeout, LinkLost, NoConsumer, Overloaded, RemoteError, RouterUnreachable) as error:
            raise TruncatedBody(f"the fetcher is lost within the body: {error}") from None
        except OSError as error:
            raise TruncatedBody(str(error)) from None

    def close(self) -> None:
        """Take no more of the body."""
        if self._rest is not None:
            self._rest.close()  # type: ignore[attr-defined]  # as above
        elif not self.is_whole:
            gevent.spawn(self._drop)

    def _drop(self) -> None:
        try:
            message = {"method": "drop", "args": {"token": self._token}}
            self._client.call(None, Address(self._topic, self._server), message, _DROP_SECONDS)
        except RpcError:
            pass  # the fetcher drops it by itself a little later


class _Upload:
    """A body that comes in pieces, for one fetcher after the other as long as none has begun to read it.

    A call that ends closes the iterator that it was given; these iterators leave the pieces as they are until the first
    one is read.
    """

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces = pieces
        #: Whether a piece was asked for.
        self.has_begun = False

    def __iter__(self) -> Iterator[bytes]:
        self.has_begun = True
        yield from self._pieces


class Fetching:
    """Sends requests to fetchers.

    A request that is safe goes to another fetcher where one is lost; each other one is sent once.
    """

    def __init__(self, client: Client, settings: FetchSettings, known: KnownFetchers) -> None:
        self._client = client
        self._settings = settings
        self._known = known
        self._is_hedged = settings.hedge_after > 0 or settings.first_of > 1
        #: Requests that were sent, and those that had no response.
        self.sent = self.failed = 0

    def ask(
        self,
        site: str,
        method: str,
        target: str,
        fields: Sequence[tuple[str, str]],
        body: bytes | Iterable[bytes],
        cache_key: str = "",
        share_mark: str = "",
    ) -> OriginAnswer:
        """Return the response of an origin of ``site``.

        Args:
            fields: as they go to the origin.
            body: in one piece, or as it comes; errors of the iterator are raised.
            cache_key: fetchers may answer requests for the same key with one response; empty: they may not.
            share_mark: those of the same mark only.

        Raises:
            NoResponse: there is none.
        """
        self.sent += 1
        args: dict[str, Any] = {"site": site, "method": method, "lines": request_lines(method, target, fields)}
        upload = None if isinstance(body, bytes) else _Upload(body)
        if upload is not None:
            args["body"] = stream(upload)
        elif body:
            args["body"] = body
        is_safe = method in _SAFE
        if is_safe and self._is_hedged and "body" not in args:
            requested_at = time()
            return OriginAnswer(self._client, self._settings.topic, self._hedged(args), requested_at)
        if cache_key:
            args["share"] = share_key(share_mark, method, target, fields)
        requested_at = time()
        answer = Answer.of_list(self._call({"method": "fetch", "args": args}, is_safe, cache_key, upload))
        if answer.failed:
            self.failed += 1
            raise NoResponse(answer.failed, answer.reason)
        return OriginAnswer(self._client, self._settings.topic, answer, requested_at)

    def _hedged(self, args: dict[str, Any]) -> Answer:
        """Ask several fetchers; the first response of an origin counts, and a failure only if all have failed.

        Raises:
            NoResponse: there is none.
        """
        settings = self._settings
        message = {"method": "fetch_or_raise", "args": args}
        try:
            return Answer.of_list(
                self._client.call(
                    None, Address(settings.topic), message, settings.seconds + _MARGIN, idempotent=True, mandatory=True,
                    first_of=settings.first_of if settings.first_of > 1 else None,
                    hedge_after=settings.hedge_after or None, exception_wins=False,
                )
            )  # fmt: skip
        except CallTimeout:
            problem = NoResponse(504, "no fetcher answered in time")
        except (ConnectionError, TimeoutError) as error:
            # As a fetcher raises them; the calls above have none of these.
            problem = NoResponse(504 if isinstance(error, TimeoutError) else 502, str(error))
        except RpcError as error:
            problem = NoResponse(502, f"the fetchers failed: {error}")
        self.failed += 1
        raise problem

    def _call(self, message: dict[str, Any], is_safe: bool, cache_key: str, upload: _Upload | None) -> list[Any]:
        topic = self._settings.topic
        server = self._known.choose(cache_key) if cache_key else ""
        targets = [Address(topic, server)] if server else []
        for target in (*targets, Address(topic), Address(topic)):
            try:
                return self._call_at(target, message, is_safe)
            except NoConsumer as error:
                problem = NoResponse(502, f"there is no fetcher: {error}")
                self._known.note(target.server, is_alive=False)
                # One that is being started, or started again, is there soon.
                if not target.server and not self._known.wait(_START_SECONDS):
                    break
            except LinkLost as error:
                problem = NoResponse(502, f"the fetcher was lost: {error}")
                if not is_safe:
                    break
            except Overloaded as error:
                problem = NoResponse(502, f"the fetchers have too much to do: {error}")
            except CallTimeout:
                problem = NoResponse(504, "no fetcher answered in time")
                break
            except RouterUnreachable as error:
                problem = NoResponse(502, f"there is no router: {error}")
                break
            except (PayloadError, RemoteError) as error:
                problem = NoResponse(502, f"the fetcher failed: {error}")
                break
            if upload is not None and upload.has_begun:
                break  # the next one would have the rest of the body for all of it
        self.failed += 1
        raise problem

    def _call_at(self, target: Address, message: dict[str, Any], is_safe: bool) -> list[Any]:
        found: list[Any] = self._client.call(
            None, target, message, self._settings.seconds + _MARGIN, idempotent=is_safe, mandatory=True
        )
        return found
