"""The main job as a person does it: real browser, web, workers, gateway, PostgreSQL and Valkey."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.request
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.conf import settings
from playwright.sync_api import Browser, Page, expect

from tests.tooling.processes import wait_until

ROOT = Path(__file__).resolve().parents[2]
PASSWORD = "a long enough password"
ACCOUNTS, PER_ACCOUNT = 6, 40


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


@dataclass(frozen=True)
class Console:
    """A whole running installation of its own."""

    url: str
    gateway: str
    env: dict[str, str]

    def manage(self, *words: str) -> str:
        done = subprocess.run(
            [sys.executable, "manage.py", *words],
            cwd=ROOT,
            env=self.env,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert done.returncode == 0, (words, done.stdout, done.stderr)
        return done.stdout

    def report(self, job_id: int) -> dict[str, Any]:
        return dict(json.loads(self.manage("job_report", str(job_id), "--json")))

    def received(self, content: str) -> list[tuple[str, str]]:
        """(account, customer) of every message of this content that took effect."""
        with urllib.request.urlopen(f"{self.gateway}/_sim/calls", timeout=20) as answer:
            effects = [json.loads(line) for line in answer if line.strip()]
        return [(e["guid"], e["target"]) for e in effects if content in e["content"]]


def _database() -> tuple[str, psycopg.Connection[Any], str]:
    """A fresh database beside that of the tests: (its URI, an admin connection, its name)."""
    uri = os.environ["DATABASE_URL"]
    name = f"e2e_{uuid.uuid4().hex[:8]}"
    admin = psycopg.connect(uri, autocommit=True, dbname="postgres")
    admin.execute(f'create database "{name}"')
    info = psycopg.conninfo.conninfo_to_dict(uri)
    info["dbname"] = name
    query = "&".join(f"{k}={v}" for k, v in info.items() if k != "dbname")
    return f"postgresql:///{name}?{query}", admin, name


def _redis_url() -> str:
    return re.sub(r"/\d*$", "", settings.REDIS_URL) + "/15"


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Console]:
    """Migrated, seeded and running: simulator, one lane, control worker, periodic work, web."""
    folder = tmp_path_factory.mktemp("console")
    uri, admin, name = _database()
    port, gateway_port = _free_port(), _free_port()
    env = os.environ | {
        "DATABASE_URL": uri,
        "REDIS_URL": _redis_url(),
        "DJANGO_SETTINGS_MODULE": "wecom_ops.settings",
        "SECRET_KEY": "end-to-end-" + "x" * 50,
        "HTTPS": "off",
        "ALLOWED_HOSTS": "127.0.0.1",
        "PORT": str(port),
        "STATIC_ROOT": str(folder / "static"),
        "DJANGO_SUPERUSER_PASSWORD": PASSWORD,
    }
    running = Console(f"http://127.0.0.1:{port}", f"http://127.0.0.1:{gateway_port}", env)
    children: list[subprocess.Popen[bytes]] = []

    def start(*words: str) -> None:
        with (folder / f"{words[0]}.log").open("wb") as log:
            children.append(
                subprocess.Popen(
                    [sys.executable, "manage.py", *words],
                    cwd=ROOT,
                    env=env,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                )
            )

    try:
        running.manage("migrate", "--verbosity", "0")
        start(
            "simulate_gateway", "--port", str(gateway_port), "--no-limits", "--latency-ms", "5-30"
        )
        start("stack", "--lanes", "1")
        # while they come up
        running.manage(
            "createsuperuser", "--noinput", "--username", "admin", "--email", "a@example.com"
        )
        accounts = folder / "accounts.csv"
        accounts.write_text(
            "gateway_kind,gateway_url,guid,name,total_rate_per_min\n"
            + "".join(
                f"wecomapi,{running.gateway},16888500000000{n:02},客服{n:02}号,240\n"
                for n in range(ACCOUNTS)
            ),
            encoding="utf-8",
        )
        running.manage("load_accounts", str(accounts))

        def healthy() -> bool:
            try:
                with urllib.request.urlopen(f"{running.url}/healthz", timeout=2) as answer:
                    return bool(answer.status == 200)
            except OSError:
                return False

        assert wait_until(healthy, 60), (folder / "stack.log").read_text()[-3000:]
        yield running
    finally:
        for child in reversed(children):
            child.send_signal(signal.SIGTERM)
        for child in reversed(children):
            try:
                child.wait(15)
            except subprocess.TimeoutExpired:
                child.kill()
        admin.execute(f'drop database if exists "{name}" with (force)')
        admin.close()


def customers(encoding: str) -> bytes:
    """A file as Excel in China saves it: quoted line breaks and commas, Chinese names."""
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(["账号", "客户ID", "客户姓名", "备注"])
    for n in range(ACCOUNTS * PER_ACCOUNT):
        note = "多行\n备注" if n % 7 == 0 else "渠道：门店,扫码" if n % 5 == 0 else ""
        writer.writerow([f"16888500000000{n % ACCOUNTS:02}", f"78813000{n:08}", f"毛钱{n}", note])
    return text.getvalue().encode(encoding)


@pytest.fixture
def page(console: Console, browser: Browser) -> Iterator[Page]:
    """A signed-in window."""
    context = browser.new_context(base_url=console.url, viewport={"width": 1440, "height": 900})
    window = context.new_page()
    window.goto("/admin/")
    window.fill("#id_username", "admin")
    window.fill("#id_password", PASSWORD)
    window.press("#id_password", "Enter")
    expect(window.locator("h1", has_text="总览")).to_be_visible()
    yield window
    context.close()


def upload(page: Page, content: str) -> int:
    """Create a job from the file and wait for its preview; returns its number."""
    page.goto("/admin/jobs/new/")
    page.locator("textarea:visible").first.fill(content)
    page.set_input_files(
        "#file",
        {"name": "客户.csv", "mimeType": "text/csv", "buffer": customers("gb18030")},
    )
    page.locator("main form button[type=submit]").last.click()
    page.wait_for_url(re.compile(r"/admin/jobs/\d+/$"))
    expect(page.get_by_role("button", name="确认并启动 240 条")).to_be_visible(timeout=30_000)
    return int(page.url.rstrip("/").rsplit("/", 1)[1])


def test_job_by_upload_is_confirmed_paused_continued_and_ends_with_every_item_sent_once(
    console: Console, page: Page
) -> None:
    job_id = upload(page, "您好 {客户姓名}，秋季活动")
    expect(page.get_by_text("您好 毛钱0，秋季活动")).to_be_visible()

    page.get_by_role("button", name="确认并启动 240 条").click()
    expect(page.locator("#job-head")).to_contain_text("运行中")
    assert wait_until(lambda: len(console.received("秋季活动")) > 10, 30)

    page.get_by_role("button", name="暂停").click()
    expect(page.locator("#job-head")).to_contain_text("已暂停", timeout=20_000)
    at_pause = len(console.received("秋季活动"))
    assert at_pause < ACCOUNTS * PER_ACCOUNT
    assert console.report(job_id)["items"]["pending"] == ACCOUNTS * PER_ACCOUNT - at_pause

    page.get_by_role("button", name="继续").click()
    # nobody touches the page: it shows the end by itself
    expect(page.locator("#job-head")).to_contain_text("已完成", timeout=60_000)

    sent = console.received("秋季活动")
    assert len(sent) == len(set(sent)) == ACCOUNTS * PER_ACCOUNT
    report = console.report(job_id)
    assert report["items"]["confirmed"] == report["items"]["total"] == ACCOUNTS * PER_ACCOUNT
    console.manage("verify")


def test_same_upload_again_opens_the_job_that_is_already_there(
    console: Console, page: Page
) -> None:
    first = upload(page, "同一份 {客户姓名}")
    page.goto("/admin/jobs/new/")
    page.locator("textarea:visible").first.fill("同一份 {客户姓名}")
    page.set_input_files(
        "#file", {"name": "客户.csv", "mimeType": "text/csv", "buffer": customers("gb18030")}
    )
    page.locator("main form button[type=submit]").last.click()
    page.wait_for_url(re.compile(rf"/admin/jobs/{first}/$"))
    assert console.received("同一份") == []


def test_cancel_in_mid_run_abandons_the_rest_and_sends_nothing_more(
    console: Console, page: Page
) -> None:
    job_id = upload(page, "限时 {客户姓名}")
    page.get_by_role("button", name="确认并启动 240 条").click()
    assert wait_until(lambda: len(console.received("限时")) > 5, 30)

    page.locator("#do-cancel").click()
    dialog = page.locator("dialog[open]")
    expect(dialog).to_contain_text("不撤销已经发出的")
    dialog.get_by_label(re.compile("原因")).fill("名单有误")
    dialog.get_by_role("button", name=re.compile("取消")).last.click()
    expect(page.locator("#job-head")).to_contain_text("已取消", timeout=30_000)

    items = console.report(job_id)["items"]
    sent = console.received("限时")
    assert len(sent) == len(set(sent)) == items["confirmed"]
    assert items["confirmed"] + items["abandoned"] == items["total"]
    assert items["abandoned"] > 0
    expect(page.get_by_text("名单有误")).to_be_visible()
    console.manage("verify")
