"""Ids of the iPad-protocol gateways that tell what they belong to."""

from __future__ import annotations

import re

#: a group, as opposed to a customer or a member of the staff
GROUP_ID = re.compile(r"10[0-9]{14,15}")
