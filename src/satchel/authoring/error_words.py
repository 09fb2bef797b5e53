"""Does an error message help? `<problem>: <value> — <next step>`, and nothing of the inside.

The same test serves for texts found in source, where `…` stands for what is filled in, and for
the answers of a running program.
"""

from __future__ import annotations

import re
from typing import Literal

LONGEST = 2_000
"""Characters of a message that are looked at: no message is longer, and none costs time."""
Slip = Literal["", "no-step", "vague", "empty-step"]

_DASH = re.compile(r"\s*(?:—+|–|―)\s*")
_VAGUE = frozenset((
    "错误", "出错", "出错了", "失败", "操作失败", "执行失败", "发生错误", "未知错误", "系统错误",
    "异常", "无效", "error", "failed", "failure", "fail", "invalid", "oops", "unknown", "problem",
    "an error occurred", "something went wrong", "unknown error", "operation failed", "it failed",
))  # fmt: skip
_AGAIN = frozenset(("请重试", "重试", "请再试一次", "请稍后重试", "稍后再试", "请稍后再试")) | {
    "try again", "please try again", "retry", "please retry", "try again later",
}  # fmt: skip
_INSIDE = re.compile(
    r"Traceback \(most recent call last\)|File \"[^\"]+\", line \d+|^\s*at .+:\d+:\d+\)?$|"
    r"\bgoroutine \d+ \[|"
    r"\bruntime error: |\bpanic: |index out of range|nil pointer dereference|undefined is not|"
    r"Cannot read propert(?:y|ies) of|\bNoneType\b|\[Errno \d+\]|\bENOENT\b|"
    r"no such file or directory|"
    r"segmentation fault|\b[A-Z]\w+(?:Error|Exception)\b",
    re.MULTILINE,
)
"""How the insides of Python, Node, Go and C read."""


def slip_in(message: str) -> Slip:
    """What is wrong with the form of a message: nothing, no next step, or a vague word."""
    parts = _DASH.split(message[:LONGEST].strip(), maxsplit=1)
    problem = parts[0].strip(" ：:。.!！")
    if problem.lower() in _VAGUE or not problem:
        return "vague"
    if len(parts) == 1:
        return "no-step"
    step = parts[1].strip(" 。.!！")
    if step.lower() in _AGAIN or not _says_something(step):
        return "empty-step"
    return ""


def _says_something(step: str) -> bool:
    if "…" in step or len(re.findall("[\u4e00-\u9fff]", step)) >= 2:
        return True
    return len(re.findall(r"[A-Za-z]+", step)) >= 2


def inside_shown(message: str) -> str:
    """What a message shows of the program's inside; nothing when it does not."""
    found = _INSIDE.search(message[:LONGEST])
    return " ".join(found.group().split()) if found else ""
