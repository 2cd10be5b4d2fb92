"""One spelling for one address."""

from __future__ import annotations

from urllib.parse import urlsplit

_USUAL = {"http": 80, "https": 443}


def normal_url(url: str) -> str:
    """Scheme and host in lower case, without the usual port and without a slash at the end.

    Two gateways at one address would each have limits of their own. What is no address comes back
    as it is, for others to refuse.
    """
    url = url.strip()
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return url
    if not parts.hostname or "@" in parts.netloc:
        return url
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    if port is not None and port != _USUAL.get(parts.scheme):
        host += f":{port}"
    return parts._replace(netloc=host, path=parts.path.rstrip("/")).geturl()
