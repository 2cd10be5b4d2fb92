"""Accounts from a file."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command

from batches.domain.errors import InvalidInputError, NotAllowedError
from batches.domain.problems import Problem
from batches.intake.source import source_of
from batches.models import Account, Event, Gateway
from batches.services.accounts import load_accounts
from tests.factories import make_account, make_gateway, make_user

pytestmark = pytest.mark.django_db
HEADER = "gateway_kind,gateway_url,guid,name,total_rate_per_min,online_reserve_per_min,max_inflight"


def load(*rows: str, header: str = HEADER, encoding: str = "utf-8") -> list[tuple[str, int]]:
    data = "\r\n".join((header, *rows)).encode(encoding)
    found = load_accounts(actor=None, source=source_of("accounts.csv", data))
    return [(gateway.gateway_url, gateway.accounts) for gateway in found]


def refusals(*rows: str, header: str = HEADER) -> list[str]:
    before = list(Account.objects.values())
    with pytest.raises(InvalidInputError) as caught:
        load(*rows, header=header)
    assert list(Account.objects.values()) == before
    return [str(problem) for problem in caught.value.problems]


def test_load_makes_gateways_and_accounts() -> None:
    told = load(
        "wecomapi,http://10.0.0.1:9100/,1688850000000001,客服一号,90,30,2",
        "wecomapi,http://10.0.0.1:9100,1688850000000002\t,客服二号,,,",
        ",http://10.0.0.2:9100,1688850000000001,,,,",
        encoding="gb18030",
    )
    assert told == [("http://10.0.0.1:9100", 2), ("http://10.0.0.2:9100", 1)]
    first = Account.objects.get(name="客服一号")
    assert (first.total_rate_per_min, first.online_reserve_per_min, first.max_inflight) == (
        90,
        30,
        2,
    )
    second = Account.objects.get(guid="1688850000000002")
    assert (second.total_rate_per_min, second.online_reserve_per_min, second.max_inflight) == (
        60,
        0,
        1,
    )
    secrets = set(Gateway.objects.values_list("callback_secret", flat=True))
    assert len(secrets) == 2
    assert all(len(secret) >= 30 for secret in secrets)
    assert Event.objects.filter(kind="accounts.loaded").count() == 2


def test_load_again_changes_what_the_file_gives_and_nothing_else() -> None:
    gateway = make_gateway(base_url="http://10.0.0.1:9100")
    account = make_account(
        gateway=gateway, guid="g1", name="旧名", total_rate_per_min=90, max_inflight=3, throttle=0.5
    )
    load("http://10.0.0.1:9100,g1,新名,", header="gateway_url,guid,name,online_reserve_per_min")
    again = Account.objects.get(pk=account.pk)
    assert (again.name, again.total_rate_per_min, again.max_inflight) == ("新名", 90, 3)
    assert (again.throttle, again.online_reserve_per_min) == (0.5, 0)
    assert Gateway.objects.get().callback_secret == gateway.callback_secret


def test_every_faulty_row_is_named_and_nothing_is_changed() -> None:
    make_account(gateway=make_gateway(base_url="http://10.0.0.1"), guid="g1", name="旧名")
    found = refusals(
        "wecomapi,http://10.0.0.1,g1,新名,60,12,1",
        "wecomapi,ftp://10.0.0.1,g2,,60,12,1",
        "official,http://10.0.0.1,g3,,60,12,1",
        "wecomapi,http://10.0.0.1,1.68885E+15,,60,12,1",
        "wecomapi,http://10.0.0.1,g5,,0,0,1",
        "wecomapi,http://10.0.0.1,g6,,六十,12,1",
        "wecomapi,http://10.0.0.1,g7,,60,-1,99",
    )
    assert [sentence.split("：")[0] for sentence in found] == [
        "第 3 行",
        "第 4 行",
        "第 5 行",
        "第 6 行",
        "第 7 行",
        "第 8 行",
        "第 8 行",
    ]
    assert Account.objects.get().name == "旧名"


@pytest.mark.parametrize("ending", ["/?key=1", "/#top"])
def test_gateway_address_that_no_request_can_be_made_of_is_refused(ending: str) -> None:
    [said] = refusals(f"wecomapi,http://10.0.0.1:9100{ending},1688850000000001,,,,")
    assert "第 2 行" in said
    assert "不带参数" in said
    assert not Gateway.objects.exists()


def test_reserve_must_stay_below_the_total_also_of_a_known_account() -> None:
    make_account(gateway=make_gateway(base_url="http://10.0.0.1"), guid="g1", total_rate_per_min=30)
    assert "必须小于总速率 60" in refusals("wecomapi,http://10.0.0.1,g2,,60,60,1")[0]
    header = "gateway_url,guid,online_reserve_per_min"
    assert "必须小于总速率 30" in refusals("http://10.0.0.1,g1,30", header=header)[0]


def test_same_account_twice_is_refused() -> None:
    found = refusals("wecomapi,http://a.cn,g1,,,,", "wecomapi,http://a.cn/,g1,,,,")
    assert "第 3 行" in found[0]
    assert "第 2 行已有" in found[0]


def test_missing_columns_and_empty_files_are_refused() -> None:
    assert "网关地址" in refusals("g1", header="guid")[0]
    assert "没有数据行" in refusals()[0]


def test_load_needs_the_permission() -> None:
    with pytest.raises(NotAllowedError):
        load_accounts(actor=make_user("operate_job"), source=source_of("a.csv", b"x"))


def run(file: Path, capsys: pytest.CaptureFixture[str]) -> tuple[Any, str, int]:
    out, err, code = io.StringIO(), io.StringIO(), 0
    try:
        call_command("load_accounts", str(file), "--json", stdout=out, stderr=err)
    except SystemExit as stop:
        code = int(str(stop.code))
    return [json.loads(line) for line in out.getvalue().splitlines()], err.getvalue(), code


def test_command_prints_each_gateway(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "accounts.csv"
    file.write_text("gateway_url,guid\nhttp://a.cn,g1\nhttp://a.cn,g2\nhttp://b.cn,g1\n")
    told, _, code = run(file, capsys)
    assert code == 0
    assert [(line["gateway_url"], line["accounts"]) for line in told] == [
        ("http://a.cn", 2),
        ("http://b.cn", 1),
    ]
    secret = Gateway.objects.get(base_url="http://a.cn").callback_secret
    assert told[0]["callback_path"] == f"/callbacks/{secret}/"


def test_command_refuses_with_reasons(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "accounts.csv"
    file.write_text("gateway_url,guid\nhttp://a.cn,\n")
    (told,), err, code = run(file, capsys)
    assert code == 2
    assert told["problems"] == [{"code": "id_empty", "text": err.strip()}]
    assert "第 2 行" in err
    (told,), err, code = run(tmp_path / "missing.csv", capsys)
    assert (code, told["problems"][0]["code"]) == (2, "file_unreadable")


def test_problem_type_is_kept_for_translation() -> None:
    with pytest.raises(InvalidInputError) as caught:
        load("wecomapi,http://a.cn,,,,,")
    (problem,) = caught.value.problems
    assert isinstance(problem, Problem)
    assert isinstance(problem.params["why"], Problem)


def test_one_gateway_written_in_two_ways_is_one() -> None:
    """Two would each have the account's whole rate."""
    told = load(
        "wecomapi,http://gateway.example:80/,g1,,,,",
        "wecomapi,HTTP://GATEWAY.example,g2,,,,",
    )
    assert told == [("http://gateway.example", 2)]
    assert (
        "第 2 行已有"
        in refusals(
            "wecomapi,http://gateway.example,g3,,,,", "wecomapi,HTTP://gateway.example/,g3,,,,"
        )[0]
    )


@pytest.mark.parametrize("rate", ["0000000000019999999", "00000000000199999999999"])
def test_leading_zeros_do_not_get_a_number_past_its_range(rate: str) -> None:
    assert "1 到 100000 的整数" in refusals(f"wecomapi,http://a.cn,g1,,{rate},,")[0]
    load("wecomapi,http://a.cn,g1,,00000000000000090,,")
    assert Account.objects.get().total_rate_per_min == 90
