"""What the store promises whatever happens: torn lines, odd names, a second owner."""

import json
import threading

import pytest
from thread_files import CACHED_THREADS, Thread, ThreadFiles


@pytest.fixture
def files(tmp_path):
    files = ThreadFiles(tmp_path)
    yield files
    files.close()


def record(checkpoint_id, parent=None):
    stored = {"ns": "", "id": checkpoint_id, "parent": parent}
    return {**stored, "checkpoint": ["msgpack", "é\n"], "metadata": ["msgpack", ""]}


def reopened(folder):
    files = ThreadFiles(folder)
    try:
        return {i: files.read(i) for i in files.thread_ids()}
    finally:
        files.close()


def test_what_was_appended_is_there_after_a_restart(files, tmp_path):
    files.append("a", record("1"))
    write = {"task_id": "t", "task_path": "", "idx": 0, "channel": "c", "value": ["null", ""]}
    files.append("a", {"ns": "", "id": "1", "writes": [write]})
    held = files.read("a")
    files.close()
    assert reopened(tmp_path) == {"a": held}


def test_a_line_torn_at_any_byte_never_happened(files, tmp_path):
    files.append("a", record("1"))
    (path,) = tmp_path.glob("*.jsonl")
    before = path.stat().st_size
    files.append("a", record("2", parent="1"))
    files.close()
    whole = path.read_bytes()
    for size in range(before, len(whole)):
        path.write_bytes(whole[:size])
        assert set(reopened(tmp_path)["a"].checkpoints) == {("", "1")}, size
        again = ThreadFiles(tmp_path)
        again.append("a", record("3", parent="1"))
        again.close()
        assert set(reopened(tmp_path)["a"].checkpoints) == {("", "1"), ("", "3")}, size


def test_a_first_line_torn_at_any_byte_is_no_thread(files, tmp_path):
    files.append("a", record("1"))
    files.close()
    (path,) = tmp_path.glob("*.jsonl")
    whole = path.read_bytes()
    header = whole.index(b"\n") + 1
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        assert reopened(tmp_path) == ({"a": Thread(size=header)} if size >= header else {}), size
        again = ThreadFiles(tmp_path)
        again.append("a", record("2"))
        again.close()
        assert set(reopened(tmp_path)["a"].checkpoints) == {("", "2")}, size


def test_a_failed_append_leaves_what_was_there(files, tmp_path, monkeypatch):
    files.append("a", record("1"))

    def no_space(_fd):
        raise OSError("no space left on device")

    monkeypatch.setattr("os.fsync", no_space)
    with pytest.raises(OSError, match="no space"):
        files.append("a", record("2"))
    with pytest.raises(OSError, match="no space"):
        files.replace("a", Thread(checkpoints={("", "3"): record("3")}))
    monkeypatch.undo()
    assert set(files.read("a").checkpoints) == {("", "1")}
    files.append("a", record("4"))
    files.close()
    assert set(reopened(tmp_path)["a"].checkpoints) == {("", "1"), ("", "4")}


def test_a_half_written_replacement_is_cleared_away(files, tmp_path):
    files.append("a", record("1"))
    files.close()
    (path,) = tmp_path.glob("*.jsonl")
    leftover = path.with_suffix(".tmp")
    leftover.write_bytes(path.read_bytes()[:20])
    assert set(reopened(tmp_path)["a"].checkpoints) == {("", "1")}
    assert not leftover.exists()


def test_a_damaged_line_is_named(files, tmp_path):
    files.append("a", record("1"))
    files.append("a", record("2"))
    files.close()
    (path,) = tmp_path.glob("*.jsonl")
    header, first, second = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(header + first[:10] + b"\n" + second)
    with pytest.raises(ValueError, match=r"jsonl, line 2 is damaged"):
        reopened(tmp_path)


ODD_IDS = [
    "../../etc/passwd",
    "a/b\\c",
    "..",
    "CON",
    "a",
    "A",
    "é",
    "e\u0301",
    "nul\0inside",
    "new\nline",
    "\ud800",
    " ",
    "x" * 5_000,
]


def test_any_thread_id_has_a_file_of_its_own_inside_the_folder(files, tmp_path):
    for position, thread_id in enumerate(ODD_IDS):
        files.append(thread_id, record(str(position)))
    files.close()
    stored = {i: list(thread.checkpoints) for i, thread in reopened(tmp_path).items()}
    assert stored == {thread_id: [("", str(n))] for n, thread_id in enumerate(ODD_IDS)}
    assert (
        len(list(tmp_path.glob("*.jsonl"))) == len({p.name.lower() for p in tmp_path.iterdir()}) - 1
    )
    for path in tmp_path.glob("*.jsonl"):
        assert json.loads(path.read_bytes().splitlines()[0])["thread_id"] in ODD_IDS


def test_an_empty_thread_has_no_file(files, tmp_path):
    files.append("a", record("1"))
    files.replace("a", Thread())
    assert files.thread_ids() == []
    assert list(tmp_path.glob("*.jsonl")) == []
    files.append("a", record("2"))
    assert set(files.read("a").checkpoints) == {("", "2")}


def test_a_folder_has_one_owner(files, tmp_path):
    with pytest.raises(RuntimeError, match="in use by another saver"):
        ThreadFiles(tmp_path)
    files.close()
    reopened(tmp_path)


def test_more_threads_than_are_held_in_memory(files):
    for n in range(CACHED_THREADS + 3):
        files.append(f"thread {n}", record(str(n)))
    for n in range(CACHED_THREADS + 3):
        assert set(files.read(f"thread {n}").checkpoints) == {("", str(n))}


def test_threads_append_at_once_and_lose_nothing(files, tmp_path):
    def work(name):
        for n in range(20):
            files.append("a", record(f"{name}-{n:02}"))

    workers = [threading.Thread(target=work, args=(name,)) for name in "abcd"]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    files.close()
    expected = {("", f"{name}-{n:02}") for name in "abcd" for n in range(20)}
    assert set(reopened(tmp_path)["a"].checkpoints) == expected
