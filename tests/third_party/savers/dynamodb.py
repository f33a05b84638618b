"""DynamoDB: an item per row, its payload in chunks beside it; upstream's repository deletes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache

import boto3
from langgraph_checkpoint_aws.checkpoint.dynamodb import DynamoDBSaver

from delta_mixin import CleanupPlan, CopyAndDeleteForRunsMixin, DeltaChannelAwarePruneMixin


class DeltaDynamoDBSaver(DeltaChannelAwarePruneMixin, CopyAndDeleteForRunsMixin, DynamoDBSaver):
    NEWEST_ID_IS_HEAD = True

    def _list_run_threads(self, run_ids: Sequence[str]) -> set[str]:
        pages = self.client.get_paginator("scan").paginate(
            TableName=self.table_name,
            FilterExpression="begins_with(PK, :rows)",
            ExpressionAttributeValues={":rows": {"S": "CHECKPOINT_"}},
        )
        found = (item["PK"]["S"] for page in pages for item in page["Items"])
        return {key.removeprefix("CHECKPOINT_") for key in found}

    def _delete_checkpoint_rows(self, plans: Sequence[CleanupPlan]) -> None:
        for plan in plans:
            doomed = [*map(tuple, plan.doomed)]
            self.repo.delete_thread_writes(plan.thread_id, doomed)
            self.repo.delete_thread_checkpoints(plan.thread_id, doomed)
            for ns, checkpoint_id in plan.detached:
                row = {"PK": f"CHECKPOINT_{plan.thread_id}", "SK": f"{ns}#{checkpoint_id}"}
                self.client.update_item(
                    TableName=self.table_name,
                    Key={name: {"S": part} for name, part in row.items()},
                    UpdateExpression="REMOVE parent_checkpoint_id",
                )


@contextmanager
def open_saver(
    where: str, saver_class: type[DynamoDBSaver] = DeltaDynamoDBSaver
) -> Iterator[DynamoDBSaver]:
    saver = _connected(where, saver_class)
    with suppress(saver.client.exceptions.ResourceNotFoundException):
        saver.client.delete_table(TableName=saver.table_name)
    saver.client.create_table(
        TableName=saver.table_name,
        KeySchema=[
            {"AttributeName": "PK", "KeyType": "HASH"},
            {"AttributeName": "SK", "KeyType": "RANGE"},
        ],
        AttributeDefinitions=[
            {"AttributeName": name, "AttributeType": "S"} for name in ("PK", "SK")
        ],
        BillingMode="PAY_PER_REQUEST",
    )
    yield saver


@cache
def _connected(where: str, saver_class: type[DynamoDBSaver]) -> DynamoDBSaver:
    # A client takes a second to make: all tests share one, and each gets a new table.
    session = boto3.Session("none", "none", region_name="eu-west-1")
    return saver_class("checkpoints", session, endpoint_url=where)


UPSTREAM = DynamoDBSaver
