"""Makes the sample files of this folder; the same every time.

python examples/make_examples.py
"""

from __future__ import annotations

import csv
import random
from collections.abc import Iterable, Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parent
GATEWAY_URL = "http://127.0.0.1:9100"
ACCOUNTS = 20
CUSTOMERS = 200
FAMILY = "赵钱孙李周吴郑王冯陈褚卫蒋沈韩杨朱秦尤许何吕施张毛梅权"
GIVEN = ["安", "宁", "乐", "小满", "子墨", "雨桐", "若溪", "一诺", "明轩", "思远", "佳怡", "晨曦"]
CITIES = ["杭州", "苏州", "成都", "西安", "厦门", "青岛", "长沙", "乌鲁木齐"]
NOTES = ["", "", "", "老客户", "喜欢周末联系", "生日在三月，送过礼", '自称"阿明"', "第一行\n第二行"]
CUSTOMER_HEADER = ["账号", "客户ID", "姓名", "城市", "备注"]


def write(name: str, header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """A CSV as a spreadsheet writes "CSV UTF-8": with a mark (BOM) and CRLF."""
    with (HERE / name).open("w", encoding="utf-8-sig", newline="") as handle:
        writer = csv.writer(handle)
        writer.writerow(header)
        writer.writerows(rows)


def account(number: int) -> str:
    return f"16888590000{number:05}"


def customers(count: int) -> list[list[str]]:
    chance = random.Random(20)
    return [
        [
            account(number % ACCOUNTS + 1),
            f"78813990000{number * 37 + 11:05}",
            chance.choice(FAMILY) + chance.choice(GIVEN),
            chance.choice(CITIES),
            chance.choice(NOTES),
        ]
        for number in range(count)
    ]


def damage(rows: list[list[str]]) -> None:
    """Faults that careless hands leave, one kind to a few rows."""
    for row in rows[3:40:12]:
        row[1] = f"{int(row[1]):.5E}"  # an id shown as a number in a spreadsheet
    rows[6] = list(rows[5])  # a row pasted twice
    rows[21] = list(rows[20])
    for row in rows[9:40:15]:
        row[0] = "1688859000099999"  # an account that nobody has
    for row in rows[12:40:13]:
        row[2] = ""  # no name to greet with
    rows[17].append("多出来的一格")  # a comma too many
    rows[30][1] += "\t"  # harmless: a tab that kept the id a text


def main() -> None:
    write(
        "accounts.csv",
        (
            *("gateway_kind", "gateway_url", "guid", "name"),
            *("total_rate_per_min", "online_reserve_per_min", "max_inflight"),
        ),
        (
            ("wecomapi", GATEWAY_URL, account(number), f"示例账号{number:02}", 600, 60, 1)
            for number in range(1, ACCOUNTS + 1)
        ),
    )
    write("customers.csv", CUSTOMER_HEADER, customers(CUSTOMERS))
    damaged = customers(40)
    damage(damaged)
    write("customers_damaged.csv", CUSTOMER_HEADER, damaged)


if __name__ == "__main__":
    main()
