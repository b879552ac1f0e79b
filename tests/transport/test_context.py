from __future__ import annotations

import resource
from contextlib import ExitStack

import pytest
import zmq

from rpcmq.transport.batches import new_context


def test_a_process_may_have_more_sockets_than_libzmq_allows_by_itself() -> None:
    if resource.getrlimit(resource.RLIMIT_NOFILE)[0] < 1300:
        pytest.skip("this process may not open so many files")
    with new_context() as context, ExitStack() as stack:
        for _ in range(1100):
            stack.enter_context(context.socket(zmq.PAIR))
