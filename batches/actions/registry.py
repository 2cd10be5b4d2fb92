"""The actions by name."""

from __future__ import annotations

from django.conf import settings

from batches.domain.errors import InvalidInputError
from batches.domain.problems import Names, Problem
from batches.domain.text import N_

from .base import Action
from .send_text import SendText
from .set_group_welcome import SetGroupWelcome
from .tag_customers import TagCustomers


def all_actions() -> tuple[Action, ...]:
    """Every action, in the order in which they are offered."""
    max_bytes = settings.MESSAGE_MAX_BYTES
    return (
        SendText(max_bytes=max_bytes),
        SetGroupWelcome(max_bytes=max_bytes),
        TagCustomers(),
    )


def get_action(name: str) -> Action:
    """The action of a name. Raises InvalidInputError for an unknown one."""
    actions = {action.name: action for action in all_actions()}
    try:
        return actions[name]
    except KeyError:
        raise InvalidInputError(
            Problem(
                "action_unknown",
                N_("不认识的动作“%(name)s”。可用：%(known)s。"),
                {"name": name, "known": Names(actions)},
            )
        ) from None
