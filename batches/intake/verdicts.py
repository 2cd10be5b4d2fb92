"""What intake says about a file as a whole once its rows are known."""

from __future__ import annotations

from batches.domain.problems import Problem
from batches.domain.text import N_


def doubtful() -> Problem:
    """Valid in two encodings."""
    return Problem(
        "encoding_doubtful",
        N_("文件很短，既像 UTF-8 又像 GB18030。请核对预览中的文字；如果是乱码，请指定编码。"),
    )


def text_named_workbook(ending: str) -> Problem:
    """Text under the name of a workbook."""
    return Problem(
        "text_named_workbook",
        N_(
            "文件名以 %(ending)s 结尾，内容却是纯文本，不是 Excel 工作簿，已按 CSV 读取。"
            "如果列或文字不对，请在 Excel 中打开原名单，另存为 .xlsx 或"
            "“CSV UTF-8（逗号分隔）”后重新上传。"
        ),
        {"ending": ending},
    )


def rounded(count: int) -> Problem:
    """Ids that a spreadsheet may have rounded."""
    return Problem(
        "ids_rounded",
        N_("%(count)s 个长 ID 的末位全是 0，可能被 Excel 改动过。请与原始数据核对后再启动。"),
        {"count": count},
    )


def header_only() -> Problem:
    """Nothing but a header."""
    return Problem("file_header_only", N_("文件只有表头，没有数据行。请补上名单后重新上传。"))


def all_bad(rows: int) -> Problem:
    """No row can be imported."""
    return Problem(
        "rows_all_bad",
        N_("%(rows)s 行全部有问题，没有可以导入的行。请按下面的原因改正后重新上传。"),
        {"rows": f"{rows:,}"},
    )


def some_bad(bad: int, rows: int) -> Problem:
    """One bad row refuses the file, unless it may be skipped."""
    return Problem(
        "rows_bad",
        N_(
            "%(rows)s 行中有 %(bad)s 行有问题或重复，整个文件没有导入。"
            "请改正后重新上传，或选择“跳过有问题的行”。"
        ),
        {"rows": f"{rows:,}", "bad": f"{bad:,}"},
    )


def gave_up() -> Problem:
    """The reading died again and again."""
    return Problem(
        "intake_gave_up",
        N_("读取这个文件时进程多次中断。请拆分文件后重新上传，或联系管理员查看日志。"),
    )
