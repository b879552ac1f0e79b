"""The public names of rpcmq.aio."""

from __future__ import annotations

import rpcmq.aio


def test_each_public_name_is_a_class_or_a_function() -> None:
    assert {name for name in rpcmq.aio.__all__ if not callable(getattr(rpcmq.aio, name, None))} == set()
