"""`{% load console %}`: icons and links, and with them the tags of the modules beside."""

from __future__ import annotations

from django.templatetags.static import static
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from batches.domain.states import JobStatus, PauseReason
from batches.models import Job
from batches.selectors.reasons import ACCOUNTS, RECONCILE, STUCK_SHARDS, Why

from . import console_labels, console_numbers, console_times  # noqa: F401 - they register
from .library import register


@register.simple_tag
def icon(name: str) -> SafeString:
    """An icon of the sprite; decoration only, so hidden from screen readers."""
    return format_html(
        '<svg class="icon" aria-hidden="true"><use href="{}#{}"></use></svg>',
        static("batches/icons.svg"),
        name,
    )


@register.simple_tag
def part_url(job: Job, key: str) -> str:
    """Where a part of the bar leads."""
    if key == "failed":
        return reverse("admin:job_failures", args=[job.pk])
    if key == "in_doubt":
        return f"{reverse('admin:reconcile')}?job={job.pk}"
    return f"{reverse('admin:job_shards', args=[job.pk])}?having={key}"


@register.simple_tag
def cure_url(why: Why, job: Job) -> str:
    """The page on which the cure is done."""
    if not why.cure_url_name:
        return reverse("admin:job", args=[job.pk])
    if why.cure_url_name == STUCK_SHARDS:
        return part_url(job, "stuck")
    url = reverse(why.cure_url_name)
    return f"{url}?job={job.pk}" if why.cure_url_name in (RECONCILE, ACCOUNTS) else url


@register.filter
def resumable(job: Job) -> bool:
    """Whether 继续 is the way on: not at a checkpoint, and with something left of the budget."""
    if job.status not in (JobStatus.PAUSING, JobStatus.PAUSED):
        return False
    if job.pause_reason == PauseReason.BUDGET:
        return job.budget_limit is None or job.budget_used < job.budget_limit
    return job.status == JobStatus.PAUSING or job.pause_reason != PauseReason.STAGE
