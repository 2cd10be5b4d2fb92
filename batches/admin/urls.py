"""The console's addresses, under the admin site's own name space."""

from __future__ import annotations

from collections.abc import Callable

from django.http import HttpResponseBase
from django.urls import URLPattern, path

from . import (
    accounts,
    alerts,
    audit,
    exports,
    failures,
    items,
    job_dialogs,
    job_limits,
    job_list,
    job_new,
    job_page,
    job_report,
    job_verbs,
    reconcile,
    retry,
    shards,
    test_send,
)
from .verbs import viewer_only

View = Callable[..., HttpResponseBase]


def screens(guard: Callable[[View], View]) -> list[URLPattern]:
    """Every screen and verb, each behind `guard` (the site's sign-in check)."""
    table: tuple[tuple[str, View, str], ...] = (
        ("jobs/", job_list.job_list, "jobs"),
        ("jobs/new/", job_new.job_new, "job_new"),
        ("jobs/<int:job_id>/", job_page.job_page, "job"),
        ("jobs/<int:job_id>/live/", job_page.job_live, "job_live"),
        ("jobs/<int:job_id>/reread/", job_report.reread, "job_reread"),
        ("jobs/<int:job_id>/rejections.csv", exports.rejections_csv, "job_rejections"),
        ("jobs/<int:job_id>/confirm/", job_verbs.confirm, "job_confirm"),
        ("jobs/<int:job_id>/pause/", job_verbs.pause, "job_pause"),
        ("jobs/<int:job_id>/resume/", job_verbs.resume, "job_resume"),
        ("jobs/<int:job_id>/rate/", job_verbs.rate, "job_rate"),
        ("jobs/<int:job_id>/cancel/", job_dialogs.cancel, "job_cancel"),
        ("jobs/<int:job_id>/terminate/", job_dialogs.terminate, "job_terminate"),
        ("jobs/<int:job_id>/stage/", job_dialogs.stage, "job_stage"),
        ("jobs/<int:job_id>/budget/", job_dialogs.budget, "job_budget"),
        ("jobs/<int:job_id>/limits/", job_limits.limits, "job_limits"),
        ("jobs/<int:job_id>/retry/", retry.retry, "job_retry"),
        ("jobs/<int:job_id>/shards/", shards.shard_list, "job_shards"),
        ("jobs/<int:job_id>/shards/<int:ordinal>/", shards.shard, "job_shard"),
        ("jobs/<int:job_id>/shards/<int:ordinal>/pause/", shards.pause, "shard_pause"),
        ("jobs/<int:job_id>/shards/<int:ordinal>/resume/", shards.resume, "shard_resume"),
        ("jobs/<int:job_id>/items/<int:item_id>/", items.item, "job_item"),
        ("jobs/<int:job_id>/failures/", failures.categories, "job_failures"),
        ("jobs/<int:job_id>/failures.csv", exports.failures_csv, "job_failures_csv"),
        ("jobs/<int:job_id>/failures/<slug:category>/", failures.category, "job_category"),
        ("reconcile/", reconcile.queue, "reconcile"),
        ("reconcile/mark/", reconcile.mark, "reconcile_mark"),
        ("accounts/", accounts.account_list, "accounts"),
        ("accounts/<int:account_id>/active/", accounts.set_active, "account_active"),
        ("accounts/<int:account_id>/restore/", accounts.restore, "account_restore"),
        ("accounts/<int:account_id>/test/", test_send.test_send, "account_test"),
        ("audit/", audit.audit, "audit"),
        ("alerts/", alerts.alerts, "alerts"),
    )
    return [path(route, guard(viewer_only(view)), name=name) for route, view, name in table]
