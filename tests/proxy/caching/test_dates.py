"""Dates of RFC 9110 section 5.6.7."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rpcmq.proxy.caching import dates
from rpcmq.proxy.caching.dates import format_date, parse_date

NOW = 1_800_000_000.0  # 15 Jan 2027
THE_EXAMPLE = 784111777.0


@pytest.mark.parametrize(
    "text",
    [
        "Sun, 06 Nov 1994 08:49:37 GMT",
        "Sunday, 06-Nov-94 08:49:37 GMT",
        "Sun Nov  6 08:49:37 1994",
        "sun, 06 nov 1994 08:49:37 gmt",  # RFC 9111 section 4.2: in any case
    ],
)
def test_the_three_formats(text: str) -> None:
    assert parse_date(text, NOW) == THE_EXAMPLE


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "0",
        "-1",
        "784111777",
        "Sun, 06 Nov 1994 08:49:37 EST",
        "Sun, 06 Nov 1994 08:49:37 +0000",
        "Sun, 06 Nov 1994 08:49:37",
        "Sun, 6 Nov 1994 08:49:37 GMT",
        "Sun, 31 Feb 1994 08:49:37 GMT",
        "Sun, 06 Nov 1994 25:49:37 GMT",
        "Sun, 06 Nov 0000 08:49:37 GMT",
        " Sun, 06 Nov 1994 08:49:37 GMT",
        "Sun, 06 Nov 1994 08:49:37 GMT, Sun, 06 Nov 1994 08:49:38 GMT",
        "Sun, 06-Nov-1994 08:49:37 GMT",
        "1Sun, 06 Nov 1994 08:49:37 GMT",
    ],
)
def test_other_texts_are_no_dates(text: str | None) -> None:
    assert parse_date(text, NOW) is None


@pytest.mark.parametrize(("digits", "year"), [("26", 2026), ("77", 2077), ("78", 1978), ("99", 1999)])
def test_two_digits_are_a_year_within_the_next_fifty(digits: str, year: int) -> None:
    date = parse_date(f"Thursday, 01-Jan-{digits} 00:00:00 GMT", NOW)
    assert date is not None and format_date(int(date))[12:16] == str(year)


def test_a_leap_second_is_the_one_before() -> None:
    assert parse_date("Sat, 31 Dec 2016 23:59:60 GMT", NOW) == 1483228799.0


@given(st.integers(0, 253402300799))
def test_a_date_that_was_written_is_read(second: int) -> None:
    assert parse_date(format_date(second), NOW) == second


@given(st.text(max_size=40))
def test_any_text_is_a_date_or_not(text: str) -> None:
    parse_date(text, NOW)


def test_a_long_text_is_no_date_and_is_not_remembered() -> None:
    before = dates._parse.cache_info().currsize
    assert parse_date("Sun, 06 Nov 1994 08:49:37 GMT" + " " * 30_000, NOW) is None
    assert dates._parse.cache_info().currsize == before
