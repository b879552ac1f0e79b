"""The cases against rpcmq's proxy as a user starts it, and what their runner says of an origin without a proxy."""

from __future__ import annotations

from argparse import ArgumentTypeError
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.proxy.conformance.case import Case, Level
from tests.proxy.conformance.cases import GROUPS
from tests.proxy.conformance.peers import peer, running
from tests.proxy.conformance.runner import run_case, run_cases
from tests.proxy.conformance.table import passed, table
from tests.proxy.conformance.wire import Origin

CASES = [case for cases in GROUPS.values() for case in cases]
#: Optional cases that rpcmq's proxy leaves undone, with the reason.
UNDONE = {
    "Via to the client": "RFC 9110 section 7.6.3 leaves that to a gateway",
}
#: Cases that tell nothing of it: a method that nobody knows is refused.
UNTOLD = {"FROB invalidates"}


@pytest.fixture
def origin() -> Iterator[Origin]:
    made = Origin()
    yield made
    made.close()


def named(name: str) -> Case:
    return next(case for case in CASES if case.name == name)


def test_each_case_has_a_name_of_its_own_within_its_group() -> None:
    for cases in GROUPS.values():
        assert len({case.name for case in cases}) == len(cases)
    assert len(CASES) > 200


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("max-age", "step 1: the origin was asked"),
        ("no-store", ""),
        ("Age in a reused response", "step 1: the origin was asked"),
        ("a 304 for the cache is not the client's", ""),
        ("If-None-Match", "step 1: the response of step 1 in place of 0"),
        ("only-if-cached with nothing", "step 0: the origin was asked"),
        ("Via to the origin", "step 0: the request to the origin lacks Via"),
        ("fields of the connection are not passed on", "step 0: the response has X-Hop"),
    ],
)
def test_an_origin_without_a_proxy_caches_nothing(origin: Origin, name: str, problem: str) -> None:
    assert run_case(named(name), ("127.0.0.1", origin.port), origin).problem == problem


@pytest.mark.long
@pytest.mark.integration
@pytest.mark.timeout(300)
def test_rpcmqs_proxy_does_all_that_is_required(origin: Origin, tmp_path: Path) -> None:
    with running("rpcmq", tmp_path, origin.port) as address:
        results = run_cases(CASES, address, origin)
    problems = {result.case.name: result.problem for result in results if not result.is_passed}
    assert set(problems) == UNDONE.keys() | UNTOLD, problems
    done, count = passed(results, Level.REQUIRED)
    assert done == count > 90 and f"**{count} of {count}, " in table({"rpcmq": results})


def test_a_peer_is_named_in_any_case_and_a_wrong_name_says_which_there_are() -> None:
    assert peer("RPCMQ") == "rpcmq"
    with pytest.raises(ArgumentTypeError, match=r"no peer is named 'varnsh'; known: rpcmq, nginx, Varnish, "):
        peer("varnsh")
