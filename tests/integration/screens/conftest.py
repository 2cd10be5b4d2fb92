"""Signed-in people and jobs in every state."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
from django.contrib.auth.models import User
from django.core.cache import cache
from django.test import Client

from batches.models import Account, Job
from tests.factories import ShardSpec, make_account, make_gateway, make_job, make_user

VERBS = ("operate_job", "cancel_job", "approve_job", "terminate_job", "reconcile_item")
EVERYTHING = (
    *VERBS,
    "view_job",
    "view_gateway",
    "add_gateway",
    "change_gateway",
    "view_account",
    "add_account",
    "change_account",
)


@pytest.fixture(autouse=True)
def _fresh_cache() -> Iterator[None]:
    cache.clear()
    yield
    cache.clear()


@pytest.fixture
def sign_in(db: None) -> Callable[..., Client]:
    """A browser of somebody with the named permissions, who may also look."""

    def signed_in(*permissions: str, enforce_csrf_checks: bool = False) -> Client:
        client = Client(enforce_csrf_checks=enforce_csrf_checks)
        client.force_login(make_user(*{"view_job", *permissions}))
        return client

    return signed_in


@pytest.fixture
def operator(db: None) -> User:
    return make_user(*EVERYTHING, username="operator")


@pytest.fixture
def client(operator: User) -> Client:
    """Somebody who may do everything."""
    client = Client()
    client.force_login(operator)
    return client


@dataclass(frozen=True)
class World:
    """One job in each state that has a page of its own kind."""

    account: Account
    running: Job
    paused: Job
    awaiting: Job
    rejected: Job
    preparing: Job
    completed: Job


@pytest.fixture
def world(db: None) -> World:
    account = make_account(gateway=make_gateway(name="网关甲"), name="客服甲", guid="acc-1")
    report = {
        "phase": "done",
        "encoding": "utf-8",
        "delimiter": ",",
        "header_row": 1,
        "rows": 3,
        "valid": 2,
        "rejected": 1,
        "shards": 1,
        "accounts_total": 1,
        "accounts": [{"account": "acc-1", "name": "客服甲", "items": 2, "shards": 1}],
        "samples": [
            {
                "row_no": 2,
                "account": "acc-1",
                "account_name": "客服甲",
                "target": "t1",
                "content": "你好 <b>客户</b>",
                "tags": [],
            }
        ],
        "by_reason": [
            {"code": "id_empty", "text": "ID 为空。", "params": {}, "count": 1, "example_row": 4}
        ],
        "problems": [],
        "warnings": [],
        "request": {},
    }
    return World(
        account=account,
        running=make_job(
            name="正在跑的 <作业>",
            shards=[
                ShardSpec(pending=4, inflight=1, in_doubt=2, confirmed=3, failed=2, account=account)
            ],
            budget_limit=100,
            stages=[50],
            rate_limit_per_min=30,
        ),
        paused=make_job(
            status="paused",
            pause_reason="operator",
            shards=[ShardSpec(pending=3, confirmed=1, account=account)],
        ),
        awaiting=make_job(
            status="awaiting",
            shards=[ShardSpec(pending=2, account=account)],
            intake=report,
            rejected_rows=1,
        ),
        rejected=make_job(
            status="rejected",
            shards=[],
            intake=report
            | {"problems": [{"code": "rows_all_bad", "text": "全部有问题。", "params": {}}]},
        ),
        preparing=make_job(
            status="preparing", shards=[], intake={"phase": "reading", "progress_rows": 20000}
        ),
        completed=make_job(
            status="completed", shards=[ShardSpec(confirmed=3, failed=2, account=account)]
        ),
    )
