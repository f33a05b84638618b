"""Own the schema of the Postgres checkpointer: render, gate, shape, check, grants, scan.

Third-party libraries are imported where they are used: an application that only opens its
checkpointer needs no SQL parser, and a scan of the source needs no database driver.
"""

from delta_mixin.schema.errors import (
    MissingExtraError,
    SchemaBehindError,
    SchemaGapError,
    SchemaMissingError,
    SchemaNotReadyError,
    SchemaPrivilegeError,
    SchemaSearchPathError,
    UnsupportedStatementError,
)
from delta_mixin.schema.gate import (
    SchemaVersion,
    aopen_checkpointer,
    open_checkpointer,
    read_version,
)
from delta_mixin.schema.render import Migration, MigrationFile, MigrationStep, render_migration

__all__ = [
    "Migration",
    "MigrationFile",
    "MigrationStep",
    "MissingExtraError",
    "SchemaBehindError",
    "SchemaGapError",
    "SchemaMissingError",
    "SchemaNotReadyError",
    "SchemaPrivilegeError",
    "SchemaSearchPathError",
    "SchemaVersion",
    "UnsupportedStatementError",
    "aopen_checkpointer",
    "open_checkpointer",
    "read_version",
    "render_migration",
]
