"""How a tool of a package answers a call: arguments checked, defaults filled in, one voice.

Every refusal has the form `<problem>: <value> — <what to do>`, in the language that the setting
`tool_language` chooses. What a package raises that it did not announce is a fault of the package,
and the model is told so without its details.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from satchel.tools.failures import Failure, Text, ToolFailed
from satchel.tools.frame import encodable, one_line
from satchel.tools.packaged_record import Job
from satchel.tools.workspace import MAX_TEXT, Workspace

if TYPE_CHECKING:
    from satchel.envelope import Envelope
    from satchel.settings import Settings
    from satchel.tools.base import Call
    from satchel.tools.packaged_record import PackagedParameter, PackagedSkill, PackagedTool

WRONG_ARGUMENTS = Failure(
    "wrong-arguments",
    "INVALID_PARAM",
    Text("The arguments are wrong", "参数错误"),
    Text("{slips}"),
    Text("The parameters are {names}", "可用参数：{names}"),
    Text(
        "One is missing, empty, unknown or of another type; all slips are named at once",
        "缺少、为空、未知或类型不符；一次列出全部问题",
    ),
)
FAULT = Failure(
    "fault",
    "INTERNAL_ERROR",
    Text("The tool has a fault", "工具内部故障"),
    Text("{name}"),
    Text(
        "Do not repeat the call; tell the user that it failed", "请勿重复调用，请告知用户调用失败"
    ),
    Text("A bug in the package", "该技能包存在缺陷"),
)
ALWAYS = (WRONG_ARGUMENTS, FAULT)
"""Ways to fail that every tool of a package has."""

_MISSING = Text("`{name}` is missing", "缺少 `{name}`")
_UNKNOWN = Text("there is no parameter `{name}`", "没有参数 `{name}`")
_EMPTY = Text("`{name}` is empty", "`{name}` 为空")
_LONG = Text(
    "`{name}` has {count} characters, limit {limit}", "`{name}` 有 {count} 个字符，上限 {limit}"
)
_SMALL = Text("`{name}` must be at least {limit}", "`{name}` 不得小于 {limit}")
_GREAT = Text("`{name}` must be at most {limit}", "`{name}` 不得大于 {limit}")
_OTHER = Text("`{name}` must be {kind}", "`{name}` 必须是{kind}")
_KINDS = {
    "string": Text("a text", "文本"),
    "integer": Text("a whole number", "整数"),
    "number": Text("a number", "数字"),
    "boolean": Text("true or false", "true 或 false"),
    "array": Text("a list", "列表"),
}


class PackageTool:
    """A tool of a package, as the toolset wants it."""

    about_skills = False

    def __init__(self, skill: PackagedSkill, tool: PackagedTool, settings: Settings) -> None:
        self._tool = tool
        self._language = settings.tool_language
        self._settings = settings
        self.name = tool.name
        self.description = tool.description.to(self._language)
        self.parameters = tool.schema(self._language)
        self.aliases: dict[str, str] = {}
        self.owner = skill.name
        self.writes = tool.writes

    def check(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """The arguments with defaults filled in; before any file is touched.

        Raises:
            ToolFailed: something is wrong with them; the message names everything that is.
        """
        found: dict[str, Any] = {}
        slips: list[str] = []
        rules = {one.name: one for one in self._tool.parameters}
        for name, value in arguments.items():
            if name not in rules:
                slips.append(self._say(_UNKNOWN, name=one_line(encodable(name), 60)))
            elif value is not None:  # models write null for what they leave out
                found[name] = _number(rules[name].type, value)
                slips += self._slips(rules[name], found[name])
        for name, rule in rules.items():
            if name not in found:
                if rule.required:
                    slips.append(self._say(_MISSING, name=name))
                else:
                    found[name] = rule.default
        if slips:
            names = ", ".join(f"`{name}`" for name in rules)
            said = "; ".join(slips)
            failed = ToolFailed(WRONG_ARGUMENTS, slips=said, names=names)
            failed.message = WRONG_ARGUMENTS.told(self._language, failed.values)
            raise failed
        return found

    def _slips(self, rule: PackagedParameter, value: Any) -> list[str]:
        name, limits = rule.name, rule.rule
        if not _fits(rule.type, value):
            kind = _KINDS[rule.type].to(self._language)
            return [self._say(_OTHER, name=name, kind=kind)]
        if isinstance(value, str | list):
            count = len(value.strip() if isinstance(value, str) else value)  # pyright: ignore[reportUnknownArgumentType]
            least = limits.get("minLength", limits.get("minItems", 1 if rule.required else 0))
            most = limits.get("maxLength", limits.get("maxItems", count))
            if count < least:
                return [self._say(_EMPTY, name=name)]
            if count > most:
                return [self._say(_LONG, name=name, count=count, limit=most)]
        elif not isinstance(value, bool):
            if value < limits.get("minimum", value):
                return [self._say(_SMALL, name=name, limit=limits["minimum"])]
            if value > limits.get("maximum", value):
                return [self._say(_GREAT, name=name, limit=limits["maximum"])]
        return []

    def run(self, call: Call) -> Envelope:
        """Do it."""
        job = Job(call.arguments, Workspace(self._settings.project), self._language, call.key)
        try:
            answer = self._tool.run(job)
        except ToolFailed as exc:
            return self._failed(call, exc)
        except (Exception, SystemExit) as exc:  # noqa: BLE001 - a package's fault is no crash
            failed = ToolFailed(FAULT, name=f"`{self.name}` ({type(exc).__name__})")
            return self._failed(call, failed)
        text, data, cut = answer.text, answer.data, answer.truncated
        if len(text) > MAX_TEXT:
            # The tool should have cut at a better place and said how to go on.
            note = self._say(_CUT, limit=MAX_TEXT, total=len(text))
            text, cut = text[: MAX_TEXT - len(note) - 1] + "\n" + note, True
        if cut:
            data = {**data, "truncated": True}
        return call.answer(text, data, partial=cut, stats=answer.stats, path=answer.path)

    def _failed(self, call: Call, exc: ToolFailed) -> Envelope:
        message = exc.failure.told(self._language, exc.values)
        return call.fail(exc.failure.code, message, "", {"failure": exc.failure.id})

    def _say(self, text: Text, **values: object) -> str:
        return text.to(self._language).format(**values)


_CUT = Text(
    "[Cut to {limit} of {total} characters: ask for less at once]",
    "[已截断为 {limit} / {total} 个字符：请缩小范围]",
)


def _number(kind: str, value: Any) -> Any:
    """Models write `3.0` for 3, and half signs that no reply can carry."""
    if kind == "integer" and isinstance(value, float) and math.isfinite(value) and not value % 1:
        return int(value)
    return encodable(value) if isinstance(value, str) else value


def _fits(kind: str, value: Any) -> bool:
    if kind == "boolean" or isinstance(value, bool):
        return kind == "boolean" and isinstance(value, bool)
    if kind == "number":
        return isinstance(value, int) or (isinstance(value, float) and math.isfinite(value))
    return isinstance(value, {"string": str, "integer": int, "array": list | tuple}[kind])
