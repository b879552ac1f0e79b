"""A finding, in the form that ``rpcmq doctor`` takes from outside, and the advice for what a router has said."""

from __future__ import annotations

from typing import Final

__all__ = ["FAIL", "OK", "WARN", "Finding", "advice_for"]

#: Level, subject, observation, advice (empty where there is nothing to do).
Finding = tuple[str, str, str, str]

OK: Final = "ok"
WARN: Final = "warning"
FAIL: Final = "fail"

#: Words of an error -> what to do about it; the first one that is found.
_ADVICE: Final = {
    "does not resolve": "correct the name in transport_url, or the name service of this host",
    "nothing listens": "start the router there (rpcmq router --config ...), or correct host and port in transport_url: "
    "routers listen on 7700 unless told otherwise, a RabbitMQ on 5672",
    "no answer": "see that the router runs, that a firewall lets its port through, and that the port is its own",
    "may require CURVE": "set key_file in [oslo_messaging_rpcmq] (rpcmq keys add makes one); if a RabbitMQ listens at "
    "that port, correct the port",
    "does not accept the key": "at the router: rpcmq keys list; then rpcmq keys add for the public key of key_file",
    "may not be its key": "take the line `router` of key_file from that router (its router.key has it as `public`); in "
    "[routers] of key_file urls are written as in transport_url: localhost is not 127.0.0.1; or leave key_file out if "
    "the router runs without keys",
    "has no right to": "add the right to the key's file in authorized/ at the routers: a service needs serve, call, "
    "cast and fanout in its exchange; if that is another one than was tried here, say --exchange; a key with rights to "
    "some topics only needs them for the topics of the doctor as well: 'rpcmq-doctor.#' and 'rpcmq-doctor:info'",
    "no consumer": "see by rpcmq mesh whether all routers are linked",
}


def advice_for(error: str, otherwise: str) -> str:
    """Return what to do about ``error``, the text of an exception."""
    return next((todo for words, todo in _ADVICE.items() if words in error), otherwise)
