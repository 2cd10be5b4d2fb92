"""A supervisor over small fake services, run as a program by test_supervisor."""

from __future__ import annotations

import signal
import sys

from wecom_ops.local.supervisor import Service, Supervisor

WORKER = """
import os, signal, sys, time
name, patience = sys.argv[1], float(sys.argv[2])
stopping = []
signal.signal(signal.SIGTERM, lambda *_: stopping.append(1))
print(f"{name} up {os.getpid()}", flush=True)
while not stopping:
    signal.pause()
time.sleep(patience)
print(f"{name} stopping", flush=True)
print("x" * 200_000, flush=True)
sys.stdout.write(f"{name} last words")
"""
STUBBORN = """
import os, signal, subprocess, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
helper = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
print(f"stubborn up {os.getpid()} {helper.pid}", flush=True)
while True:
    signal.pause()
"""
PYTHON = (sys.executable, "-c")


def main() -> None:
    Supervisor(
        [
            Service(name="lane", command=(*PYTHON, WORKER, "lane", "0.3"), ladder=((15, 8.0),)),
            Service(name="stubborn", command=(*PYTHON, STUBBORN), ladder=((15, 0.5), (15, 0.5))),
            Service(name="broken", command=(*PYTHON, "print('broken up'); raise SystemExit(3)")),
            Service(
                name="web",
                command=(*PYTHON, WORKER, "web", "0"),
                stop_stage=1,
                ladder=((signal.SIGTERM, 2.0),),
            ),
        ]
    ).run()
    print("all stopped", flush=True)


if __name__ == "__main__":
    main()
