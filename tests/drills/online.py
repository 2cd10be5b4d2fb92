"""Test sends through one account for a while: python -m tests.drills.online GUID SECONDS."""

from __future__ import annotations

import json
import sys
import time
from collections import Counter

import django

#: how they are told apart in the gateway's record
CONTENT = "online"


def main(guid: str, seconds: float) -> None:
    django.setup()
    from batches.models import Account
    from batches.services.test_send import send_test

    account = Account.objects.get(guid=guid)
    outcomes: Counter[str] = Counter()
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        result = send_test(
            account_id=account.pk, target="7881399000000011", content=CONTENT, actor=None
        )
        outcomes[result.outcome] += 1
        time.sleep(0.5)
    print(json.dumps(outcomes), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]))
