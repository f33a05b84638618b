"""Find threads that another tool has damaged, and branch off what is left of them.

    python find_damage.py checkpoints.sqlite            # look at every thread
    python find_damage.py checkpoints.sqlite --recover  # and store what can be rebuilt

Exits with 0 if every thread is healthy, with 1 if one is not, recovered or not.
"""

from __future__ import annotations

import sys
from pathlib import Path

from chat import graph_on

from delta_mixin import NothingToRecoverError
from delta_mixin.adapters.sqlite import DeltaSqliteSaver
from delta_mixin.recovery import recover
from delta_mixin.verification import verify_thread


def threads_in(saver: DeltaSqliteSaver) -> list[str]:
    return sorted({saved.config["configurable"]["thread_id"] for saved in saver.list(None)})


def look(path: Path, *, apply: bool = False) -> list[str]:
    """Report on every thread; returns those that are damaged."""
    damaged = []
    with DeltaSqliteSaver.from_conn_string(str(path)) as saver:
        graph = graph_on(saver)
        for thread in threads_in(saver):
            # The graph knows for sure what rows can only suggest.
            report = verify_thread(saver, thread, channels=["log"])
            print(report)
            if report.healthy:
                continue
            damaged.append(thread)
            try:
                print(recover(saver, thread, graph, apply=apply))
            except NothingToRecoverError as why:
                print(f"  {why}")
    return damaged


def main() -> int:
    paths = [argument for argument in sys.argv[1:] if not argument.startswith("-")]
    if len(paths) != 1:
        print(__doc__)
        return 2
    return 1 if look(Path(paths[0]), apply="--recover" in sys.argv) else 0


if __name__ == "__main__":
    sys.exit(main())
