"""Jobs that a lane can make no sense of: told, not sent, and nobody else's trouble."""

from __future__ import annotations

from dataclasses import replace

import pytest

from batches.actions.registry import get_action
from batches.engine import viewing
from batches.models import Event, Job
from tests.integration.store.support import run

from .stage import QUICK, Stage, Stop, states, turning, until

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.parametrize("how", ["unknown action", "unforeseen"])
def test_turn_job_that_cannot_be_compiled_is_told_once_and_keeps_nobody(
    stage: Stage, how: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    odd, sound = stage.job(accounts=1, items=3), stage.job(accounts=1, items=60, per_min=1200)
    Job.objects.filter(pk=odd.pk).update(action="no_such_action")

    if how == "unforeseen":

        def broken(name: str):
            if name == "no_such_action":
                raise TypeError("not like this")
            return get_action(name)

        monkeypatch.setattr(viewing, "get_action", broken)

    stop = Stop()

    async def scene() -> None:
        # many ticks long
        async with stage.open(), turning(stop=stop, options=replace(QUICK, tick=0.1)):
            await until(lambda: len(stage.sends()) == 60, within=30)
            stop.asked = True

    run(scene())
    assert states(sound) == {"confirmed": 60}
    assert states(odd) == {"pending": 3}
    told = [r for r in caplog.records if f"job {odd.pk} cannot be compiled" in r.getMessage()]
    assert len(told) == 1
    event = Event.objects.get(job=odd, kind="job.cannot_compile")
    assert event.reason
