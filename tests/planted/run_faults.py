"""Savers whose run deletion has one fault each."""

from __future__ import annotations

from dataclasses import replace

from delta_mixin.adapters.memory import DeltaInMemorySaver
from delta_mixin.adapters.sqlite import DeltaSqliteSaver


class DeletesNeededRows(DeltaSqliteSaver):
    """Deletes every row of a run, whoever is rebuilt from it."""

    def _delete_checkpoint_rows(self, plans):
        needed = [
            tuple(key for key, why in p.kept.items() if all(r.kind == "replay" for r in why))
            for p in plans
        ]
        plans = [
            replace(
                plan,
                kept={key: why for key, why in plan.kept.items() if key not in keys},
                doomed=(*plan.doomed, *keys),
            )
            for plan, keys in zip(plans, needed, strict=True)
        ]
        super()._delete_checkpoint_rows(plans)


class IgnoresNarrowing(DeltaSqliteSaver):
    """Deletes the rows of a run in every thread, whatever threads are named."""

    def delete_for_runs(self, run_ids, *, thread_ids=None, on_plan=None):
        super().delete_for_runs(run_ids, on_plan=on_plan)


class DeletesRowsOfOtherRuns(DeltaInMemorySaver):
    """Matches run ids without regard to case."""

    def delete_for_runs(self, run_ids, *, thread_ids=None, on_plan=None):
        stored = [
            saved.metadata.get("run_id") or ""
            for thread in list(self.storage)
            for saved in self.list({"configurable": {"thread_id": thread}})
        ]
        wanted = {run.lower() for run in run_ids} if not isinstance(run_ids, str) else run_ids
        if not isinstance(run_ids, str):
            run_ids = [run for run in stored if run and run.lower() in wanted] or list(run_ids)
        super().delete_for_runs(run_ids, thread_ids=thread_ids, on_plan=on_plan)


class DeletesRunsOfTheRootOnly(DeltaInMemorySaver):
    """Looks at the root namespace alone."""

    def _delete_checkpoint_rows(self, plans):
        plans = [
            replace(p, doomed=tuple(k for k in p.doomed if not k[0]), dropped_namespaces=())
            if p.operation == "delete_for_runs"
            else p
            for p in plans
        ]
        super()._delete_checkpoint_rows(plans)


class FindsOneThreadOfARun(DeltaInMemorySaver):
    """Stops at the first thread that holds a row of the run."""

    def _list_run_threads(self, run_ids):
        for thread_id in sorted(self.storage):
            for saved in self.list({"configurable": {"thread_id": thread_id}}):
                if saved.metadata.get("run_id") in run_ids:
                    return [thread_id]
        return []


class LooksAtNewestRowsOnly(DeltaInMemorySaver):
    """Knows the run of each thread's newest checkpoint only."""

    def _list_run_threads(self, run_ids):
        found = []
        for thread_id in self.storage:
            saved = self.get_tuple({"configurable": {"thread_id": thread_id}})
            if saved is not None and saved.metadata.get("run_id") in run_ids:
                found.append(thread_id)
        return found


class ProtectsTheNewestRow(DeltaInMemorySaver):
    """Never deletes the newest checkpoint of a namespace, although all runs were named."""

    def _delete_checkpoint_rows(self, plans):
        plans = [
            replace(
                p,
                doomed=tuple(
                    k for k in p.doomed if k[1] != max(i for n, i in p.doomed if n == k[0])
                ),
            )
            if p.operation == "delete_for_runs" and not p.kept
            else p
            for p in plans
        ]
        super()._delete_checkpoint_rows(plans)


class PlansOtherwiseOnItsSlowSide(DeltaInMemorySaver):
    """Has an async listing of its own, which leaves out what it does not know."""

    async def _alist_checkpoint_rows(self, thread_ids):
        rows = self._list_checkpoint_rows(thread_ids)
        return [row._replace(metadata={"source": "loop"}) for row in rows]


FAULTS = [
    (
        "async plans differ from sync ones",
        PlansOtherwiseOnItsSlowSide,
        "test_run_deletion_plans_of_both_sides_are_equal",
    ),
    (
        "deletes rows of other runs",
        DeletesRowsOfOtherRuns,
        "test_run_deletion_takes_rows_of_the_runs_only",
    ),
    (
        "deletes needed run rows",
        DeletesNeededRows,
        "test_run_deletion_keeps_what_other_runs_are_rebuilt_from",
    ),
    (
        "run deletion limited to the root namespace",
        DeletesRunsOfTheRootOnly,
        "test_run_deletion_reaches_every_namespace",
    ),
    (
        "finds one thread of a run only",
        FindsOneThreadOfARun,
        "test_run_deletion_finds_the_threads_of_a_run",
    ),
    (
        "finds threads by their newest row",
        LooksAtNewestRowsOnly,
        "test_run_deletion_finds_a_run_wherever_it_is_in_a_thread",
    ),
    (
        "deletes runs in threads that were not named",
        IgnoresNarrowing,
        "test_run_deletion_can_be_narrowed_to_threads",
    ),
    (
        "protects the newest row from run deletion",
        ProtectsTheNewestRow,
        "test_run_deletion_of_all_runs_leaves_nothing",
    ),
]
