"""One turn of a lane in a process of its own: python -m tests.drills.one_turn [SECONDS].

It begins when its standard input says so, by a line or its end.
"""

from __future__ import annotations

import sys

import django


def main(seconds: float) -> None:
    django.setup()
    from batches.engine.lane import Turn
    from batches.engine.state import TurnOptions
    from batches.tasks import run_turn

    options = TurnOptions(turn=seconds, hard_turn=30, lease=2.0, tick=0.1, idle=0.5)
    sys.stdin.readline()
    print(run_turn(Turn(worker="drill", options=options)), flush=True)


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 20.0)
