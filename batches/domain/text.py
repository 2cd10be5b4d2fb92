"""Marker for strings that are translated at the edge."""


def N_(message: str) -> str:  # noqa: N802 - the conventional gettext marker name
    """Mark `message` for the catalogue and return it unchanged.

    `domain` knows no Django, so whoever shows the string calls gettext on it.
    """
    return message
