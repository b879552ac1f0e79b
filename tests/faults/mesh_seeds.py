"""Many seeds of the simulation of a mesh, side by side in processes.

To run the seeds from 100000 up to 101000, on both of two cores::

    python -m tests.faults.mesh_seeds 100000 101000

Each seed that breaks anything is printed at once, with its violations; the exit code is 1 then.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed

from tests.faults.mesh_simulation import simulate_mesh

__all__ = ["broken_seeds"]

#: Seeds that a process is given at a time.
_PORTION = 25


def broken_seeds(seeds: range, processes: int = 0) -> Iterator[tuple[int, list[str]]]:
    """Yield each seed of ``seeds`` that has violations, with these, as soon as it was found.

    Args:
        processes: how many run side by side; 0: one for each core that may be used.
    """
    # Started anew: a fork would have this process's threads and greenlets half.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes or len(os.sched_getaffinity(0)), context) as executor:
        portions = [seeds[first : first + _PORTION] for first in range(0, len(seeds), _PORTION)]
        for done in as_completed([executor.submit(_broken_in, portion) for portion in portions]):
            yield from done.result()


def _broken_in(seeds: range) -> list[tuple[int, list[str]]]:
    verdicts = [(seed, simulate_mesh(seed)) for seed in seeds]
    return [(seed, list(map(str, verdict.violations))) for seed, verdict in verdicts if not verdict.ok]


def _main(first: int, after_last: int, processes: int = 0) -> int:
    broken = 0
    for seed, violations in broken_seeds(range(first, after_last), processes):
        broken += 1
        print(f"seed {seed}: {'; '.join(violations)}", flush=True)
    print(f"{after_last - first} seeds, {broken} broken", flush=True)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(_main(*map(int, sys.argv[1:])))
