"""How many items of a job are in which state, in people's numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from batches.store.queries import run_query


@dataclass(frozen=True, slots=True)
class Counts:
    """People's numbers: items in flight count as submitted. The first five sum to `total`."""

    pending: int
    submitted: int
    confirmed: int
    failed: int
    abandoned: int
    #: of the submitted ones, those of which nobody knows whether they arrived
    in_doubt: int
    total: int
    #: of the submitted ones, those whose answer is still to come
    inflight: int

    @classmethod
    def from_row(cls, row: dict[str, Any]) -> Counts:
        """From a shard's counters, where items in flight are counted as pending."""
        return cls(
            pending=row["pending"] - row["inflight"],
            submitted=row["submitted"] + row["inflight"],
            **{
                name: row[name]
                for name in ("confirmed", "failed", "abandoned", "in_doubt", "total", "inflight")
            },
        )

    def as_json(self) -> dict[str, int]:
        return {
            "total": self.total,
            "pending": self.pending,
            "submitted": self.submitted,
            "confirmed": self.confirmed,
            "failed": self.failed,
            "abandoned": self.abandoned,
            "in_doubt": self.in_doubt,
        }


def job_counts(job_id: int) -> Counts:
    """Sums over the job's shards, all zero while it has none."""
    return Counts.from_row(run_query("report_counts", job=job_id)[0])
