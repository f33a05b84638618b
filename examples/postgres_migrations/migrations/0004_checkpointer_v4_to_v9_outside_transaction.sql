-- no-transaction
-- Checkpointer schema of langgraph-checkpoint-postgres 3.2.0: statements 6 to 9 (upgrade from version 4 to 9, file 2 of 2).
-- Written by delta_mixin.schema. Do not edit: render again when the pin changes.
-- Run as the schema owner, OUTSIDE a transaction, one statement at a time:
--   psql -v ON_ERROR_STOP=1 -f FILE
-- After a failure drop the invalid index that is named, then run the file again.

-- statement 6
CREATE INDEX CONCURRENTLY IF NOT EXISTS checkpoints_thread_id_idx ON checkpoints(thread_id);

-- recorded as applied, once verified
DO $verify$
BEGIN
    IF NOT EXISTS (SELECT FROM checkpoint_migrations WHERE v = 5) THEN
        RAISE EXCEPTION USING MESSAGE = 'version 5 is not recorded as applied',
            HINT = 'Apply what leads up to version 5 first.';
    END IF;
    IF NOT EXISTS (
        SELECT FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
        WHERE i.indrelid = to_regclass('checkpoints')
        AND c.relname = 'checkpoints_thread_id_idx' AND i.indisvalid
    ) THEN
        RAISE EXCEPTION USING MESSAGE = 'index checkpoints_thread_id_idx on checkpoints is missing or invalid',
            HINT = 'DROP INDEX CONCURRENTLY the invalid index, then run this again.';
    END IF;
    INSERT INTO checkpoint_migrations (v) VALUES (6) ON CONFLICT DO NOTHING;
END
$verify$;

-- statement 7
CREATE INDEX CONCURRENTLY IF NOT EXISTS checkpoint_blobs_thread_id_idx ON checkpoint_blobs(thread_id);

-- recorded as applied, once verified
DO $verify$
BEGIN
    IF NOT EXISTS (SELECT FROM checkpoint_migrations WHERE v = 6) THEN
        RAISE EXCEPTION USING MESSAGE = 'version 6 is not recorded as applied',
            HINT = 'Apply what leads up to version 6 first.';
    END IF;
    IF NOT EXISTS (
        SELECT FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
        WHERE i.indrelid = to_regclass('checkpoint_blobs')
        AND c.relname = 'checkpoint_blobs_thread_id_idx' AND i.indisvalid
    ) THEN
        RAISE EXCEPTION USING MESSAGE = 'index checkpoint_blobs_thread_id_idx on checkpoint_blobs is missing or invalid',
            HINT = 'DROP INDEX CONCURRENTLY the invalid index, then run this again.';
    END IF;
    INSERT INTO checkpoint_migrations (v) VALUES (7) ON CONFLICT DO NOTHING;
END
$verify$;

-- statement 8
CREATE INDEX CONCURRENTLY IF NOT EXISTS checkpoint_writes_thread_id_idx ON checkpoint_writes(thread_id);

-- recorded as applied, once verified
DO $verify$
BEGIN
    IF NOT EXISTS (SELECT FROM checkpoint_migrations WHERE v = 7) THEN
        RAISE EXCEPTION USING MESSAGE = 'version 7 is not recorded as applied',
            HINT = 'Apply what leads up to version 7 first.';
    END IF;
    IF NOT EXISTS (
        SELECT FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
        WHERE i.indrelid = to_regclass('checkpoint_writes')
        AND c.relname = 'checkpoint_writes_thread_id_idx' AND i.indisvalid
    ) THEN
        RAISE EXCEPTION USING MESSAGE = 'index checkpoint_writes_thread_id_idx on checkpoint_writes is missing or invalid',
            HINT = 'DROP INDEX CONCURRENTLY the invalid index, then run this again.';
    END IF;
    INSERT INTO checkpoint_migrations (v) VALUES (8) ON CONFLICT DO NOTHING;
END
$verify$;

-- together
BEGIN;

-- statement 9
ALTER TABLE checkpoint_writes ADD COLUMN IF NOT EXISTS task_path TEXT NOT NULL DEFAULT '';

-- recorded as applied
DO $verify$
BEGIN
    IF NOT EXISTS (SELECT FROM checkpoint_migrations WHERE v = 8) THEN
        RAISE EXCEPTION USING MESSAGE = 'version 8 is not recorded as applied',
            HINT = 'Apply what leads up to version 8 first.';
    END IF;
    INSERT INTO checkpoint_migrations (v) VALUES (9) ON CONFLICT DO NOTHING;
END
$verify$;

COMMIT;
