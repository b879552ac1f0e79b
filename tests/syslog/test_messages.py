"""Messages of RFC 5424; the first ones are shaped as the examples of its section 6.5."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rpcmq.syslog.messages import FACILITIES, SEVERITIES, MalformedMessage, SyslogMessage, parse_message

HEADER = b"<34>1 2003-10-11T22:14:15.003Z mymachine.example.com su 77 ID47 "


def test_a_message_without_structured_data() -> None:
    message = parse_message(HEADER + b"- \xef\xbb\xbf'su root' failed for \xc3\xa4")
    header = ("auth", "crit", "2003-10-11T22:14:15.003Z", "mymachine.example.com", "su", "77", "ID47")
    assert message == SyslogMessage(*header, {}, "'su root' failed for ä")


def test_what_is_not_given_is_none() -> None:
    assert parse_message(b"<0>1 - - - - - -") == SyslogMessage("kern", "emerg")


def test_structured_data_have_escapes_and_parameters_that_come_twice() -> None:
    data = rb'[a@1 ip="1" ip="2" x="q\" b\\ e\] \n"][b@1]'
    message = parse_message(HEADER + data + b" text")
    assert message.structured_data == {"a@1": {"ip": ["1", "2"], "x": ['q" b\\ e] \\n']}, "b@1": {}}
    assert message.text == "text"


def test_text_that_is_not_utf_8_is_escaped() -> None:
    assert parse_message(HEADER + b"- \xff\x00").text == "\\xff\x00"


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "does not begin with a priority"),
        (b"<34>Oct 11 22:14:15 mymachine su: 'su root' failed", "does not begin with a priority and a version"),
        (b"<192>1 - - - - - -", "its priority is 192; the highest is 191"),
        (b"<034>1 - - - - - -", "does not begin with a priority"),
        (b"<34>2 - - - - - -", "its version is 2; only 1 is known"),
        (b"<34>1 - - -", "it ends before its process_id"),
        (b"<34>1 - - - - -", "it ends before its structured data"),
        (b"<34>1 2003-02-30T22:14:15Z - - - - -", "its time '2003-02-30T22:14:15Z' is none of RFC 3339"),
        (b"<34>1 2003-10-11 - - - - -", "its time '2003-10-11' is none"),
        (b"<34>1 - " + b"h" * 256 + b" - - - -", "its host has 256 bytes; at most 255 are allowed"),
        (b"<34>1 - - a\xc3\xa4 - - -", "its app .* is not of printable ASCII"),
        (b"<34>1 -  - - - -", "its host '' is not of printable ASCII"),
        (HEADER + b"[a", "its structured data '\\[a' are malformed"),
        (HEADER + b'[a b="]"]', "its structured data .* are malformed"),
        (HEADER + b"[a][", "its structured data '\\[' are malformed"),
        (HEADER + b"-text", "no space between its structured data and its text"),
    ],
)
def test_what_is_no_message_is_refused_with_the_reason(data: bytes, problem: str) -> None:
    with pytest.raises(MalformedMessage, match=problem):
        parse_message(data)


@given(st.binary(max_size=200))
def test_no_bytes_raise_anything_else(data: bytes) -> None:
    for each in (data, HEADER + data):
        try:
            parse_message(each)
        except MalformedMessage as error:
            assert str(error)


names = st.one_of(st.none(), st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=32))
values = st.lists(st.text(st.characters(codec="utf-8"), max_size=20), min_size=1, max_size=3)
sd_names = st.text(
    st.characters(min_codepoint=33, max_codepoint=126, exclude_characters='=]"'), min_size=1, max_size=32
)


@given(
    st.sampled_from(range(len(FACILITIES))),
    st.sampled_from(range(len(SEVERITIES))),
    names.filter(lambda name: name != "-"),
    st.dictionaries(sd_names, st.dictionaries(sd_names, values, max_size=2), max_size=3),
    st.text(st.characters(codec="utf-8"), max_size=50).filter(lambda text: not text.startswith("\ufeff")),
)
def test_what_is_written_by_the_grammar_is_read_back(
    facility: int, severity: int, name: str | None, data: dict[str, dict[str, list[str]]], text: str
) -> None:
    def escaped(value: str) -> str:
        return value.replace("\\", r"\\").replace('"', r"\"").replace("]", r"\]")

    elements = "".join(
        f"[{element}" + "".join(f' {key}="{escaped(one)}"' for key in found for one in found[key]) + "]"
        for element, found in data.items()
    )
    line = f"<{facility * 8 + severity}>1 - {name or '-'} {name or '-'} - - {elements or '-'} {text}"
    message = parse_message(line.encode())
    assert message == SyslogMessage(
        FACILITIES[facility], SEVERITIES[severity], None, name, name, None, None, data, text
    )
