"""The cyclic garbage collector during a turn."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

#: objects that are made and kept before the collector looks at the young ones
YOUNG = 50_000


@contextmanager
def few_collections() -> Iterator[None]:
    """Have the collector look rarely, and never at what was there before.

    A turn makes dozens of objects per item, nearly all of them gone with the item and hardly one
    in a cycle. Left alone, the collector goes through them every few hundred, and through the
    whole framework now and then: a third of a busy lane's time.
    """
    before = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG, 20, 50)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()
