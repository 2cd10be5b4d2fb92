"""One spelling for one address."""

from __future__ import annotations

import pytest

from batches.domain.addresses import normal_url


@pytest.mark.parametrize(
    ("typed", "normal"),
    [
        ("HTTP://Gateway.Example:80/", "http://gateway.example"),
        ("https://gateway.example:443", "https://gateway.example"),
        ("https://gateway.example:80/", "https://gateway.example:80"),
        (" http://10.0.0.1:9100/Api/V1/ ", "http://10.0.0.1:9100/Api/V1"),
        ("http://[::1]:9100/", "http://[::1]:9100"),
        ("nonsense", "nonsense"),
        ("http://a:b", "http://a:b"),
        ("http://me:secret@host/", "http://me:secret@host/"),
    ],
)
def test_address_is_written_one_way(typed: str, normal: str) -> None:
    assert normal_url(typed) == normal
    assert normal_url(normal) == normal
