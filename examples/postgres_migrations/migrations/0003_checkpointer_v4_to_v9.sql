-- Checkpointer schema of langgraph-checkpoint-postgres 3.2.0: statement 5 (upgrade from version 4 to 9, file 1 of 2).
-- Written by delta_mixin.schema. Do not edit: render again when the pin changes.
-- Run as the schema owner, in one transaction:
--   psql --single-transaction -v ON_ERROR_STOP=1 -f FILE

-- statement 5
SELECT 1;

-- recorded as applied
DO $verify$
BEGIN
    IF NOT EXISTS (SELECT FROM checkpoint_migrations WHERE v = 4) THEN
        RAISE EXCEPTION USING MESSAGE = 'version 4 is not recorded as applied',
            HINT = 'Apply what leads up to version 4 first.';
    END IF;
    INSERT INTO checkpoint_migrations (v) VALUES (5) ON CONFLICT DO NOTHING;
END
$verify$;
