"""Run the cases against proxies: ``python -m tests.proxy.conformance [nginx ...] [--verbose]``.

Without a name, against rpcmq and all peers that are installed. ``--verbose`` tells what is not as expected.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from tests.proxy.conformance.cases import GROUPS
from tests.proxy.conformance.peers import PEERS, is_installed, peer, running
from tests.proxy.conformance.runner import Result, run_cases
from tests.proxy.conformance.table import table
from tests.proxy.conformance.wire import Origin


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.proxy.conformance", description=__doc__)
    parser.add_argument("proxies", nargs="*", type=peer, help=f"{', '.join(PEERS)}; none: all that are installed")
    parser.add_argument("--verbose", action="store_true", help="tell what is not as expected")
    arguments = parser.parse_args()
    names = arguments.proxies or [name for name in PEERS if is_installed(name)]
    results: dict[str, list[Result]] = {}
    origin = Origin()
    for name in names:
        with tempfile.TemporaryDirectory() as folder, running(name, Path(folder), origin.port) as address:
            results[name] = run_cases([case for cases in GROUPS.values() for case in cases], address, origin)
        if arguments.verbose:
            for result in results[name]:
                if not result.is_passed:
                    told = "untold" if result.is_untold else result.case.level.value
                    print(f"{name}: {told}: {result.case.rfc}: {result.case.name}: {result.problem}")
    print(table(results))


if __name__ == "__main__":
    main()
