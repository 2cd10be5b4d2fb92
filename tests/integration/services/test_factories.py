"""The factories themselves: what they make must agree with itself."""

import pytest
from django.db.models import Count

from batches.domain.states import JobStatus
from batches.models import Call, Item, Job, Shard
from tests.factories import ShardSpec, items_of, make_job

pytestmark = pytest.mark.django_db


def test_make_job_mixed_counts_agree_with_items() -> None:
    spec = ShardSpec(
        pending=2, inflight=1, accepted=1, in_doubt=2, confirmed=3, failed=1, abandoned=1
    )
    job = make_job(shards=[spec, ShardSpec(pending=4)])
    by_state = dict(Item.objects.filter(job_id=job.pk).values_list("state").annotate(Count("id")))
    assert by_state == {
        "pending": 6, "submitted": 4, "confirmed": 3, "failed": 1, "abandoned": 1,
    }  # fmt: skip
    first, second = Shard.objects.filter(job=job).order_by("ordinal")
    assert (first.pending, first.submitted, first.in_doubt) == (3, 3, 2)
    assert second.total == second.pending == 4
    assert job.total == 15
    assert job.budget_used == 7
    open_calls = Call.objects.filter(job_id=job.pk, answered_at=None, lost_at=None)
    assert [call.item_ids for call in open_calls] == [
        [item.pk] for item in items_of(job, "submitted")
        if item.accepted_at is None and item.in_doubt_at is None
    ]  # fmt: skip


@pytest.mark.parametrize("status", JobStatus)
def test_make_job_any_status_is_stored(status: JobStatus) -> None:
    reason = "operator" if status in (JobStatus.PAUSED, JobStatus.PAUSING) else ""
    job = make_job(status=status, pause_reason=reason)
    assert Job.objects.get(pk=job.pk).status == status
