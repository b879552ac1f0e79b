"""Servers that are slow, and servers that only look so."""

from __future__ import annotations

import numpy as np
import pytest

from rpcmq.latency.analysis.outliers import outliers, standings
from rpcmq.latency.analysis.series import Series
from tests.latency.analysis.samples import lognormal, series


def pool(chance: np.random.Generator, servers: int, counts: dict[str, int], slow: dict[str, float]) -> list[Series]:
    """Servers that are all alike, ``slow`` ones apart; the methods differ by 100 times."""
    return [
        series(
            lognormal(chance, count, median=1000 if method == "list" else 100_000) * slow.get(f"node-{n}", 1.0),
            method,
            server=f"node-{n}",
        )
        for n in range(servers)
        for method, count in counts.items()
    ]


def test_servers_that_are_alike_are_no_outliers() -> None:
    chance = np.random.default_rng(1)
    # One pool of a hundred may have one.
    assert sum(bool(outliers(pool(chance, 20, {"list": 500, "boot": 50}, {}))) for _ in range(40)) <= 2


def test_a_slow_server_is_found_with_what_it_should_be() -> None:
    chance = np.random.default_rng(2)
    [found] = outliers(pool(chance, 10, {"list": 2000, "boot": 500}, {"node-3": 1.5}))
    assert (found.server, found.records, found.topics) == ("node-3", 2500, (("", "compute"),))
    assert found.expected == pytest.approx(125, rel=0.05)
    # 1.5 times as slow: above the others' p95 is what was above 1.645 - ln 1.5 = 1.24 deviations, 10.8 %.
    assert found.above == pytest.approx(0.108 * 2500, rel=0.15)
    assert found.p_value < 1e-6
    assert found.worst.key["method"] == "list"
    assert found.worst.p95 / found.worst.others_p95 == pytest.approx(1.5, rel=0.2)


def test_a_server_with_heavy_methods_is_not_blamed() -> None:
    chance = np.random.default_rng(3)
    servers = pool(chance, 9, {"list": 2000, "boot": 20}, {})
    # Node-9 gets nearly all of the calls that take a hundred times as long, and is as quick with each as the others.
    servers += [
        series(lognormal(chance, 50, 1000), "list", server="node-9"),
        series(lognormal(chance, 2000, 100_000), "boot", server="node-9"),
    ]
    p95 = {each.key["server"]: each.service.quantile(0.95) for each in servers if each.key["method"] == "boot"}
    assert p95["node-9"]
    assert outliers(servers) == []

    # If it is slow with them it is blamed, whatever else it serves.
    servers[-1] = series(lognormal(chance, 2000, 100_000) * 2, "boot", server="node-9")
    [found] = outliers(servers)
    assert (found.server, found.worst.key["method"]) == ("node-9", "boot")


def test_a_slow_server_with_most_of_the_records_does_not_hide_itself() -> None:
    chance = np.random.default_rng(4)
    servers = [series(lognormal(chance, 20_000) * 2, "boot", server="big")]
    servers += [series(lognormal(chance, 500), "boot", server=f"small-{n}") for n in range(4)]
    # The p95 of all is nearly its own: only without it does one see.
    assert [each.server for each in outliers(servers)] == ["big"]


def test_a_difference_that_is_sure_and_small_is_not_reported() -> None:
    chance = np.random.default_rng(5)
    servers = pool(chance, 5, {"list": 100_000}, {"node-1": 1.03})
    assert outliers(servers) == []
    # It would be sure: 5.4 % of 100,000 are above, of 5.0 %.
    slow = next(each for each in standings(servers) if each.key["server"] == "node-1")
    assert slow.above - slow.records * slow.share > 3 * slow.variance**0.5


def test_durations_that_are_all_alike_accuse_nobody() -> None:
    servers = [series([1000] * 500, "boot", server=f"node-{n}") for n in range(4)]
    assert outliers(servers) == []
    servers.append(series([1050] * 500, "boot", server="node-4"))
    assert outliers(servers) == []
    servers[-1] = series([2000] * 500, "boot", server="node-4")
    [found] = outliers(servers)
    assert (found.server, found.above) == ("node-4", 500)


def test_the_expectation_is_the_true_share_above_the_bucket() -> None:
    # A third of the records has the largest duration of all: nothing is above it, and 5 % cannot be expected.
    servers = [series([1000] * 200 + [5000] * 100, "boot", server=f"node-{n}") for n in range(5)]
    for each in standings(servers):
        assert (each.above, each.share) == (0, 1 / 1201)
    assert outliers(servers) == []


def test_one_server_alone_few_records_and_nobody_have_no_equals() -> None:
    chance = np.random.default_rng(6)
    alone = [series(lognormal(chance, 1000) * 9, "boot", server="node-1")]
    assert outliers(alone) == []
    assert outliers([*alone, series([100] * 19, "boot", server="node-2")]) == []
    nobody = Series({"exchange": "", "topic": "compute", "method": "boot", "server": None}, None, {"timeout": 500})
    assert outliers([*alone, nobody]) == []
    assert outliers([]) == []


def test_records_whose_server_is_not_known_are_no_server() -> None:
    """A router of a mesh does not know which process another router gave a call that ended without a word."""
    chance = np.random.default_rng(9)
    servers = pool(chance, 4, {"boot": 2000}, {})
    servers.append(series(lognormal(chance, 40, 100_000) * 50, "boot", server=""))
    assert outliers(servers) == []
    assert {each.key["server"] for each in standings(servers)} == {f"node-{n}" for n in range(4)}


def test_of_few_others_less_is_sure() -> None:
    # The same numbers above the mark; with few others the mark itself is not well known.
    def slow_among(count: int) -> list[str]:
        others = series([1000] * int(0.95 * count) + [3000] * int(0.05 * count), "boot", server="node-2")
        slow = series([1000] * 170 + [4000] * 30, "boot", server="node-1")
        return [each.server for each in outliers([slow, others])]

    assert slow_among(10_000) == ["node-1"]
    assert slow_among(20) == []
