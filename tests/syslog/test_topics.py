"""Topics of events."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rpcmq.core.common.topic_patterns import split_words
from rpcmq.syslog.messages import SyslogMessage
from rpcmq.syslog.settings import SyslogSettings
from rpcmq.syslog.topics import is_topic_template, topic_of

DEFAULT = SyslogSettings().event.topic


def test_a_field_is_a_word_and_a_host_as_many_as_its_name_has() -> None:
    message = SyslogMessage("auth", "err", None, "node-3.example.org", "my.app/1*", "77", None)
    assert topic_of(message, DEFAULT) == "syslog.auth.err.my_app_1_.node-3.example.org"
    assert topic_of(message, "logs.{message_id}.{process_id}") == "logs.-.77"


def test_what_is_not_given_is_a_dash() -> None:
    assert topic_of(SyslogMessage("kern", "info"), DEFAULT) == "syslog.kern.info.-.-"


@given(st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=255))
def test_every_host_gives_a_topic_that_can_be(host: str) -> None:
    message = SyslogMessage("local7", "warning", None, host, "a" * 48)
    assert split_words(topic_of(message, DEFAULT).encode())


@pytest.mark.parametrize("text", ["a.{host}", "syslog", "{facility}"])
def test_templates(text: str) -> None:
    assert is_topic_template(text)


@pytest.mark.parametrize("text", ["", "a..b", "{hst}", "a{host}", "a b", "#", "*.a", ".".join("a" * 33)])
def test_what_is_no_template(text: str) -> None:
    assert not is_topic_template(text)
