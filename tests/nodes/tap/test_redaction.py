"""Nothing secret by its name is shown, however a payload has it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rpcmq import Codec, Format
from rpcmq.nodes.tap.node import TapSettings
from rpcmq.nodes.tap.redaction import REDACTED, shown_payload

NAMES = TapSettings().redact
SECRET = "hunter2"


@pytest.mark.parametrize(
    "value",
    [
        {"password": SECRET},
        {"args": {"new_pass": SECRET, "adminPass": SECRET, "deep": [[{"Api-Key": SECRET}]]}},
        {"Authorization": {"scheme": SECRET}},
        {("a", 1): 2, "token": SECRET},
        {1: 2, "session_cookie": SECRET},
        {b"password": SECRET, b"other": 1},
        [("password", SECRET)],
        ("db_pwd", SECRET),
        ["passphrase", SECRET],
        {"pairs": list({"user": "a", "secret": SECRET}.items())},
        [["password", [SECRET, {"a": SECRET}]]],
    ],
)
def test_a_value_is_hidden_by_its_name_in_each_form(value: Any) -> None:
    payload = Codec(prefer=Format.JSON).encode(value, Format.JSON.bit)[1]
    shown, why = shown_payload("json", payload, NAMES, 1 << 16)
    text = json.dumps(shown)
    assert not why and REDACTED in text and SECRET not in text


def test_what_has_no_such_name_is_shown() -> None:
    value = {"host": "a", "keyboard": 1, "pair": ["host", "a"], "more": [["a", "b", "c"], [1, 2], [{"$": "bytes"}, 1]]}
    assert shown_payload("json", json.dumps(value).encode(), NAMES, 1 << 16) == (value, "")
    assert shown_payload("json", b'{"password": 1}', (), 1 << 16) == ({"password": 1}, "")
    assert shown_payload("json", b'[{"$": "bytes", "v": 3}, 1]', NAMES, 1 << 16)[0] == [{"$": "bytes", "v": 3}, 1]
