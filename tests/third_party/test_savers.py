"""The contract, and the probe, on savers that nobody here wrote.

Their own faults are recorded twice and strictly, so that a release which mends one turns the
run red: as tests that are expected to fail, and as answers of the probe.
"""

from __future__ import annotations

import asyncio
from contextlib import AbstractContextManager
from typing import Any, ClassVar

import pytest

from delta_mixin.testing import SaverContract, aprobe_saver, probe_saver

SOUND: dict[str, Any] = {
    "config_keys": (),
    "lists_all_namespaces": True,
    "lists_all_threads": True,
    "filters": "exact",
    "keeps_run_id": True,
    "write_order": "task_path",
    "keeps_task_order": True,
    "keeps_early_writes": True,
    "reput": "replaces",
    "reput_keeps_writes": True,
    "reput_moves_parent": True,
    "head": "greatest id",
    "versioned_blobs": False,
    "keeps_branches_apart": True,
    "open_list_blocks": False,
    "deletes_threads": True,
    "left_behind": (),
}
"""A saver that needs the delete hook alone, and rebuilds every value."""

INDEX_AS_TEXT = "the index of a write is sorted as text, so the eleventh comes third"
FIRST_PARENT = "a checkpoint that is put again keeps its first parent: no loop can arise"


class ThirdPartySaver(SaverContract):
    saver: ClassVar[str]
    server: ClassVar[str]
    upstream: ClassVar[str] = "UPSTREAM"
    opens: ClassVar[str] = "open_saver"
    answers: ClassVar[dict[str, Any]]  # of upstream's class, where they differ from `SOUND`
    orders_writes_by_task_path = False  # none of them does; the probe tells when one begins to
    ends_looped_histories = False  # the host's walk, which they use, does not

    @pytest.fixture(autouse=True)
    def _found(self, third_party):
        self.module, self.where = third_party(self.saver, self.server)

    def make_saver(self, **saver_class):
        return getattr(self.module, self.opens)(self.where, **saver_class)

    def probe(self, **saver_class):
        context = self.make_saver(**saver_class)
        if isinstance(context, AbstractContextManager):
            with context as saver:
                return type(saver), probe_saver(saver)

        async def probe():
            async with context as saver:
                return type(saver), await aprobe_saver(saver)

        return asyncio.run(probe())

    def test_upstream_answers_the_probe_as_recorded(self):
        _, report = self.probe(saver_class=getattr(self.module, self.upstream))
        answers = {name: getattr(report, name) for name in SOUND}
        if not answers["deletes_threads"]:
            answers["left_behind"] = bool(answers["left_behind"])
        assert answers == {**SOUND, **self.answers}, f"{report}\n{report.failures}"

    def test_the_hooks_follow_the_probe(self):
        saver_class, report = self.probe()
        attributes = {name: getattr(saver_class, name) for name in report.attributes}
        assert attributes == report.attributes
        assert not [each for each in report.hooks if each.verdict == "write it"], str(report)
        assert report.left_behind == ()


class TestLMDB(ThirdPartySaver):
    saver, server = "lmdb", "folder"
    answers: ClassVar[dict[str, Any]] = {
        "lists_all_namespaces": False,
        "filters": "more",
        "keeps_run_id": False,
        "write_order": "task_id",
        "keeps_task_order": False,
        "deletes_threads": False,
        "left_behind": True,
    }
    expected_failures: ClassVar[dict[str, str]] = {
        "test_writes_of_one_task_are_read_in_their_order": INDEX_AS_TEXT,
        "test_history_keeps_the_order_of_one_tasks_writes": INDEX_AS_TEXT,
        "test_metadata_of_the_config_is_kept": "run ids in a config are not stored",
        "test_run_deletion_leaves_the_states_of_other_runs": "run ids in a config are not stored",
    }


class TestObjectStorage(ThirdPartySaver):
    saver, server = "objectstorage", "folder"
    answers: ClassVar[dict[str, Any]] = {
        "lists_all_namespaces": False,
        "lists_all_threads": False,
        "filters": "fails",
        "write_order": "task_id",
    }
    neighbours = ("u_2", "uu", "U", "7", "ü", "u:1", "u.", "u-")  # others are refused


class TestPlainRedis(ThirdPartySaver):
    saver, server = "plainredis", "redis"
    answers: ClassVar[dict[str, Any]] = {
        "write_order": "task_id",
        "head": "last put",
        "versioned_blobs": True,
        "keeps_branches_apart": False,
    }
    expected_failures: ClassVar[dict[str, str]] = {
        "test_each_branch_of_a_fork_reads_its_own_values": (
            "values are stored by version and versions are counted, so those of two branches meet"
        ),
    }


class TestValkey(ThirdPartySaver):
    saver, server = "valkey", "redis"
    answers: ClassVar[dict[str, Any]] = {
        "lists_all_namespaces": False,
        "lists_all_threads": False,
        "filters": "less",
        "write_order": "put order",
        "reput": "lists twice",
        "head": "last put",
    }


class TestDynamoDB(ThirdPartySaver):
    saver, server = "dynamodb", "dynamodb"
    sides = ("sync",)  # its async methods run the sync ones in a thread
    answers: ClassVar[dict[str, Any]] = {
        "lists_all_threads": False,
        "filters": "fails",
        "write_order": "task_id",
        "keeps_task_order": False,
    }
    expected_failures: ClassVar[dict[str, str]] = {
        "test_writes_of_one_task_are_read_in_their_order": INDEX_AS_TEXT,
        "test_history_keeps_the_order_of_one_tasks_writes": INDEX_AS_TEXT,
    }


class MySQL(ThirdPartySaver):
    saver, server = "mysql", "mariadb"
    ends_looped_histories = True
    answers: ClassVar[dict[str, Any]] = {
        "config_keys": ("checkpoint_ns",),
        "write_order": "task_id",
        "reput_moves_parent": False,
        "versioned_blobs": True,
        "open_list_blocks": True,
    }
    expected_failures: ClassVar[dict[str, str]] = {
        "test_prune_ends_where_the_parents_are_a_loop": FIRST_PARENT,
        "test_keepset_ends_where_the_parents_are_a_loop": FIRST_PARENT,
    }


class TestPyMySQL(MySQL):
    pass


# The driver reports what its `INSERT IGNORE` ignores: a copy stores shared values once more.
@pytest.mark.filterwarnings("ignore:Duplicate entry")
class TestAIOMySQL(MySQL):
    opens, upstream = "open_async_saver", "ASYNC_UPSTREAM"
    sides = ("async",)
