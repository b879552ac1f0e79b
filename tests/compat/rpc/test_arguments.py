"""nova.rpc.arguments: with conf or without."""

from __future__ import annotations

from typing import Any

import pytest


class Context:
    def to_dict(self) -> dict[str, Any]:
        return {}


CONF, CTXT, MSG = object(), Context(), {"method": "echo"}


@pytest.mark.parametrize(
    ("args", "kwargs", "conf"),
    [
        ((CTXT, "topic", MSG), {}, None),
        ((CTXT, "topic", MSG, 5), {}, None),
        ((CTXT, "topic"), {"msg": MSG}, None),
        ((CTXT,), {"topic": "topic", "msg": MSG}, None),
        ((), {"context": CTXT, "topic": "topic", "msg": MSG}, None),
        ((CONF, CTXT, "topic", MSG), {}, CONF),
        ((CONF, CTXT, "topic", MSG, 5), {}, CONF),
        ((CONF, CTXT, "topic"), {"msg": MSG}, CONF),
        ((CONF, CTXT), {"topic": "topic", "msg": MSG}, CONF),
        ((CONF,), {"context": CTXT, "topic": "topic", "msg": MSG}, CONF),
        ((), {"conf": CONF, "context": CTXT, "topic": "topic", "msg": MSG}, CONF),
    ],
)
def test_both_styles(at, args, kwargs, conf):
    @at("essex")("nova.rpc.arguments").optional_conf(topic_at=1)
    def call(conf: Any, context: Any, topic: str, msg: Any, timeout: Any = None) -> tuple[Any, ...]:
        return conf, context, topic, msg, timeout

    timeout = 5 if 5 in args else None
    assert call(*args, **kwargs) == (conf, CTXT, "topic", MSG, timeout)


@pytest.mark.parametrize("conf", [None, CONF])
def test_context_may_be_text(at, conf):
    @at("essex")("nova.rpc.arguments").optional_conf(topic_at=1)
    def cast(conf: Any, context: Any, topic: str, msg: Any) -> tuple[Any, ...]:
        return conf, context, topic, msg

    given = (conf,) if conf else ()
    assert cast(*given, "context", "topic", MSG) == (conf, "context", "topic", MSG)


def test_a_missing_topic_is_not_taken_for_conf(at):
    @at("essex")("nova.rpc.arguments").optional_conf(topic_at=1)
    def call(conf: Any, context: Any, topic: Any, msg: Any) -> tuple[Any, ...]:
        return conf, context, topic, msg

    assert call(CTXT, None, MSG) == (None, CTXT, None, MSG)


def test_server_parameters_before_the_topic(at):
    @at("essex")("nova.rpc.arguments").optional_conf(topic_at=2)
    def cast_to_server(conf: Any, context: Any, server_params: Any, topic: str, msg: Any) -> Any:
        return conf, topic

    server = {"hostname": "cell"}
    assert cast_to_server(CTXT, server, "topic", MSG) == (None, "topic")
    assert cast_to_server(CONF, CTXT, server, "topic", MSG) == (CONF, "topic")
