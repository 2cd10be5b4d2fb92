"""Enqueueing: tasks are hints, PostgreSQL is the truth. A lost hint costs only time."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

import django_rq
from django.conf import settings
from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry
from rq import Worker

if TYPE_CHECKING:
    from rq import Queue

log = logging.getLogger(__name__)

#: Redis does not answer; for callers that know of no Redis
QueueAwayError = RedisError

#: seconds; whoever asks shows a page meanwhile
_ANSWER_TIMEOUT = 0.5
#: seconds for which an answer, or none, is believed
_BELIEVED = 5.0
#: address → when it was asked, and whether it answered
_asked: dict[str, tuple[float, bool]] = {}

LANES = "lanes"
CONTROL = "control"


def _queue(name: str) -> Queue:
    return django_rq.get_queue(name)


def redis_answers() -> bool:
    """Whether Redis answers at present; asked once in a few seconds, and briefly."""
    url: str = settings.REDIS_URL
    now = time.monotonic()
    at, answered = _asked.get(url, (-_BELIEVED, False))
    if now - at >= _BELIEVED:
        answered = _ping(url)
        _asked[url] = (time.monotonic(), answered)
    return answered


def _ping(url: str) -> bool:
    try:
        with Redis.from_url(
            url,
            socket_connect_timeout=_ANSWER_TIMEOUT,
            socket_timeout=_ANSWER_TIMEOUT,
            retry=Retry(NoBackoff(), 0),
        ) as client:
            return bool(client.ping())
    except RedisError:
        return False


def enqueue_lane_turn() -> None:
    """One more turn for a lane worker; always a new task, never one that re-enters itself."""
    _queue(LANES).enqueue(
        "batches.tasks.lane_turn", job_timeout=-1, result_ttl=60, failure_ttl=24 * 3600
    )


def waiting_turns() -> int:
    """Turns enqueued and not yet taken."""
    return int(_queue(LANES).count)


def waiting_intakes() -> int:
    """Control tasks enqueued and not yet taken."""
    return int(_queue(CONTROL).count)


def lane_workers() -> int:
    """Lane workers registered; one that was killed counts until its entry expires."""
    queue = _queue(LANES)
    return int(Worker.count(queue=queue))


def wake_lanes() -> bool:
    """Hint that there is work. False if Redis did not take it: the periodic work finds it."""
    try:
        if waiting_turns() == 0:
            enqueue_lane_turn()
    except RedisError as error:
        log.warning("no hint to the lanes, the periodic work will find the job: %s", error)
        return False
    return True


def enqueue_intake(job_id: int) -> bool:
    """Read the file of a job. False if Redis did not take it; the periodic work asks again."""
    try:
        _queue(CONTROL).enqueue(
            "batches.tasks.intake", job_id, job_timeout=3600, result_ttl=60, failure_ttl=24 * 3600
        )
    except RedisError as error:
        log.warning("intake of job %s not enqueued, will be asked for again: %s", job_id, error)
        return False
    return True
