"""Own the schema of the Postgres checkpointer: render, gate, shape, check, grants, scan.

Third-party libraries are imported where they are used: an application that only opens its
checkpointer needs no SQL parser, and a scan of the source needs no database driver.
"""

from delta_mixin.schema.check import SchemaCheck, acheck_schema, check_schema
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
from delta_mixin.schema.expected import expected_shape, normalized
from delta_mixin.schema.gate import (
    SchemaVersion,
    aopen_checkpointer,
    open_checkpointer,
    read_version,
)
from delta_mixin.schema.grants import runtime_grants
from delta_mixin.schema.render import Migration, MigrationFile, MigrationStep, render_migration
from delta_mixin.schema.scan import SetupCall, assert_no_setup_calls, find_setup_calls
from delta_mixin.schema.shape import (
    Column,
    Difference,
    Index,
    Shape,
    Table,
    aschema_shape,
    compare_shapes,
    schema_shape,
)

__all__ = [
    "Column",
    "Difference",
    "Index",
    "Migration",
    "MigrationFile",
    "MigrationStep",
    "MissingExtraError",
    "SchemaBehindError",
    "SchemaCheck",
    "SchemaGapError",
    "SchemaMissingError",
    "SchemaNotReadyError",
    "SchemaPrivilegeError",
    "SchemaSearchPathError",
    "SchemaVersion",
    "SetupCall",
    "Shape",
    "Table",
    "UnsupportedStatementError",
    "acheck_schema",
    "aopen_checkpointer",
    "aschema_shape",
    "assert_no_setup_calls",
    "check_schema",
    "compare_shapes",
    "expected_shape",
    "find_setup_calls",
    "normalized",
    "open_checkpointer",
    "read_version",
    "render_migration",
    "runtime_grants",
    "schema_shape",
]
