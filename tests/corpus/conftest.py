"""The corpus: each thread of each release, and copies of it to clean up."""

from __future__ import annotations

import importlib.util
import itertools
import json
import shutil
import sqlite3
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, asynccontextmanager, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from langgraph._internal._typing import MISSING
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver

from delta_mixin.adapters.memory import DeltaInMemorySaver
from delta_mixin.adapters.sqlite import AsyncDeltaSqliteSaver, DeltaSqliteSaver
from delta_mixin.testing import oracle
from delta_mixin.testing._bridge import SyncView, open_saver

FOLDER = Path(__file__).parent
EXPECTED = {
    recorded["releases"]["langgraph"]: recorded
    for recorded in (json.loads(path.read_text()) for path in FOLDER.glob("langgraph-*.json"))
}
RELEASES = sorted(EXPECTED, key=lambda release: [*map(int, release.split("."))])
SAVERS = ("sqlite", "async sqlite", "memory")


@dataclass(frozen=True)
class CorpusThread:
    """A thread of one release.

    Attributes:
        release: Version of langgraph that wrote it.
        id: Thread id, the name of its scenario.
        states: Values as that release read them, by namespace and checkpoint id.
        delta: Names of the delta channels, known from the graph.
        folder: Where copies of its file go.
        with_task_paths: Whether its saver stored the order of parallel writes.
    """

    release: str
    id: str
    states: dict[str, dict[str, dict[str, Any]]]
    delta: frozenset[str]
    folder: Path
    with_task_paths: bool
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    def copy_file(self) -> Path:
        """A fresh copy of the release's file."""
        copied = self.folder / f"{next(self._numbers)}.sqlite"
        shutil.copyfile(FOLDER / f"langgraph-{self.release}.sqlite", copied)
        return copied

    @contextmanager
    def open(self, saver: str = "sqlite", file: Path | None = None) -> Iterator[SyncView]:
        """View a fresh copy, or `file`, through one of `SAVERS`."""
        path = file or self.copy_file()
        if saver == "memory":
            with open_saver(DeltaInMemorySaver) as view:
                load_into_memory(path, self.id, view.saver)
                yield view
        else:
            with open_saver(lambda: SQLITE[saver](path)) as view:
                yield view


# Waiting for the disk proves nothing here, and would take most of the time.
NO_WAIT = "PRAGMA synchronous=OFF"


@contextmanager
def sync_saver(path: Path) -> Iterator[DeltaSqliteSaver]:
    with DeltaSqliteSaver.from_conn_string(str(path)) as saver:
        saver.conn.execute(NO_WAIT)
        yield saver


@asynccontextmanager
async def async_saver(path: Path) -> AsyncIterator[AsyncDeltaSqliteSaver]:
    async with AsyncDeltaSqliteSaver.from_conn_string(str(path)) as saver:
        await saver.conn.execute(NO_WAIT)
        yield saver


SQLITE: dict[str, Any] = {"sqlite": sync_saver, "async sqlite": async_saver}


def load_into_memory(path: Path, thread_id: str, target: DeltaInMemorySaver) -> None:
    """Put a thread into a saver the way the graph did: with the versions each row changed."""
    with closing(sqlite3.connect(path)) as conn:
        source = SqliteSaver(conn)
        rows = list(source.list({"configurable": {"thread_id": thread_id}}))
        columns = [name for _, name, *_ in conn.execute("PRAGMA table_info(writes)")]
        task_path = "task_path" if "task_path" in columns else "''"
        versions: dict[tuple[str, str | None], dict[str, Any]] = {}
        for row in sorted(rows, key=lambda row: row.checkpoint["id"]):
            ns = row.config["configurable"]["checkpoint_ns"]
            parent = (row.parent_config or {}).get("configurable", {}).get("checkpoint_id")
            at_parent = versions.get((ns, parent), {})
            versions[ns, row.checkpoint["id"]] = own = row.checkpoint["channel_versions"]
            stored = target.put(
                {
                    "configurable": {
                        "thread_id": thread_id,
                        "checkpoint_ns": ns,
                        "checkpoint_id": parent,
                    }
                },
                row.checkpoint,
                row.metadata,
                {
                    channel: version
                    for channel, version in own.items()
                    if at_parent.get(channel) != version
                },
            )
            writes = conn.execute(
                f"SELECT task_id, {task_path}, channel, type, value FROM writes WHERE thread_id = ?"
                " AND checkpoint_ns = ? AND checkpoint_id = ? ORDER BY task_id, idx",
                (thread_id, ns, row.checkpoint["id"]),
            ).fetchall()
            for (task_id, path_), of_task in itertools.groupby(writes, key=lambda w: w[:2]):
                loaded = [(w[2], source.serde.loads_typed((w[3], w[4]))) for w in of_task]
                target.put_writes(stored, loaded, task_id, path_)


@pytest.fixture(params=RELEASES)
def release(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def recorded_threads(release: str) -> set[str]:
    return set(EXPECTED[release]["threads"])


@pytest.fixture(params=sorted(EXPECTED[RELEASES[0]]["threads"]))
def thread(request: pytest.FixtureRequest, release: str, tmp_path: Path) -> CorpusThread:
    recorded = EXPECTED[release]["threads"][request.param]
    delta = frozenset(channel for names in recorded["delta"].values() for channel in names)
    saver = EXPECTED[release]["releases"]["langgraph-checkpoint-sqlite"]
    return CorpusThread(
        release, request.param, recorded["states"], delta, tmp_path, saver >= "3.1.2"
    )


@pytest.fixture(params=SAVERS, ids=lambda name: name.replace(" ", "_"))
def saver_kind(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def opened(thread: CorpusThread, saver_kind: str) -> Callable[[], AbstractContextManager[SyncView]]:
    """Opens a fresh copy of the thread through one of the savers."""
    return lambda: thread.open(saver_kind)


@pytest.fixture(scope="session")
def scenarios() -> Iterator[ModuleType]:
    """The module that wrote the threads, for its graphs."""
    spec = importlib.util.spec_from_file_location("corpus_scenarios", FOLDER / "scenarios.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where its annotations get resolved
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


@pytest.fixture(scope="session")
def replayed() -> Callable[[Any, str], Any]:
    """Rebuilds a delta channel's value."""
    return _replayed


def _replayed(reading: Any, channel: str) -> Any:
    """The value that langgraph's own channel has at a checkpoint."""

    def extend(state: Any, writes: Any) -> Any:
        return [*state, *(item for write in writes for item in write)]

    made = DeltaChannel(extend, list)
    if channel in reading.values:
        return made.from_checkpoint(reading.values[channel].value).get()
    rebuilt = reading.rebuilt.get(channel, oracle.Rebuilt(None, (), "start"))
    made = made.from_checkpoint(MISSING if rebuilt.seed is None else rebuilt.seed.value)
    made.replay_writes([(task, name, value.value) for task, name, value in rebuilt.writes])
    return made.get()


@pytest.fixture
def assert_as_recorded() -> Callable[..., None]:
    """Holds readings to what the release recorded."""
    return _assert_as_recorded


def _assert_as_recorded(view: SyncView, thread: CorpusThread, found: dict[Any, Any]) -> None:
    for (ns, checkpoint_id), reading in found.items():
        for channel, recorded in thread.states[ns][checkpoint_id].items():
            if channel not in thread.delta:
                # A plain reducer that was never written reads as its empty value.
                stored = reading.values.get(channel)
                value = [] if stored is None else stored.value
            elif not in_memory_differs(view, thread, reading, channel, recorded):
                value = _replayed(reading, channel)
                if thread.id == "parallel" and thread.with_task_paths and not oracle.SETTLED_HOST:
                    value, recorded = sorted(value), sorted(recorded)
            else:
                continue
            assert value == recorded, f"channel {channel!r} of {checkpoint_id} in {ns!r}"


def in_memory_differs(
    view: SyncView, thread: CorpusThread, reading: Any, channel: str, recorded: Any
) -> bool:
    """Whether the in-memory saver reads a channel otherwise than SQLite, which was recorded."""
    if not isinstance(view.saver, InMemorySaver):
        return False
    if thread.id == "plain_delta_plain" and recorded == []:
        # The plain graph of langgraph < 1.2.24 stored its empty value without a new version:
        # readers find it where values are inline, not where they are kept by version.
        return True
    # Before 4.3 this saver left out the writes stored beside a plain seed.
    rebuilt = reading.rebuilt.get(channel)
    seed = None if rebuilt is None else rebuilt.seed
    return not oracle.SETTLED_HOST and seed is not None and isinstance(seed.value, list)
