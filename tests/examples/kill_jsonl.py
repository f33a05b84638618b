"""Carry out one operation of the JSON-lines saver again and again, killed a little later each time.

    python kill_jsonl.py FOLDER OPERATION

FOLDER/0 holds threads. The operation runs on copies of it, FOLDER/1, FOLDER/2 and so on, in a
process that ends without any clean-up at the first, second, ... line that it executes of what
writes to the disk, until one gets through. Prints how many there were.
"""

import os
import shutil
import sys
from itertools import count
from pathlib import Path

import thread_files
from delta_jsonl_saver import DeltaJsonLinesSaver

OPERATIONS = {
    "prune": lambda saver: saver.prune(["a"]),
    "delete": lambda saver: saver.prune(["a"], strategy="delete"),
    "delete_for_runs": lambda saver: saver.delete_for_runs(["run-1"]),
    "copy_thread": lambda saver: saver.copy_thread("a", "copy"),
}
WRITING = {
    thread_files.ThreadFiles.replace.__code__,
    thread_files._line.__code__,
    thread_files._to_disk.__code__,
    thread_files._folder_to_disk.__code__,
}


def work(folder, operation, kill_at):
    seen = count(1)

    def watch(frame, event, argument):
        if frame.f_code in WRITING:
            if event == "line" and next(seen) == kill_at:
                os._exit(9)
            return watch
        return None

    with DeltaJsonLinesSaver.open(folder) as saver:
        sys.settrace(watch)
        OPERATIONS[operation](saver)
    os._exit(0)


def main(folder, operation):
    for kill_at in count(1):
        copy = shutil.copytree(folder / "0", folder / str(kill_at))
        child = os.fork()
        if child == 0:
            try:
                work(copy, operation, kill_at)
            finally:
                os._exit(1)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if status == 0:
            print(kill_at)
            return
        if status != 9:
            sys.exit(f"{operation} failed with {status}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
