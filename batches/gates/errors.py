"""What a gate says when it cannot answer."""

from __future__ import annotations

from batches.domain.errors import BatchesError


class GateUnavailableError(BatchesError):
    """Redis does not answer, so nobody knows what is allowed: sending waits until it does."""
