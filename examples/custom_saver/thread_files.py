"""A folder of threads, each an append-only log in one JSON-lines file.

1. A record is one line and is stored once its newline is. A kill while appending leaves a
   line without one: readers ignore it, and the next append cuts it off.
2. A thread is rewritten into a temporary file that replaces the old one in a single step. A
   kill leaves the old thread or the new one.
3. A file is named by a hash, so any thread id is safe: with slashes, in two cases, of any
   length. The first line says which thread it is.
4. One process owns a folder at a time; a second one is refused rather than half trusted. So
   the threads used last can be held in memory, equal to their files.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

RowKey = tuple[str, str]
"""Namespace and checkpoint id."""

CACHED_THREADS = 64


@dataclass
class Thread:
    """What a file says, replayed: stored checkpoints, and writes by task and index."""

    checkpoints: dict[RowKey, dict[str, Any]] = field(default_factory=dict)
    writes: dict[RowKey, dict[tuple[str, int], dict[str, Any]]] = field(default_factory=dict)
    size: int = 0  # bytes of whole lines in the file; 0 if there is no file

    def apply(self, record: dict[str, Any]) -> None:
        key = (record["ns"], record["id"])
        if "checkpoint" in record:
            self.checkpoints[key] = record
        for write in record.get("writes", ()):
            stored = self.writes.setdefault(key, {})
            slot = (write["task_id"], write["idx"])
            # A task that runs again may not replace its writes, but its error or interrupt.
            if write["idx"] < 0 or slot not in stored:
                stored[slot] = write

    def records(self) -> Iterator[dict[str, Any]]:
        """The shortest log that replays to this thread."""
        yield from self.checkpoints.values()
        for (ns, checkpoint_id), writes in self.writes.items():
            yield {"ns": ns, "id": checkpoint_id, "writes": list(writes.values())}


class ThreadFiles:
    """The folder. Hold `lock` around everything that must be seen as one step."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.lock = threading.RLock()
        self._owner = _own(self.folder / "owner.lock")
        self._cache: dict[str, Thread] = {}
        for leftover in self.folder.glob("*.tmp"):
            leftover.unlink()

    def close(self) -> None:
        self._owner.close()

    def thread_ids(self) -> list[str]:
        """Every thread that has a file."""
        found = []
        for path in sorted(self.folder.glob("*.jsonl")):
            with path.open("rb") as file:
                header = file.readline()
            if header.endswith(b"\n"):
                found.append(json.loads(header)["thread_id"])
        return found

    def read(self, thread_id: str) -> Thread:
        """The thread; an empty one if there is no file. Call it and use it under the lock."""
        thread = self._cache.pop(thread_id, None) or self._load(thread_id)
        self._remember(thread_id, thread)
        return thread

    def append(self, thread_id: str, record: dict[str, Any]) -> None:
        """Add one record; it is on the disk when this returns."""
        with self.lock:
            thread = self.read(thread_id)
            data = _line(record) if thread.size else _line({"thread_id": thread_id}) + _line(record)
            path = self._path(thread_id)
            with path.open("ab") as file:
                file.truncate(thread.size)
                file.write(data)
                _to_disk(file)
            if not thread.size:
                _folder_to_disk(self.folder)
            thread.size += len(data)
            thread.apply(record)

    def replace(self, thread_id: str, thread: Thread) -> None:
        """Put `thread` in the place of what is stored, all or nothing."""
        with self.lock:
            path = self._path(thread_id)
            if thread.checkpoints or thread.writes:
                temporary = path.with_suffix(".tmp")
                with temporary.open("wb") as file:
                    file.write(_line({"thread_id": thread_id}))
                    file.writelines(map(_line, thread.records()))
                    _to_disk(file)
                    thread.size = file.tell()
                temporary.replace(path)
            else:
                path.unlink(missing_ok=True)
                thread.size = 0
            self._remember(thread_id, thread)
            _folder_to_disk(self.folder)

    def _load(self, thread_id: str) -> Thread:
        thread, path = Thread(), self._path(thread_id)
        if not path.exists():
            return thread
        with path.open("rb") as file:
            for number, line in enumerate(file):
                if not line.endswith(b"\n"):
                    break
                try:
                    record = json.loads(line)
                except ValueError as error:
                    raise ValueError(f"{path}, line {number + 1} is damaged: {error}") from error
                if number:  # the header comes first
                    thread.apply(record)
                thread.size += len(line)
        return thread

    def _remember(self, thread_id: str, thread: Thread) -> None:
        self._cache[thread_id] = thread
        while len(self._cache) > CACHED_THREADS:
            del self._cache[next(iter(self._cache))]

    def _path(self, thread_id: str) -> Path:
        digest = hashlib.sha256(thread_id.encode("utf-8", "surrogatepass")).hexdigest()
        return self.folder / f"{digest}.jsonl"


def _line(record: dict[str, Any]) -> bytes:
    # ASCII only, so a newline inside a value is escaped and ends no line.
    return json.dumps(record, separators=(",", ":")).encode("ascii") + b"\n"


def _to_disk(file: IO[bytes]) -> None:
    file.flush()
    os.fsync(file.fileno())


def _folder_to_disk(folder: Path) -> None:
    """Make new and replaced names last through a power cut, where the system lets us."""
    with suppress(OSError):  # Windows opens no folders
        fd = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def _own(path: Path) -> IO[bytes]:
    """Lock a file as long as it stays open; the system frees it even after a kill."""
    file = path.open("ab")
    try:
        if sys.platform == "win32":
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        else:
            fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        file.close()
        raise RuntimeError(f"folder {path.parent} is in use by another saver") from error
    return file
