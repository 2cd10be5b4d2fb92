"""An item that the look-ahead read twice is sent once, in a call of several too."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from batches.engine.picking import _together
from batches.engine.plan import PlannedItem, ShardPlan
from batches.models import Call, Job
from tests.factories import ShardSpec, items_of, make_lane
from tests.integration.store.support import assert_sound, claim, owned_job


@pytest.mark.django_db(transaction=True)
def test_claim_item_named_twice_in_one_call_is_charged_and_carried_once():
    lane = make_lane()
    job = owned_job(lane, ShardSpec(pending=3), budget_limit=3)
    one, two, _three = (item.pk for item in items_of(job))
    result = claim(lane=lane.pk, items=[one, one, two], size=3)
    assert sorted(c.item_id for c in result.claimed) == [one, two]
    assert Call.objects.get().item_ids == [one, two]
    assert Job.objects.get(pk=job.pk).budget_used == 2
    assert_sound()


def test_pick_item_that_is_twice_in_the_look_ahead_names_it_once():
    first, second = (PlannedItem(n, n, f"t{n}", []) for n in (1, 2))
    shard = ShardPlan(1, 1, 1)
    shard.buffer.extend([first, second, first])
    job: Any = SimpleNamespace(
        compiled=SimpleNamespace(to_target=lambda target, _fields: target, operation="send_text")
    )
    gateway: Any = SimpleNamespace(
        config=None,
        adapter=SimpleNamespace(fitting=lambda _config, _operation, targets: len(targets)),
    )
    assert _together(shard, job, gateway, 3) == [first, second]
