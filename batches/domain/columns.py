"""Column names: the canonical keys, the headers that mean them, and how headers are compared."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping

ACCOUNT, TARGET, NAME, TAGS = "account", "target", "name", "tags"

ACCOUNT_ALIASES = (
    "账号", "帐号", "账号标识", "账号ID", "企微账号", "员工账号", "客服账号", "发送账号",
    "account", "account_id", "guid", "sender",
)  # fmt: skip
CUSTOMER_ALIASES = (
    "客户ID", "客户标识", "客户编号", "外部联系人ID", "外部联系人", "联系人ID", "目标", "目标ID",
    "external_userid", "external_user_id", "external_id", "customer_id", "contact_id",
    "toId", "target", "target_id",
)  # fmt: skip
GROUP_ALIASES = (
    "群ID", "群标识", "群编号", "客户群ID", "群聊ID", "目标", "目标ID",
    "chat_id", "roomId", "group_id", "toId", "target", "target_id",
)  # fmt: skip
NAME_ALIASES = (
    "姓名", "名称", "客户姓名", "客户名称", "备注名", "昵称", "联系人姓名", "群名", "群名称",
    "name", "customer_name", "remark_name", "nickname", "room_name",
)  # fmt: skip
TAG_ALIASES = (
    "标签", "标签ID", "客户标签", "标签列表",
    "tags", "tag", "tag_id", "tag_ids", "label", "labels", "label_id", "label_ids",
)  # fmt: skip

_INVISIBLE = dict.fromkeys(map(ord, "\ufeff\u200b\u200c\u200d\u2060"))
_SEPARATORS = re.compile(r"[\s_\-]+")


def normal_header(text: str) -> str:
    """A header as it is compared for exact equality: folded widths, no invisible ends."""
    return unicodedata.normalize("NFKC", text.translate(_INVISIBLE)).strip()


def folded_header(text: str) -> str:
    """A header as it is compared with aliases: case, spaces, `_` and `-` do not count."""
    return _SEPARATORS.sub("", normal_header(text)).casefold()


_KEY_BY_ALIAS: Mapping[str, str] = {
    folded_header(alias): key
    for key, aliases in (
        (TAGS, TAG_ALIASES),
        (NAME, NAME_ALIASES),
        (TARGET, CUSTOMER_ALIASES + GROUP_ALIASES),
        (ACCOUNT, ACCOUNT_ALIASES),
    )
    for alias in aliases
}


def canonical_key(header: str) -> str | None:
    """The key (`account`, `target`, `name`, `tags`) that a header or alias means, if any."""
    return _KEY_BY_ALIAS.get(folded_header(header))
