"""Many seeds of the simulation of a mesh, side by side in processes.

To run the seeds from 100000 up to 101000, on both of two cores::

    python -m tests.faults.mesh_seeds 100000 101000

From 1000000 on the routers are a ring; from 2000000 on a router and a service die close together; from 3000000 on
several consumers may have calls. Each seed that breaks
anything is printed at once, with its violations; the exit code is 1 then.
"""

from __future__ import annotations

import sys

from tests.faults.many_seeds import broken_seeds
from tests.faults.mesh_simulation import simulate_mesh


def _main(first: int, after_last: int, processes: int = 0) -> int:
    broken = 0
    for seed, violations in broken_seeds(simulate_mesh, range(first, after_last), processes):
        broken += 1
        print(f"seed {seed}: {'; '.join(violations)}", flush=True)
    print(f"{after_last - first} seeds, {broken} broken", flush=True)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(_main(*map(int, sys.argv[1:])))
