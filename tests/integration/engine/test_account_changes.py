"""What becomes of an account in mid-turn: moved to another gateway, logged out, being stopped."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any

import pytest

from batches.engine import breaking
from batches.models import Account, Gateway
from batches.services.settings import change_account
from batches.store.trips import lose_credential
from tests.factories import make_user
from tests.integration.store.support import assert_sound, run

from .stage import Stage, Stop, in_thread, states, turning, turns_until, until

pytestmark = pytest.mark.django_db(transaction=True)

PER_SECOND = 20


@pytest.mark.parametrize("what", ["gateway", "guid"])
def test_account_that_moves_in_mid_turn_goes_by_the_new_address_within_two_seconds(
    stage: Stage, what: str
):
    """A gateway that is switched off gets nothing more; one that is new has its own limits."""
    second = Stage()

    async def scene() -> None:
        (account,) = stage_accounts = await in_thread(
            lambda: stage.accounts(1, total_rate_per_min=60 * PER_SECOND)
        )
        job = await in_thread(lambda: stage.job(accounts=stage_accounts, items=90))
        chief = await in_thread(lambda: make_user(is_superuser=True))
        changes: dict[str, Any] = (
            {"gateway": second.gateway} if what == "gateway" else {"guid": "another-guid"}
        )
        async with stage.open() as old, second.open() as new:
            stop = Stop()
            async with turning(stop=stop):
                await until(lambda: len(old.record.effects) >= 5)
                await in_thread(
                    lambda: change_account(account_id=account.pk, actor=chief, changes=changes)
                )
                if what == "gateway":
                    off = Gateway.objects.filter(pk=stage.gateway.pk)
                    await in_thread(lambda: off.update(is_active=False))
                mark = len(old.record.effects)
                await until(lambda: len(old.record.effects) + len(new.record.effects) >= 90)
                stop.asked = True
        assert await in_thread(states, job) == Counter(confirmed=90)
        by_old = stage.since(mark)[account.guid]
        by_new = len(second.sends()) if what == "gateway" else stage.since(mark)["another-guid"]
        assert by_old <= 2 * PER_SECOND, f"{by_old} by the old address, {by_new} by the new one"
        assert by_old + by_new == 90 - mark
        targets = Counter(target for _, target in [*stage.sends(), *second.sends()])
        assert set(targets.values()) == {1}
        await in_thread(assert_sound, job)

    run(scene())


def test_account_whose_stop_is_still_being_written_sends_nothing_meanwhile(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
):
    """Ticks go on while the database is slow to take the stop in: they must not undo it."""
    go_on, told = threading.Event(), []

    def slow(account_id: int, *, note: str) -> object:
        told.append(account_id)
        go_on.wait(20)
        return lose_credential(account_id, note=note)

    monkeypatch.setattr(breaking, "lose_credential", slow)

    async def scene() -> None:
        good, lost = await in_thread(
            lambda: stage.accounts(2, total_rate_per_min=60 * PER_SECOND, max_inflight=1)
        )
        await in_thread(lambda: stage.job(accounts=[good, lost], items=200))
        async with stage.open() as sim:
            fault = sim.faults.install({"kind": "credential_expired", "scope": {"guid": lost.guid}})
            stop = Stop()
            async with turning(stop=stop):
                await until(lambda: fault.fired)
                mark = len(stage.sends())
                # one and a half seconds of ticks, by the other account's pace
                await until(lambda: len(stage.sends()) >= mark + PER_SECOND * 3 // 2)
                fired, said = fault.fired, list(told)
                go_on.set()
                stop.asked = True
        assert fired == 1, "it goes on asking a gateway that has said no"
        assert said == [lost.pk]

    run(scene())


def test_account_without_a_login_sends_nothing_of_what_is_loaded_later(stage: Stage):
    async def scene() -> None:
        good, lost = await in_thread(lambda: stage.accounts(2))
        account = Account.objects.filter(pk=lost.pk)
        await in_thread(lambda: account.update(health="credential"))
        job = await in_thread(lambda: stage.job(accounts=[good, lost], items=10))
        async with stage.open():
            stop = Stop()
            async with turning(stop=stop):
                await until(lambda: len(stage.sends()) >= 10)
                stop.asked = True
            assert stage.since(0) == Counter({good.guid: 10})
            assert await in_thread(states, job) == Counter(confirmed=10, pending=10)
            # logged in again: it goes by itself
            await in_thread(lambda: account.update(health="ok"))
            assert await turns_until(job, "completed") == "completed"
        stage.assert_each_once()
        await in_thread(assert_sound, job)

    run(scene())
