"""Values as text."""

from __future__ import annotations

import pytest

from rpcmq.latency.report import units


@pytest.mark.parametrize(
    ("microseconds", "text"),
    [
        (None, ""),
        (0, "0 µs"),
        (7, "7 µs"),
        (12.34, "12.3 µs"),
        (999, "999 µs"),
        (999.6, "1.00 ms"),
        (1234, "1.23 ms"),
        (99_949, "99.9 ms"),
        (99_950, "100 ms"),
        (999_499, "999 ms"),
        (999_500, "1.00 s"),
        (29_900_000, "29.9 s"),
        (1_234_000_000, "1,234 s"),
    ],
)
def test_duration(microseconds: float | None, text: str) -> None:
    assert units.duration(microseconds) == text


def test_between_says_a_unit_once() -> None:
    assert units.between(11_900, 12_800) == "11.9–12.8 ms"  # noqa: RUF001
    assert units.between(0, 12_800) == "0 µs–12.8 ms"  # noqa: RUF001


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (59.25, "59 s"), (61, "1 min 1 s"), (3600, "1 h"), (14_399.25, "4 h"), (302_400, "3 d 12 h")],
)
def test_length(seconds: float, text: str) -> None:
    assert units.length(seconds) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0 %"), (1e-6, "<0.01 %"), (0.0031, "0.31 %"), (0.1234, "12.3 %"), (0.99999, "99.99 %"), (1, "100 %")],
)
def test_share_is_nothing_or_all_only_if_it_is(value: float, text: str) -> None:
    assert units.share(value) == text


def test_rates_and_sizes() -> None:
    assert units.rate(50, 0) == ""
    assert units.rate(1, 1000) == "<0.01/s"
    assert units.rate(41_200, 1000) == "41.2/s"
    assert units.rate(4e13, 1000) == "40.0 G/s"
    assert [units.short_count(number) for number in (9_999_999, 12_345_678)] == ["9,999,999", "12.3 M"]
    assert units.bytes_text(812) == "812 B"
    assert units.bytes_text(1566.7) == "1.53 KiB"


def test_span_says_a_day_once() -> None:
    assert units.span(0, 59) == "1970-01-01 00:00:00 to 00:00:59 UTC"
    assert units.span(0, 86_400) == "1970-01-01 00:00:00 to 1970-01-02 00:00:00 UTC"


def test_names_have_an_end_and_nothing_invisible() -> None:
    assert units.name(None) == ""
    assert units.name("a\u202eb\n", 40) == "a\\u202eb\\n"
    assert units.name("x" * 50, 10) == "x" * 9 + "…"
