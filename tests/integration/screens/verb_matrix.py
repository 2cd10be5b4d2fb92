"""Every verb of a job as a button sends it."""

from __future__ import annotations

from typing import Any

from django.test import Client
from django.urls import reverse

from batches.domain.states import ShardStatus
from batches.models import Job, Upload
from tests.factories import ShardSpec, make_job

#: verb → state it is tried in, its form, the permission it needs, what becomes of the job
MATRIX: dict[str, tuple[dict[str, Any], dict[str, str], str, str]] = {
    "pause": ({"status": "running"}, {}, "operate_job", "paused"),
    "resume": ({"status": "paused", "pause_reason": "operator"}, {}, "operate_job", "running"),
    "confirm": ({"status": "awaiting"}, {}, "operate_job", "running"),
    "rate": ({"status": "running"}, {"per_min": "7"}, "operate_job", "running"),
    "limits": (
        {"status": "running"},
        {"set": "priority", "priority": "9", "reason": "先发这批"},
        "operate_job",
        "running",
    ),
    "reread": ({"status": "awaiting"}, {"bad_rows": "skip"}, "operate_job", "preparing"),
    "shard_pause": ({"status": "running"}, {"reason": "看一下"}, "operate_job", "running"),
    "shard_resume": ({"status": "running"}, {}, "operate_job", "running"),
    "cancel": ({"status": "running"}, {"reason": "发错了"}, "cancel_job", "cancelling"),
    "terminate": (
        {"status": "running", "name": "要终止的"},
        {"reason": "出事了", "confirm_name": "要终止的"},
        "terminate_job",
        "terminating",
    ),
    "stage": (
        {"status": "paused", "pause_reason": "stage", "stages": [1]},
        {},
        "approve_job",
        "running",
    ),
    "budget": (
        {"status": "running", "budget_limit": 10},
        {"to": "20", "reason": "追加"},
        "approve_job",
        "running",
    ),
    "retry": ({"status": "completed"}, {}, "operate_job", "running"),
}


def a_file() -> Upload:
    return Upload.objects.create(name="a.csv", size=1, sha256="0" * 64)


def job_for(verb: str) -> Job:
    """A job that is in a state for the verb."""
    columns = dict(MATRIX[verb][0])
    spec = ShardSpec(pending=3)
    if verb == "retry":
        spec = ShardSpec(confirmed=2, failed=1)
    if verb == "shard_resume":
        spec = ShardSpec(pending=3, status=ShardStatus.PAUSED, reason="operator")
    if verb == "reread":
        columns["upload"] = a_file()
    return make_job(shards=[spec], **columns)


def address_of(verb: str, job: Job) -> str:
    if verb.startswith("shard_"):
        return reverse(f"admin:{verb}", args=[job.pk, 1])
    return reverse(f"admin:job_{verb}", args=[job.pk])


def press(client: Client, verb: str, job: Job, **more: str) -> Any:
    """What the button sends, from a page that shows the job as given."""
    form = {"version": str(job.version)} | MATRIX[verb][1] | more
    return client.post(address_of(verb, job), form)
