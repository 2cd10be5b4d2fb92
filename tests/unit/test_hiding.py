"""What is struck out of words that are kept."""

from __future__ import annotations

import pytest

from batches.domain.categories import Category
from batches.domain.hiding import hide, hide_in, host_of
from batches.domain.outcomes import NotSent, Refused, Unknown


@pytest.mark.parametrize(
    ("text", "secret", "left"),
    [
        ("bad s3cret-token, s3cret-token!", "s3cret-token", "bad ***, ***!"),
        ("cut within s3cret-t", "s3cret-token", "cut within ***"),
        ("an end in s3", "s3cret-token", "an end in s3"),
        ("token a is bad", "a", "token a is bad"),
        ("as it was", "", "as it was"),
    ],
)
def test_hide_strikes_out_the_secret_alone(text: str, secret: str, left: str) -> None:
    assert hide(text, secret) == left


def test_hide_in_an_outcome_reaches_all_its_words() -> None:
    refused = Refused(Category.TARGET_INVALID, "s3cret", "s3cret", retry_after=2.0)
    assert hide_in(refused, "s3cret") == Refused(Category.TARGET_INVALID, "***", "***", 2.0)
    assert hide_in(NotSent(Category.LOST, "s3cret"), "s3cret").message == "***"
    assert hide_in(Unknown(Category.RESET, "s3cret"), "s3cret").message == "***"


def test_host_of_an_address_holds_no_credentials() -> None:
    assert host_of("https://user:pass@gw.example.com:8443/x?key=1") == "gw.example.com:8443"
    assert host_of("http://10.0.0.1") == "10.0.0.1"
    assert host_of("nothing") == ""
