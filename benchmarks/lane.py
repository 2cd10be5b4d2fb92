"""One turn of a lane in a process of its own, watched; prints what was seen as JSON.

python -m benchmarks.lane [--turn S] [--idle S] [--lateness] [--sample]
"""

from __future__ import annotations

import argparse
import json

import django


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turn", type=float, default=250.0)
    parser.add_argument("--idle", type=float, default=0.5)
    parser.add_argument("--lateness", action="store_true")
    parser.add_argument("--sample", action="store_true")
    options = parser.parse_args()
    django.setup()

    from batches.engine.lane import Turn
    from batches.engine.state import TurnOptions
    from batches.tasks import run_turn
    from benchmarks.steps import Steps, unwatch, watch

    steps = Steps()
    watch(steps, sample=options.sample, lateness=options.lateness)
    result = run_turn(Turn(options=TurnOptions(turn=options.turn, idle=options.idle)))
    unwatch(steps)
    print(json.dumps({"sent": result.sent, "reason": result.reason, **steps.told()}))


if __name__ == "__main__":
    main()
