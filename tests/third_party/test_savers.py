"""The contract on savers that nobody here wrote, each with the hooks of `savers/`."""

from __future__ import annotations

from typing import ClassVar

import pytest

from delta_mixin.testing import SaverContract


class ThirdPartySaver(SaverContract):
    saver: ClassVar[str]
    server: ClassVar[str]
    opens: ClassVar[str] = "open_saver"
    ends_looped_histories = False  # the host's default walk does not
    orders_writes_by_task_path = False

    @pytest.fixture(autouse=True)
    def _found(self, third_party):
        self.module, self.where = third_party(self.saver, self.server)

    def make_saver(self):
        return getattr(self.module, self.opens)(self.where)


class TestLMDB(ThirdPartySaver):
    saver, server = "lmdb", "folder"


class TestObjectStorage(ThirdPartySaver):
    saver, server = "objectstorage", "folder"


class TestPlainRedis(ThirdPartySaver):
    saver, server = "plainredis", "redis"


class TestValkey(ThirdPartySaver):
    saver, server = "valkey", "redis"


class TestDynamoDB(ThirdPartySaver):
    saver, server = "dynamodb", "dynamodb"


class TestPyMySQL(ThirdPartySaver):
    saver, server = "mysql", "mariadb"


class TestAIOMySQL(ThirdPartySaver):
    saver, server, opens = "mysql", "mariadb", "open_async_saver"
    sides = ("async",)
