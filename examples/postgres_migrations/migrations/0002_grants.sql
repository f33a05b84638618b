-- Written by: python -m delta_mixin schema grants app_runtime
REVOKE CREATE ON SCHEMA "public" FROM PUBLIC;
REVOKE CREATE ON SCHEMA "public" FROM "app_runtime";
REVOKE ALL ON TABLE "public"."checkpoint_migrations", "public"."checkpoints", "public"."checkpoint_blobs", "public"."checkpoint_writes" FROM PUBLIC;
REVOKE ALL ON TABLE "public"."checkpoint_migrations", "public"."checkpoints", "public"."checkpoint_blobs", "public"."checkpoint_writes" FROM "app_runtime";
GRANT USAGE ON SCHEMA "public" TO "app_runtime";
GRANT SELECT, INSERT, UPDATE, DELETE ON TABLE "public"."checkpoints", "public"."checkpoint_blobs", "public"."checkpoint_writes" TO "app_runtime";
GRANT SELECT ON TABLE "public"."checkpoint_migrations" TO "app_runtime";
