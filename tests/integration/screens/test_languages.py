"""Every page in English and in Chinese, without a word of the other language."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from html.parser import HTMLParser
from typing import Any

import pytest
from django.conf import settings
from django.contrib import admin
from django.contrib.auth.models import User
from django.core.files.uploadedfile import SimpleUploadedFile
from django.shortcuts import render
from django.test import Client, RequestFactory
from django.urls import URLPattern, URLResolver, resolve, reverse
from django.utils import translation

from batches.domain.states import JobStatus
from batches.models import Job
from tests.factories import items_of, make_user

from .everything import FAILURES, Everything, build

pytestmark = pytest.mark.django_db

CHINESE = re.compile(r"[\u3000-\u303f\u3400-\u9fff\uf900-\ufaff\uff00-\uffef]+")
ERROR_PAGES = ("403.html", "403_csrf.html", "404.html", "500.html", "locked.html")


class _Seen(HTMLParser):
    """What a person reads or hears; parts marked as another language (`lang`) are left out."""

    _VOID = frozenset({"br", "hr", "img", "input", "link", "meta"})
    _SAID = frozenset({"title", "alt", "placeholder", "aria-label", "aria-description", "label"})

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.language = ""
        self._silent = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = dict(attrs)
        if tag == "html":
            self.language = named.get("lang") or ""
        elif self._silent or tag in ("script", "style") or named.get("lang"):
            self._silent += tag not in self._VOID
            return
        for name, value in attrs:
            words = name in self._SAID or (name.startswith("data-") and name != "data-action")
            if value and (words or (name == "value" and named.get("type") == "submit")):
                self.texts.append(value)

    def handle_endtag(self, tag: str) -> None:
        self._silent = max(0, self._silent - 1)

    def handle_data(self, data: str) -> None:
        if not self._silent and data.strip():
            self.texts.append(data.strip())


def seen(response: Any) -> _Seen:
    parser = _Seen()
    body = b"".join(response.streaming_content) if response.streaming else response.content
    parser.feed(body.decode("utf-8-sig"))
    return parser


def _client(language: str) -> Client:
    user = make_user(username="1001")
    User.objects.filter(pk=user.pk).update(is_superuser=True)
    client = Client()
    client.force_login(user)
    client.cookies[settings.LANGUAGE_COOKIE_NAME] = language
    return client


def own_pages(everything: Everything) -> Iterator[tuple[str, dict[str, Any]]]:
    """Addresses of the console's own pages, with what the request carries."""
    running, account = everything.running.pk, everything.account.pk
    fragment = {"headers": {"HX-Request": "true"}}
    for name in ("index", "jobs", "job_new", "reconcile", "accounts", "audit", "alerts"):
        yield reverse(f"admin:{name}"), {}
    yield reverse("admin:jobs") + "?q=999", {}
    yield reverse("admin:jobs") + "?tab=budget", {}
    for source in (everything.jobs["scheduled"].pk, everything.jobs["completed"].pk, 0):
        yield reverse("admin:job_new") + f"?from={source}", {}
    for job in everything.jobs.values():
        yield reverse("admin:job", args=[job.pk]), {}
        yield reverse("admin:job_live", args=[job.pk]), fragment
    asked = ("running", "completed", "terminated", "paused stage", "paused budget")
    for job in (everything.jobs[name] for name in asked):
        yield reverse("admin:job_shards", args=[job.pk]), {}
        for dialog in ("cancel", "terminate", "stage", "budget", "retry"):
            yield reverse(f"admin:job_{dialog}", args=[job.pk]), {}
            yield reverse(f"admin:job_{dialog}", args=[job.pk]), fragment
    for name in ("job_failures", "job_limits", "job_failures_csv"):
        yield reverse(f"admin:{name}", args=[running]), {}
    for category in FAILURES:
        yield reverse("admin:job_category", args=[running, category]) + "?code=500", {}
    for ordinal in range(1, everything.running.shards.count() + 1):
        yield reverse("admin:job_shard", args=[running, ordinal]), {}
    for item in items_of(everything.running):
        yield reverse("admin:job_item", args=[running, item.pk]), {}
    yield reverse("admin:reconcile") + f"?job={running}&kind=unconfirmed", {}
    yield reverse("admin:job_rejections", args=[everything.jobs["rejected"].pk]), {}
    yield reverse("admin:account_active", args=[account]), {}
    yield reverse("admin:account_test", args=[account]), {}
    yield reverse("admin:password_change"), {}


def stock_pages(everything: Everything, user_id: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Addresses of the forms that are Django's, with our words in them."""
    user = User.objects.get(pk=user_id)
    owned = {
        "batches_gateway": everything.account.gateway_id,
        "batches_account": everything.account.pk,
        "auth_user": user.pk,
        "auth_group": user.groups.all()[0].pk,
    }
    for model, pk in owned.items():
        yield reverse(f"admin:{model}_add"), {}
        yield reverse(f"admin:{model}_changelist"), {}
        for page in ("change", "history", "delete"):
            yield reverse(f"admin:{model}_{page}", args=[pk]), {}
    yield reverse("admin:auth_user_password_change", args=[user.pk]), {}
    yield reverse("admin:password_change_done"), {}
    for app in ("batches", "auth"):
        yield reverse("admin:app_list", args=[app]), {}


def acts(everything: Everything) -> Iterator[tuple[str, dict[str, Any]]]:
    """What is posted and what is answered: done, refused, in conflict, filled in wrongly."""
    jobs, running = everything.jobs, everything.running
    to_running = {
        "cancel": {},
        "terminate": {"reason": "1", "confirm_name": "2"},
        "stage": {},
        "rate": {"per_min": "0"},
        "budget": {"to": "1", "reason": "1"},
        "limits": {"set": "hours", "window_from": "9", "window_to": "10"},
        "retry": {"category": "1"},
    }
    for name, form in to_running.items():
        yield reverse(f"admin:job_{name}", args=[running.pk]), {"version": running.version} | form
        stale = {"version": running.version + 1, "reason": "1"} | form
        yield reverse(f"admin:job_{name}", args=[running.pk]), stale
        ended = reverse(f"admin:job_{name}", args=[jobs["cancelled"].pk])
        yield ended, {"version": 0, "reason": "1", "confirm_name": jobs["cancelled"].name} | form
    yield reverse("admin:reconcile_mark"), {}
    yield reverse("admin:reconcile_mark"), {"delivered": "1"}
    doubtful = items_of(running, "submitted")[0]
    for _again in range(2):
        marked = {"delivered": "1", "reason": "1", "item": f"{running.pk}:{doubtful.pk}"}
        yield reverse("admin:reconcile_mark"), marked
    yield reverse("admin:account_active", args=[everything.account.pk]), {"active": "0"}
    yield reverse("admin:account_test", args=[everything.account.pk]), {"target": "x y"}
    for _again in range(2):
        yield reverse("admin:account_restore", args=[everything.signed_out.pk]), {}
    for columns in (b"", b"1,2\n3,4\n"):
        file = {"file": SimpleUploadedFile("1.csv", columns)} if columns else {}
        typed = {"action": "send_text", "send_text.content": "", "stages": "1,x", "budget": "x"}
        yield reverse("admin:job_new"), typed | file
    yield reverse("admin:shard_pause", args=[running.pk, 1]), {"version": running.version}
    for name in ("pause", "resume"):
        version = Job.objects.get(pk=running.pk).version
        yield reverse(f"admin:job_{name}", args=[running.pk]), {"version": version}
    awaiting = jobs[JobStatus.AWAITING]
    yield reverse("admin:job_confirm", args=[awaiting.pk]), {"version": awaiting.version}


def _all(client: Client, everything: Everything, *, stock: bool) -> Iterator[tuple[str, _Seen]]:
    """Every page and every answer, as it is read."""
    language = client.cookies[settings.LANGUAGE_COOKIE_NAME].value
    addresses = [*own_pages(everything)]
    if stock:
        addresses += stock_pages(everything, int(client.session["_auth_user_id"]))
    for address, carried in addresses:
        response = client.get(address, follow=True, **carried)
        assert response.status_code in (200, 204, 403, 409), address
        yield address, seen(response)
    for address, form in acts(everything):
        response = client.post(address, form, follow=True)
        assert response.status_code in (200, 403, 409, 422), address
        yield f"POST {address}", seen(response)
    nobody = Client()
    nobody.cookies[settings.LANGUAGE_COOKIE_NAME] = language
    sign_in = reverse("admin:login")
    yield sign_in, seen(nobody.get(sign_in))
    yield sign_in, seen(nobody.post(sign_in, {"username": "1", "password": "2"}))
    yield sign_in, seen(nobody.post(sign_in, {}))
    nobody.force_login(make_user(username="1002"))
    for name in ("admin:jobs", "admin:login"):
        yield f"without a role: {name}", seen(nobody.get(reverse(name)))
    for name in ERROR_PAGES:
        with translation.override(language):
            yield name, seen(render(RequestFactory().get("/"), name))


def test_every_page_in_english_shows_no_chinese() -> None:
    client = _client("en")
    everything = build(latin=True, operator=User.objects.get(username="1001"))
    found = {
        (address, text)
        for address, page in _all(client, everything, stock=True)
        for text in page.texts
        if CHINESE.search(text) or page.language not in ("", "en")
    }
    assert found == set()


def test_every_page_tells_its_time_zone_once() -> None:
    client = _client("zh-hans")
    everything = build(latin=False, operator=User.objects.get(username="1001"))
    for address, carried in own_pages(everything):
        if carried or address.partition("?")[0].endswith((".csv", "/live/")):
            continue
        response = client.get(address)
        if response.status_code == 200:
            texts = "".join(seen(response).texts)
            assert texts.count(f"时间均为 {settings.TIME_ZONE}（UTC") == 1, address


#: what a Chinese page may say in Latin letters: names, units, and what is typed as it is
LATIN = {
    *("API", "CSV", "Excel", "HTTP", "ID", "IP", "JSON", "Redis", "URL"),
    *("KB", "MB", "be", "le", "ms", "big", "csv", "gb", "lanes", "utf", "worker", "xlsx"),
}
_NOT_WORDS = re.compile(
    r"https?://\S+|/[\w/{}.\-]+"  # addresses
    r"|（[a-z_]+\.[a-z_]+）"  # kinds of events in the audit's filter
    r"|\d{4}-\d\d-\d\dT\S+"  # times for machines
    r"|[A-Z]\w+/[A-Z]\w+（UTC[+-]\d{4}）"  # the time zone
)
_WORD = re.compile(r"[A-Za-z]{2,}")


def test_every_page_in_chinese_shows_no_english() -> None:
    client = _client("zh-hans")
    everything = build(latin=False, operator=User.objects.get(username="1001"))
    found = {
        (address, text, word)
        for address, page in _all(client, everything, stock=False)
        for text in page.texts
        for word in _WORD.findall(_NOT_WORDS.sub(" ", text))
        if word not in LATIN or page.language not in ("", "zh-hans")
    }
    assert found == set()


#: answered with a redirect or a file, or by Django for its own widgets
_NO_PAGE = {
    "logout",
    "autocomplete",
    "jsi18n",
    "view_on_site",
    "job_reread",
    "shard_resume",
}


def test_every_address_of_the_site_is_among_those_looked_at() -> None:
    client = _client("en")
    everything = build(latin=True, operator=User.objects.get(username="1001"))
    looked_at = [
        *own_pages(everything),
        *stock_pages(everything, int(client.session["_auth_user_id"])),
        *acts(everything),
    ]
    names = {resolve(address.partition("?")[0]).url_name for address, _carried in looked_at}
    names.add("login")
    assert _names(admin.site.urls[0]) - names == _NO_PAGE


def _names(patterns: Iterable[URLPattern | URLResolver]) -> set[str]:
    found: set[str] = set()
    for pattern in patterns:
        if isinstance(pattern, URLResolver):
            found |= _names(pattern.url_patterns)
        elif pattern.name:
            found.add(pattern.name)
    return found
