"""Hypothesis profiles: `ci` by default, `thorough` with `--hypothesis-profile=thorough`."""

from hypothesis import HealthCheck, settings

# A law's example stores a whole thread and cleans it, which takes as long as the backend does.
_ANY_SPEED = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}

# Every change is tried on the same examples: a red build is the change's doing, and can be run
# again. New examples are the thorough profile's job.
settings.register_profile(
    "ci", max_examples=25, derandomize=True, database=None, print_blob=True, **_ANY_SPEED
)
settings.register_profile("thorough", max_examples=2000, print_blob=True, **_ANY_SPEED)
settings.load_profile("ci")
