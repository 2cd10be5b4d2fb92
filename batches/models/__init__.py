"""Tables: columns, constraints and indexes. State columns are written by `store` only."""

from .accounts import Account, Contact, Gateway
from .files import Rejection, Upload, UploadChunk
from .items import Call, Item, JobMinute
from .jobs import Job, Shard
from .ops import Alert, Event, Lane

__all__ = [
    "Account",
    "Alert",
    "Call",
    "Contact",
    "Event",
    "Gateway",
    "Item",
    "Job",
    "JobMinute",
    "Lane",
    "Rejection",
    "Shard",
    "Upload",
    "UploadChunk",
]
