"""The RQ worker that runs lanes."""

from __future__ import annotations

import logging
import signal
import time
from types import FrameType
from typing import Any, ClassVar

from django.db import close_old_connections, connection
from redis.exceptions import RedisError
from rq import SimpleWorker
from rq.exceptions import StopRequested
from rq.utils import now
from rq.worker import WorkerStatus

from batches.engine.ensure import ensure_lanes

log = logging.getLogger(__name__)

#: seconds between two registry cleanings of RQ
RQ_MAINTENANCE = 60.0


class LaneWorker(SimpleWorker):
    """Runs turns in its own process: a killed fork-worker would leave its horse sending.

    Its maintenance hook wakes lanes from what PostgreSQL says, every few seconds.
    """

    #: the worker of this process, for the turn to ask whether to stop
    current: ClassVar[LaneWorker | None] = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kwargs["maintenance_interval"] = 3
        super().__init__(*args, **kwargs)
        self._rq_maintained = 0.0
        LaneWorker.current = self

    @property
    def dequeue_timeout(self) -> int:
        """Seconds; short, so that maintenance runs often."""
        return 2

    @property
    def stopping(self) -> bool:
        """Whether SIGTERM or SIGINT came."""
        return bool(self._stop_requested)

    def request_stop(self, signum: int, frame: FrameType | None) -> None:
        """Stop after the turn has drained. Touches no network: this is a signal handler."""
        self._shutdown_requested_date = now()
        signal.signal(signal.SIGINT, self.request_force_stop)
        signal.signal(signal.SIGTERM, self.request_force_stop)
        if self.get_state() == WorkerStatus.BUSY:
            self._stop_requested = True
        else:
            raise StopRequested

    def run_maintenance_tasks(self) -> None:
        """RQ's own now and then; waking lanes each time."""
        if time.monotonic() - self._rq_maintained > RQ_MAINTENANCE:
            self._rq_maintained = time.monotonic()
            super().run_maintenance_tasks()  # type: ignore[no-untyped-call]
        self.last_cleaned_at = now()  # type: ignore[assignment]
        try:
            close_old_connections()
            ensure_lanes()
        except RedisError:
            raise
        except Exception:
            log.warning("lanes not checked this time", exc_info=True)
            connection.close()

    @classmethod
    def asked_to_stop(cls) -> bool:
        """Whether the worker of this process was asked to stop."""
        return cls.current is not None and cls.current.stopping
