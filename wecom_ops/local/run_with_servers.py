"""Runs one command with the servers' addresses in its environment, then stops them.

python -m wecom_ops.local.run_with_servers COMMAND [ARGUMENT …]
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Sequence

from wecom_ops.local.child import Child
from wecom_ops.local.files import LocalStackError, temporary_folder
from wecom_ops.local.servers import local_servers
from wecom_ops.local.stopping import Stopped, raise_on_signals


def run(command: Sequence[str], env: dict[str, str]) -> int:
    child = Child("command", command, env=env, foreground=True)
    try:
        code = child.process.wait()
    except Stopped as stopped:
        # A terminal has sent its Ctrl-C to the command as well; twice would be an abort.
        if not (stopped.number == signal.SIGINT and sys.stdin.isatty()):
            child.signal(stopped.number)
        child.wait(20)
        child.kill_session()
        return stopped.exit_code
    # A command ended by a signal is told the way shells do.
    return 128 - code if code < 0 else code


def main(command: Sequence[str]) -> int:
    home = temporary_folder()
    try:
        raise_on_signals()
        with local_servers(home, durable=False) as urls:
            return run(command, {**os.environ, **urls})
    except LocalStackError as error:
        print(error, file=sys.stderr)
        return 1
    except Stopped as stopped:
        return stopped.exit_code
    finally:
        shutil.rmtree(home, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
