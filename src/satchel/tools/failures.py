"""Failures that packaged tools declare, each with sentences in English and Chinese.

A tool raises `ToolFailed` with one of its failures; those of reading and writing files are here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from satchel.errors import SatchelError
from satchel.tools.framing import one_line

if TYPE_CHECKING:
    from collections.abc import Mapping

    from satchel.envelope import ErrorCode


class Text(NamedTuple):
    """One sentence in English and Chinese."""

    en: str
    """The sentence in English."""
    zh: str = ""
    """The sentence in Chinese; falls back to English when empty."""

    def to(self, language: str) -> str:
        """The sentence in a language."""
        return self.zh if language == "zh" and self.zh else self.en


class Failure(NamedTuple):
    """One declared failure, rendered as `<problem>: <value> — <what to do>`."""

    id: str
    """Identifies the failure among those of the tool."""
    code: ErrorCode
    """The error code of the envelope."""
    problem: Text
    """What is wrong."""
    value: Text
    """Template such as `{path}` after the colon; may be empty."""
    remedy: Text
    """The next step, in the imperative; may have fields too."""

    def message(
        self,
        language: str = "en",
        values: Mapping[str, object] | None = None,
        *,
        short: bool = False,
    ) -> str:
        """The whole message; `short` omits the remedy. Without values the fields stay visible."""
        parts = [text.to(language) for text in (self.problem, self.value, self.remedy)]
        if values is not None:
            parts = [part.format(**values) for part in parts]
        problem, value, remedy = parts
        sentence = f"{problem}: {value}" if value else problem
        return sentence if short else f"{sentence} — {remedy}"


class ToolFailed(SatchelError):
    """Raised by the function of a packaged tool: the call is answered with one of its failures."""

    def __init__(self, failure: Failure, **values: object) -> None:
        """Create an error of a tool.

        Args:
            failure: One of the tool's failures.
            values: What stands in the braces of its texts.
        """
        self.failure = failure
        # Values may be untrusted text: one line cannot open a frame.
        self.values = {name: one_line(str(value), 300) for name, value in values.items()}
        self.code = failure.code
        super().__init__(failure.message("en", self.values))


OUTSIDE = Failure(
    "outside",
    "ACCESS_DENIED",
    Text("The path leads outside the project", "路径超出工作区"),
    Text("{path}"),
    Text("Give a path relative to the project", "请使用相对工作区的路径"),
)
NOT_FOUND = Failure(
    "not-found",
    "NOT_FOUND",
    Text("There is no such file", "文件不存在"),
    Text("{path}"),
    Text(
        "Call ReadFile on its folder to see what is there",
        "请先用 ReadFile 查看所在文件夹以确认路径",
    ),
)
NOT_A_FILE = Failure(
    "no-file",
    "IS_DIRECTORY",
    Text("That is a folder or a special file", "该路径是文件夹或特殊文件"),
    Text("{path}"),
    Text("Give the path of a file", "请给出文件的路径"),
)
WRONG_KIND = Failure(
    "wrong-kind",
    "INVALID_PARAM",
    Text("The file is of a kind that is not supported", "不支持的文件类型"),
    Text("{path}"),
    Text("Give a file that ends in {kinds}", "请给出以 {kinds} 结尾的文件"),
)
TOO_LARGE = Failure(
    "too-large",
    "INVALID_PARAM",
    Text("The file is too large", "文件过大"),
    Text("{path} ({size} MB, limit {limit} MB)", "{path} ({size}MB)，超过 {limit}MB 上限"),
    Text("Split it and work on the parts", "请拆分后分批处理"),
)
NOT_READABLE = Failure(
    "not-readable",
    "PERMISSION_DENIED",
    Text("The file cannot be read", "文件无法读取"),
    Text("{path}"),
    Text("Ask the user to check its permissions", "请让用户检查文件权限"),
)
EXISTS = Failure(
    "exists",
    "CONFLICT",
    Text("The file exists already", "文件已存在"),
    Text("{path}"),
    Text(
        "Give another path, or ask the user and set `overwrite` to true to replace it",
        "请换一个路径，或征得用户同意后将 `overwrite` 设为 true 以替换",
    ),
)
NOT_WRITABLE = Failure(
    "not-writable",
    "PERMISSION_DENIED",
    Text("The file cannot be written", "文件无法写入"),
    Text("{path}"),
    Text(
        "Give another path, or ask the user to check the folder",
        "请换一个路径，或让用户检查该文件夹",
    ),
)
READING = (WRONG_KIND, OUTSIDE, NOT_FOUND, NOT_A_FILE, TOO_LARGE, NOT_READABLE)
"""Failures of reading a file of the project."""
WRITING = (WRONG_KIND, OUTSIDE, NOT_A_FILE, EXISTS, TOO_LARGE, NOT_WRITABLE)
"""Failures of writing a file of the project."""
