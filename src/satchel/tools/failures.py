"""How a tool of a package fails: in one form, and in the language of whoever reads it.

`<problem>: <value> — <what to do>` is put together here, so that no author can forget a part.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from satchel.errors import SatchelError
from satchel.tools.frame import one_line

if TYPE_CHECKING:
    from collections.abc import Mapping

    from satchel.envelope import ErrorCode


class Text(NamedTuple):
    """One sentence in the languages that readers have."""

    en: str
    zh: str = ""
    """Empty: the English one is shown."""

    def to(self, language: str) -> str:
        """The sentence for a reader."""
        return self.zh if language == "zh" and self.zh else self.en


class Failure(NamedTuple):
    """One way to fail. It is told as `<problem>: <value> — <what to do>`, whoever writes it."""

    id: str
    code: ErrorCode
    problem: Text
    value: Text
    """What is filled in after the colon, such as `{path}`; empty when there is nothing to show."""
    remedy: Text
    """The next step, in the imperative; may have `{fields}` too."""
    trigger: Text
    """When it happens, for the page."""

    def told(self, language: str = "en", values: Mapping[str, object] | None = None) -> str:
        """The whole message; without values the fields stay visible."""
        parts = [one.to(language) for one in (self.problem, self.value, self.remedy)]
        if values is not None:
            parts = [part.format(**values) for part in parts]
        problem, value, remedy = parts
        return f"{problem}: {value} — {remedy}" if value else f"{problem} — {remedy}"


class ToolFailed(SatchelError):
    """A tool of a package cannot do what was asked. The tool's adapter turns it into an answer."""

    def __init__(self, failure: Failure, **values: object) -> None:
        self.failure = failure
        self.values = {name: one_line(str(value), 300) for name, value in values.items()}
        """What is shown may be a stranger's text: it stays on one line and opens no frame."""
        self.code = failure.code
        super().__init__(failure.told("en", self.values))
