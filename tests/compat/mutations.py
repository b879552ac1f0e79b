"""Breaks copies of the shim, each in one way that tests tend not to see, and has the test for it fail.

``python -m tests.compat.mutations`` prints a table: way, test, whether the test caught it. The unbroken copy must
pass all of them. Ends with 1 if that, or any of the breaks, went otherwise.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from gevent import subprocess
from gevent.pool import Pool

ROOT = Path(__file__).parents[2]
TESTS = "tests/compat/across/test_broken_shims.py"
RPC = "nova/modules/core/nova/rpc"
#: Seconds that a test may take, on a busy machine.
_PATIENCE = 100.0
#: A test waits most of its time.
_AT_ONCE = 3


class Mutation(NamedTuple):
    """One way to break the shim.

    Attributes:
        way: what is wrong then.
        file: below ``compat/``.
        old, new: text in it, and what takes its place.
        test: name of the test that must fail.
    """

    way: str
    file: str
    old: str
    new: str
    test: str


MUTATIONS = (
    Mutation(
        "handlers run one after another",
        f"{RPC}/connection.py",
        'return int(options.value("rpc_thread_pool_size", self.conf))',
        "return 1",
        "test_handlers_run_side_by_side",
    ),
    Mutation(
        "every consumer of a topic gets each message",
        "nova/transport.py",
        "concurrency=concurrency, group=group)",
        "concurrency=concurrency, group=group or client.identity)",
        "test_one_consumer_of_a_topic_gets_a_message",
    ),
    Mutation(
        "every request is delivered twice",
        "nova/transport.py",
        "        message = from_wire(incoming)\n",
        "        message = from_wire(incoming)\n        self._handle(from_wire(incoming))\n",
        "test_a_request_is_run_once",
    ),
    Mutation(
        "what is for topic.host also goes to topic",
        f"{RPC}/amqp.py",
        "            client.cast(ctx, address_of(topic, exchange(conf, where)), message, ttl=ttl or None)\n",
        "            for name in {topic, topic.partition('.')[0]}:\n"
        "                client.cast(ctx, address_of(name, exchange(conf, where)), message)\n",
        "test_what_is_for_a_host_goes_to_that_host_alone",
    ),
    Mutation(
        "local.store.context is not set",
        f"{RPC}/amqp.py",
        "            update_store()\n",
        "            pass\n",
        "test_the_green_thread_of_a_handler_knows_its_context",
    ),
    Mutation(
        "notify loses everything",
        f"{RPC}/amqp.py",
        "    wrapped = common.serialize_msg(packed,",
        "    return\n    wrapped = common.serialize_msg(packed,",
        "test_a_notification_is_kept_for_the_first_consumer_that_comes",
    ),
    Mutation(
        "the context is passed by position",
        f"{RPC}/invocation.py",
        "return method(context=context, **args)",
        "return method(context, **args)",
        "test_the_context_is_passed_by_its_name",
    ),
    Mutation(
        "what cannot be sent becomes None",
        "nova/primitives.py",
        "        return _Conversion(value).encode()\n",
        "        return json.dumps(value, default=lambda each: None)\n",
        "test_what_cannot_be_sent_is_an_error_at_the_caller",
    ),
    Mutation(
        "a fan-out reaches one consumer",
        f"{RPC}/amqp.py",
        "client.fanout_cast(ctx, fanout_address(conf, topic, where), message)",
        "client.cast(ctx, fanout_address(conf, topic, where), message)",
        "test_a_fanout_reaches_every_consumer",
    ),
    Mutation(
        "an unknown method is answered with None",
        f"{RPC}/invocation.py",
        "            if not callable(dispatch):\n                raise\n",
        "            if not callable(dispatch):\n                return lambda context: None\n",
        "test_an_unknown_method_is_an_error",
    ),
    Mutation(
        "create_consumer touches the proxy",
        f"{RPC}/connection.py",
        "        callback = amqp.this.ProxyCallback(self.conf, proxy)\n",
        "        hasattr(proxy, 'dispatch')\n        callback = amqp.this.ProxyCallback(self.conf, proxy)\n",
        "test_a_proxy_is_not_touched_before_a_message_comes",
    ),
)


def broken(mutation: Mutation, root: Path = ROOT) -> str:
    """The text of its file, broken.

    Raises:
        ValueError: what is to be replaced is not there, or not once.
        SyntaxError: it could not even be imported, so that a test that fails proves nothing.
    """
    text = (root / "compat" / mutation.file).read_text()
    if text.count(mutation.old) != 1:
        raise ValueError(f"{mutation.way}: {mutation.file} has {text.count(mutation.old)} times: {mutation.old!r}")
    text = text.replace(mutation.old, mutation.new)
    compile(text, mutation.file, "exec")
    return text


def run(tests: Sequence[str], copy: Path) -> tuple[int, str]:
    """Run ``tests`` against ``copy``.

    Returns:
        pytest's exit code, and the end of what it said.
    """
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *(f"{TESTS}::{test}" for test in tests)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(copy), "SHIM_UNDER_TEST": str(copy)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=_PATIENCE,
        check=False,
    )
    return done.returncode, done.stdout.decode(errors="replace")[-4000:]


def caught(mutation: Mutation, whole: Path) -> tuple[bool, str]:
    """Return whether the test fails, in its own words, on a copy of ``whole`` so broken; and pytest's output."""
    with tempfile.TemporaryDirectory() as directory:
        copy = Path(directory)
        # With its bytecode, which saves each process most of its start.
        shutil.copytree(whole / "compat", copy / "compat")
        path = copy / "compat" / mutation.file
        for stale in path.parent.glob(f"__pycache__/{path.stem}.*"):
            stale.unlink()
        path.write_text(broken(mutation, copy))
        code, said = run([mutation.test], copy)
    return code == 1 and f"FAILED {TESTS}::{mutation.test}" in said, said


def main() -> int:
    """Print the table."""
    for mutation in MUTATIONS:
        broken(mutation)
    ways, tests = (max(len(getattr(each, name)) for each in MUTATIONS) for name in ("way", "test"))
    with tempfile.TemporaryDirectory() as directory:
        whole = Path(directory)
        shutil.copytree(ROOT / "compat", whole / "compat", ignore=shutil.ignore_patterns("__pycache__"))
        code, said = run(sorted({each.test for each in MUTATIONS}), whole)
        if code:
            print(f"the unbroken copy fails:\n{said}")
            return 1
        print(f"{'way':{ways}}  {'test':{tests}}  caught")
        missed = 0
        found = Pool(_AT_ONCE).imap(partial(caught, whole=whole), MUTATIONS)
        for mutation, (yes, said) in zip(MUTATIONS, found, strict=True):
            print(f"{mutation.way:{ways}}  {mutation.test:{tests}}  {'yes' if yes else 'NO'}", flush=True)
            if not yes:
                missed += 1
                print(said)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
