"""Who a command acts for, as the audit names them."""

from __future__ import annotations

import os
import pwd
import socket

from batches.domain.actors import Shell


def shell() -> Shell:
    """The machine's user behind this process; a number where the machine knows no name."""
    try:
        user = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        user = str(os.getuid())
    return Shell(user=user, host=socket.gethostname())
