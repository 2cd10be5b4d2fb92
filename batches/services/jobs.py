"""All verbs on a job, in one place to import from.

Each takes keywords only, runs in one transaction, leaves an event and returns the fresh job.
`actor` is a user, a `Shell` (the command line) or None (the system itself). Errors are those of
`batches.domain.errors`.
"""

from .lifecycle import cancel_job, confirm_job, pause_job, resume_job, terminate_job
from .limits import confirm_stage, raise_budget, set_breaker, set_priority, set_rate
from .retry import retry_failed
from .retry_preview import RetryGroup, RetryPreview, preview_retry
from .schedule import set_hours, set_start
from .shards import pause_shard, resume_shard

__all__ = [
    "RetryGroup",
    "RetryPreview",
    "cancel_job",
    "confirm_job",
    "confirm_stage",
    "pause_job",
    "pause_shard",
    "preview_retry",
    "raise_budget",
    "resume_job",
    "resume_shard",
    "retry_failed",
    "set_breaker",
    "set_hours",
    "set_priority",
    "set_rate",
    "set_start",
    "terminate_job",
]
