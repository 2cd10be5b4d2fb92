"""The wire format as the gateways speak it: paths, methods, parameters, answers."""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Mapping
from typing import NamedTuple

#: One path for all, the operation named in the body; each with its own token header.
METHOD_PATHS: Mapping[str, str] = {
    "/wecom/finder/api": "WECOM-TOKEN",
    "/qiwe/api/qw/doApi": "X-QIWEI-TOKEN",
}
METHODS: Mapping[str, str] = {
    "/msg/sendText": "send_text",
    "/msg/sendGroupMsg": "send_group_msg",
    "/room/setWelcome": "set_group_welcome",
    "/label/contactEditLabel": "tag_customers",
    "/label/syncLabelList": "list_labels",
    "/room/getRoomList": "list_rooms",
    "/contact/getWxContactList": "list_contacts",
    "/login/checkLogin": "check_login",
}
#: The path dialect has one path per operation; for messages they begin otherwise.
PATHS: Mapping[str, str] = {
    **METHODS,
    "/message/sendText": "send_text",
    "/message/sendGroupMsg": "send_group_msg",
}

_CUSTOMER = re.compile("788[0-9]{13}")
_GROUP = re.compile("10[0-9]{14,15}")

MAX_TEXT_BYTES = 4000
MAX_TARGETS = 50
MAX_LABELS = 20
CONTACTS, ROOMS, LABELS = 200, 20, 8

PARAM, NO_TARGET, NO_TEXT, TEXT_TOO_LONG, TOO_MANY, BAD_LABEL = (
    40058,
    40003,
    44004,
    45002,
    40032,
    40068,
)
MESSAGES: Mapping[int, str] = {
    PARAM: "不合法的参数",
    NO_TARGET: "无效的UserID",
    NO_TEXT: "文本消息content参数为空",
    TEXT_TOO_LONG: "消息内容大小超过限制",
    TOO_MANY: "不合法的UserID列表长度",
    BAD_LABEL: "不合法的标签ID",
    45009: "接口调用超过限制",
    11024: "登录态已失效",
}


class Refusal(Exception):  # noqa: N818 - an answer, not a failure of the simulator
    """The request is refused with a code; nothing takes effect."""

    def __init__(self, code: int, message: str = "") -> None:
        super().__init__(code)
        self.code = code
        self.message = message or MESSAGES.get(code, "失败")


class Target(NamedTuple):
    """One target of a call."""

    id: str
    labels: tuple[str, ...] = ()
    #: the code that refuses this target alone; 0 for none
    refusal: int = 0


class Targets(NamedTuple):
    """What a call that changes something asks for."""

    each: tuple[Target, ...]
    content: str = ""
    #: the answer names each target in this field; empty where it speaks of the call alone
    listed_by: str = ""

    @property
    def ids(self) -> tuple[str, ...]:
        return tuple(target.id for target in self.each)


def read_targets(operation: str, params: Mapping[str, object]) -> Targets:
    """The targets of a call. Raises Refusal for what a gateway would refuse."""
    if operation == "send_text":
        return Targets((Target(_id(params, "toId")),), _text(params.get("content")))
    if operation == "set_group_welcome":
        return Targets((Target(_id(params, "roomId")),), _text(params.get("content")))
    if operation == "send_group_msg":
        return _group_msg(params)
    return _labels(params)


def _group_msg(params: Mapping[str, object]) -> Targets:
    to, messages = params.get("toIdList"), params.get("msgList")
    if not isinstance(to, list) or not all(_is_id(target) for target in to):
        raise Refusal(NO_TARGET)
    if not 1 <= len(to) <= MAX_TARGETS:
        raise Refusal(TOO_MANY)
    if not isinstance(messages, list) or not messages or not isinstance(messages[0], dict):
        raise Refusal(PARAM)
    data = messages[0].get("msgData")
    content = _text(data.get("content") if isinstance(data, dict) else data)
    send_type = params.get("sendType", 0)
    if send_type not in (0, 1) or isinstance(send_type, bool):
        raise Refusal(PARAM, "sendType 只能是 0 或 1")
    stranger = _CUSTOMER if send_type else _GROUP
    return Targets(
        tuple(Target(id_, (), NO_TARGET if stranger.fullmatch(id_) else 0) for id_ in to),
        content,
        "toId",
    )


def _labels(params: Mapping[str, object]) -> Targets:
    edits = params.get("paramList")
    if params.get("opType") not in (1, 2) or not isinstance(edits, list) or not edits:
        raise Refusal(PARAM)
    if len(edits) > MAX_TARGETS:
        raise Refusal(TOO_MANY)
    targets = tuple(_label_edit(edit) for edit in edits)
    if len({label for target in targets for label in target.labels}) > MAX_LABELS:
        raise Refusal(BAD_LABEL, f"一次最多 {MAX_LABELS} 个标签")
    content = "add" if params["opType"] == 1 else "remove"
    return Targets(targets, content, "userId" if len(targets) > 1 else "")


def _label_edit(edit: object) -> Target:
    if not isinstance(edit, dict):
        raise Refusal(PARAM)
    labels = edit.get("labelIdList")
    if not isinstance(labels, list) or not labels or not all(_is_id(label) for label in labels):
        raise Refusal(BAD_LABEL)
    return Target(_id(edit, "userId"), tuple(labels))


def _is_id(value: object) -> bool:
    """An id sent as a number has lost digits on the way; a gateway that took it would be wrong."""
    return isinstance(value, str) and 0 < len(value) <= 64 and "+" not in value


def _id(params: Mapping[str, object], name: str) -> str:
    value = params.get(name)
    if not isinstance(value, str) or not _is_id(value):
        raise Refusal(NO_TARGET, f"{name} 必须是字符串形式的 ID")
    return value


def _text(value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise Refusal(NO_TEXT)
    if len(value.encode("utf-8", "replace")) > MAX_TEXT_BYTES:
        raise Refusal(TEXT_TOO_LONG)
    return value


def answer(code: int, message: str, data: object = None) -> bytes:
    """An answer's body."""
    body = {"code": code, "msg": message, "data": data}
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()


def sent(success_code: int, server_id: str, unique_id: str, seq: int, now: float) -> bytes:
    """The answer to a message that was sent; written by hand, since it is the hot path."""
    return (
        f'{{"code":{success_code},"msg":"成功","data":{{"isSendSuccess":1,'
        f'"msgServerId":{server_id},"msgUniqueIdentifier":"{unique_id}",'
        f'"seq":{seq},"timestamp":{int(now)}}}}}'
    ).encode()


def result(listed_by: str, target: str, code: int, sent_as: tuple[str, str] | None) -> object:
    """One target's line in the answer to a call of several; `sent_as` are server and unique id."""
    line: dict[str, object] = {listed_by: target, "code": code, "msg": MESSAGES.get(code, "失败")}
    line["isSendSuccess"] = int(sent_as is not None)
    if sent_as is not None:
        line["msg"] = "成功"
        if sent_as[0]:
            line |= {"msgServerId": int(sent_as[0]), "msgUniqueIdentifier": sent_as[1]}
    return line


def listing(operation: str, guid: str, params: Mapping[str, object]) -> dict[str, object]:
    """An account's labels, groups or contacts: invented, but the same each time."""
    base = f"{zlib.crc32(guid.encode()):010d}"
    if operation == "list_labels":
        labels = [
            {"labelId": f"140{base}{n:03d}", "labelName": f"标签{n}", "labelType": 1}
            for n in range(1, LABELS + 1)
        ]
        return {"labelList": labels, "nextSeq": LABELS, "hasMore": 0}
    if operation == "list_rooms":
        start = _whole(params.get("nextStartIndex"), 0)
        rooms = [
            {"roomId": f"10{base}{n:05d}", "roomName": f"客户群{n + 1}"}
            for n in range(start, min(start + 10, ROOMS))
        ]
        return {
            "roomList": rooms,
            "nextStartIndex": start + len(rooms),
            "hasMore": int(start + len(rooms) < ROOMS),
        }
    start = _whole(params.get("currentSeq"), 0)
    limit = max(1, min(_whole(params.get("limit"), 100), 100))
    contacts = [
        {
            "userId": f"788{base}{n:03d}",
            "nickname": f"客户{n + 1}",
            "labelIdList": [f"140{base}{n % LABELS + 1:03d}"],
        }
        for n in range(start, min(start + limit, CONTACTS))
    ]
    return {
        "contactList": contacts,
        "nextSeq": start + len(contacts),
        "hasMore": int(start + len(contacts) < CONTACTS),
    }


def _whole(value: object, default: int) -> int:
    if isinstance(value, str) and value.isascii() and value.isdigit():
        return int(value)
    return value if isinstance(value, int) and value >= 0 else default
