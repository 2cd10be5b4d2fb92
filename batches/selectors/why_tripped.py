"""What exactly stopped a job or shard by itself: which outcomes, shards, account."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from batches.domain.categories import category_info
from batches.domain.problems import Names, Term
from batches.domain.states import PauseReason
from batches.domain.text import N_
from batches.models import Event, Job, Shard

from .ground import Ground
from .reasons import ACCOUNTS, Why

_TRY_ONE = N_("看失败分类，处理好原因后点「继续」；会先各试一条。")
_GRANT = N_("请管理员开通接口权限后点「继续」。")


def why_breaker(job: Job, ground: Ground) -> Why:
    """By the share of bad outcomes, or by the shards that stopped one after the other."""
    event = _last_trip(job, ground, PauseReason.BREAKER)
    if event is not None and event.data.get("sample"):
        return _by_share(event.data)
    tripped = ground.tripped.get(job.pk)
    if tripped is None:
        return Why("breaker", N_("失败太多，熔断，自动暂停。"), cure_text=_TRY_ONE, level="warn")
    return Why(
        "breaker",
        N_("熔断：%(shards)s 个分片连续失败（账号 %(accounts)s），整个作业自动暂停。"),
        {"shards": tripped["shards"], "accounts": Names(dict.fromkeys(tripped["accounts"]))},
        cure_text=_TRY_ONE,
        level="warn",
    )


def _by_share(data: Mapping[str, Any]) -> Why:
    """Which outcome was the last is known only to a lane that saw it itself."""
    text = N_("熔断：最近 %(sample)s 次结果里 %(bad)s 次失败。")
    params: dict[str, object] = {"sample": data["sample"], "bad": data["bad"]}
    if category := data.get("category"):
        text = N_("熔断：最近 %(sample)s 次结果里 %(bad)s 次失败，最后一次是「%(category)s」。")
        params["category"] = Term(category_info(category).label)
    return Why("breaker", text, params, cure_text=_TRY_ONE, level="warn")


def why_permission(job: Job, ground: Ground) -> Why:
    """Which account was told so, and with which code."""
    event = _last_trip(job, ground, PauseReason.PERMISSION)
    if event is None or event.account is None:
        return Why(
            "permission",
            N_("网关回答没有接口权限，自动暂停。"),
            cure_text=_GRANT,
            cure_url_name=ACCOUNTS,
            level="warn",
        )
    return Why(
        "permission",
        N_("账号 %(account)s 没有接口权限（错误码 %(code)s），自动暂停。"),
        {"account": str(event.account), "code": event.data.get("code") or "—"},
        cure_text=_GRANT,
        cure_url_name=ACCOUNTS,
        level="warn",
    )


def why_shard(shard: Shard) -> Why | None:
    """A shard that stopped by itself, where more than the reason's name is known."""
    match shard.reason:
        case PauseReason.BREAKER if shard.bad_streak:
            return Why(
                "shard_breaker",
                N_("这个分片连续 %(streak)s 次失败，已熔断；其他分片照常。"),
                {"streak": shard.bad_streak},
                cure_text=N_("看失败分类，处理好原因后点「继续分片」；会先试一条。"),
                level="warn",
            )
        case PauseReason.CREDENTIAL:
            return Why(
                "shard_credential",
                N_("账号 %(account)s 登录失效，它在所有作业里的分片都已暂停。"),
                {"account": str(shard.account)},
                cure_text=N_("重新登录账号，再到账号页点「已重新登录」。"),
                cure_url_name=ACCOUNTS,
                level="warn",
            )
        case _:
            return None


def _last_trip(job: Job, ground: Ground, reason: PauseReason) -> Event | None:
    """The stop that the job stands for now; a later stop of another kind hides it."""
    found = ground.stops.get(job.pk, ())
    # the system completes a pause with an event of its own
    event = next((event for event in found if event.data.get("from") != "pausing"), None)
    if event is None or event.kind != "job.tripped" or event.data.get("reason") != reason:
        return None
    return event
