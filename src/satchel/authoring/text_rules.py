"""Style rules for the names and descriptions of tools and parameters, and for error messages.

A text is checked by the rules of its own language, English or Chinese. Every rule prefers a missed
error to a false alarm.
"""

from __future__ import annotations

import os
import re
from functools import cache
from typing import TYPE_CHECKING, Literal

from satchel.authoring.checklist import RuleFailure
from satchel.skill.problems import PROBLEMS, Problem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from satchel.authoring.checklist import CheckSheet
    from satchel.skill.manifest import Parameter, ToolDecl


Language = Literal["en", "zh"]
MessageFault = Literal["", "no-step", "vague", "empty-step"]

CHINESE_CHARS_RANGE = (20, 80)
"""Of a tool's description in Chinese, without spaces."""
ENGLISH_CHARS_RANGE = (40, 250)
"""Of one in English: as much text as 20 to 80 Chinese characters."""

MAX_EXAMINED_CHARS = 2_000
"""Bounds the time for untrusted texts."""
_IDEOGRAPH = re.compile("[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]")
_LATIN_WORD = re.compile(r"[A-Za-z][A-Za-z'’-]*")

# --- the beginning ------------------------------------------------------------------------

_ZH_VERB_CHARS = "将把对从向按用以为在给由读写查找列删改建画算取发看数存搜译测调"
"""Characters that begin an imperative: `将 … 转换为 …`, or are a verb."""
_ZH_ADVERBS = re.compile(
    "^(?:(?:批量|快速|自动|递归|并行|实时|安全|一次性|逐行|逐条|逐个|按需|定时|原地|直接|只读|"
    "仅)地?)+"
)
_ZH_NO_VERB = re.compile("^(?:这个|这是|该|本|此|一个|一种|用于|用来|工具|技能|数据)")

_EN_DETERMINERS = frozenset((
    "a", "an", "the", "all", "any", "every", "each", "some", "one", "two", "several", "its",
    "your", "their", "this", "that", "these", "those", "up", "out",
))  # fmt: skip

# --- required and forbidden words ---------------------------------------------------------

_ZH_LIMIT = re.compile(
    "上限|下限|最[大多小少长高低]|至少|至多|不超过|超过|不[支会能可得需含改]|无法|仅|只|须|需|"
    "以内|之内|限|前提|"
    "除外|相对|要求|默认|之前|已有|存在|必填"
)
_EN_LIMIT = re.compile(
    r"\b(?:at most|at least|up to|max(?:imum)?|min(?:imum)?|limit(?:ed|s)?|only|must|requires?|"
    r"required|needs?|"
    r"no more|less than|fewer|more than|larger|longer|under|within|below|above|until|unless|"
    r"cannot|can't|"
    r"does not|do not|doesn't|never|without|read-only|existing|first|before|except|default|"
    r"relative|exceed)\b",
    re.IGNORECASE,
)
_NUMBER_WITH_UNIT = re.compile(
    r"\d[\d,.]*\s?(?:[KMG]i?B\b|bytes?\b|characters?\b|rows?\b|columns?\b|lines?\b|pages?\b|"
    r"seconds?\b|words?\b|px\b|"
    r"字|行|列|条|个|页|秒|张|次|%)",
    re.IGNORECASE,
)
_FILLER = re.compile(
    r"功能强大|功能丰富|多种功能|各种功能|强大的|丰富的功能|高效便捷|一站式|完美|轻松搞定|应有尽有|"
    r"\b(?:powerful|versatile|robust|seamless(?:ly)?|cutting-edge|state-of-the-art|easy-to-use|"
    r"user-friendly|"
    r"awesome|amazing|world-class|best-in-class|blazing(?:ly)?|effortless(?:ly)?|"
    r"(?:various|many|lots of) (?:features|functions|things)|and much more)\b",
    re.IGNORECASE,
)
_LIBRARY_PHRASE = re.compile(
    r"基于\s*[\w.-]*[A-Za-z][\w.-]*\s*(?:库|包|框架|模块|实现|封装)|(?:使用|调用|"
    r"封装)\s*[\w.-]*[A-Za-z][\w.-]*\s*(?:库|包|模块)|"
    r"\b(?:the|using|via|with|by)\s+`?[\w.-]+`?\s+(?:library|package|module|framework)\b|"
    r"\bwrap(?:s|per)\s+(?:of|for|around)\b|\bbuilt (?:on|with) (?:top of )?\w",
    re.IGNORECASE,
)

# --- parameters ---------------------------------------------------------------------------

_EXAMPLE = re.compile(
    r"示例|例如|比如|例：|例:|譬如|\bexamples?\b|\be\.\s?g\.|\bfor instance\b|\bsuch as\b|(?:^|"
    r"[，。；（(、\s])如[\s：:`“\"A-Za-z0-9]",
    re.IGNORECASE,
)
_BOOLEAN_MEANING = re.compile(
    r"为\s*`?(?:true|false|真|假)|\b(?:when|if|with)\s+`?(?:true|false)\b|`?(?:true|"
    r"false)`?\s*[:：=]|"
    r"`?\b(?:true|false)\b`?,?\s+(?:to|means|keeps|makes|for)\b",
    re.IGNORECASE,
)
"""An example for boolean values."""
_ZH_BOUND = re.compile(
    "默认|必填|必须|须|最[大多小少长高低]|至少|至多|不超过|超过|上限|下限|以内|之内|介于|"
    "之间|只能|仅|只|相对|不能|"
    "不可|不得|不支持|留空|为空|之一|取值|可选值|大于|小于|等于|格式为|以.{1,8}[开结]"
)
_EN_BOUND = re.compile(
    r"\b(?:default(?:s|ed)?|required|must|at most|at least|up to|between|max(?:imum)?|"
    r"min(?:imum)?|limit(?:ed)?|only|"
    r"relative|absolute|cannot|may not|not allowed|one of|either|empty|in (?:the )?range|"
    r"ranges? from|from \d|no more|"
    r"no longer|fewer|less than|"
    r"greater than|positive|whole|non-negative|without|inside|within|below|above|omit(?:ted)?|"
    r"exceed|separated)\b|[≤≥<>]",
    re.IGNORECASE,
)
_NUMBER_RANGE = re.compile(r"\d\s*(?:[-–—~～至到×x]|to)\s*\d")
_CLAUSE = re.compile(r"[。；;！!？?\n]+|\.(?=\s|$)|，|,\s")
_BOUND_AT_START = re.compile(
    r"^\W*(?:默认|必填|可选|最[大多小少长]|至少|至多|不超过|上限|范围|仅|只能|须|"
    r"(?:default|required|optional|max|min|at (?:most|least)|up to|one of|only|must|empty|"
    r"relative)\b)",
    re.IGNORECASE,
)

# --- names and error messages -------------------------------------------------------------

_TOOL_NAME = re.compile(r"[a-z][a-z0-9]*(?:_[a-z0-9]+)*")
_MAX_TOOL_NAME_CHARS = 64
_NAME_RULES = ("name-shape", "name-action", "name-order")
ERROR_RULES = ("error-wording", "error-inside", "error-language")

_DASH = re.compile(r"\s*(?:—+|–|―)\s*")
_VAGUE_MESSAGES = frozenset((
    "错误", "出错", "出错了", "失败", "操作失败", "执行失败", "发生错误", "未知错误", "系统错误",
    "异常", "无效", "error", "failed", "failure", "fail", "invalid", "oops", "unknown", "problem",
    "an error occurred", "something went wrong", "unknown error", "operation failed", "it failed",
))  # fmt: skip
_VAGUE_STEPS = frozenset((
    "请重试", "重试", "请再试一次", "请稍后重试", "稍后再试", "请稍后再试",
    "try again", "please try again", "retry", "please retry", "try again later",
))  # fmt: skip
_INTERNALS = re.compile(
    r"Traceback \(most recent call last\)|File \"[^\"]+\", line \d+|^\s*at .+:\d+:\d+\)?$|"
    r"\bgoroutine \d+ \[|"
    r"\bruntime error: |\bpanic: |index out of range|nil pointer dereference|undefined is not|"
    r"Cannot read propert(?:y|ies) of|\bNoneType\b|\[Errno \d+\]|\bENOENT\b|"
    r"no such file or directory|"
    r"segmentation fault|\b[A-Z]\w+(?:Error|Exception)\b",
    re.MULTILINE,
)
"""Text that Python, Node, Go and C programs show when they crash."""


@cache
def lexicon(name: str) -> frozenset[str]:
    """Return a word list of `lexicon/`."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "lexicon", f"{name}.txt")
    with open(path, encoding="utf-8") as file:
        lines = [line for line in file if not line.startswith("#")]
    return frozenset(" ".join(lines).split())


def language_of(text: str) -> Language:
    """Return the language of a text: Chinese if it has more ideographs than Latin words."""
    text = text[:MAX_EXAMINED_CHARS]
    return "zh" if len(_IDEOGRAPH.findall(text)) > len(_LATIN_WORD.findall(text)) else "en"


def has_words(text: str) -> bool:
    """Whether a text contains a word."""
    return bool(
        _IDEOGRAPH.search(text[:MAX_EXAMINED_CHARS])
        or _LATIN_WORD.search(text[:MAX_EXAMINED_CHARS])
    )


def description_length(text: str) -> int:
    """Return the length of a description; spaces do not count in Chinese."""
    return len("".join(text.split())) if language_of(text) == "zh" else len(text.strip())


def description_bounds(text: str) -> tuple[int, int]:
    """Return the length range of a tool's description."""
    return CHINESE_CHARS_RANGE if language_of(text) == "zh" else ENGLISH_CHARS_RANGE


def begins_with_verb(text: str) -> bool:
    """Whether the first word is a verb."""
    text = text[:MAX_EXAMINED_CHARS].strip().lstrip("`*\"'“‘「[(（")
    if _IDEOGRAPH.match(text):
        if _ZH_NO_VERB.match(text):
            return False
        text = _ZH_ADVERBS.sub("", text)
        return (
            any(text.startswith(verb) for verb in lexicon("verbs.zh")) or text[:1] in _ZH_VERB_CHARS
        )
    words = _LATIN_WORD.findall(text)
    while (
        len(words) > 1
        and words[0].lower().endswith("ly")
        and words[0].lower() not in lexicon("verbs.en")
    ):
        words = words[1:]  # `Quickly reads`, but not `Apply`
    if not words:
        return False
    first = words[0].lower()
    if any(word in lexicon("verbs.en") for word in (first, *_base_forms(first))):
        return True
    # An unlisted verb, as in `Frobnicates the files`.
    following = words[1].lower() if len(words) > 1 else ""
    return first.endswith("s") and not first.endswith("ss") and following in _EN_DETERMINERS


def _base_forms(word: str) -> list[str]:
    """Return possible base forms: `tries` -> `try`, `fetches` -> `fetch`."""
    bases: list[str] = []
    if word.endswith("s"):
        bases.append(word[:-1])
        if word.endswith("es"):
            bases.append(word[:-2])
        if word.endswith("ies"):
            bases.append(word[:-3] + "y")
    if "-" in word:  # `re-run`, `auto-formats`
        last_part = word.rpartition("-")[2]
        bases += [last_part, *_base_forms(last_part)]
    if word.startswith("re") and len(word) > 4:
        bases += [word[2:], word[2:-1] if word.endswith("s") else ""]
    return bases


def has_limit(text: str) -> bool:
    """Whether a description states a limit or a precondition."""
    text = text[:MAX_EXAMINED_CHARS]
    if _NUMBER_WITH_UNIT.search(text):
        return True
    return bool((_ZH_LIMIT if language_of(text) == "zh" else _EN_LIMIT).search(text))


def find_library(text: str, dependencies: frozenset[str] = frozenset()) -> str:
    """Return the library that a description mentions; empty if it is the subject."""
    text = text[:MAX_EXAMINED_CHARS]
    words = {word.lower().rstrip(".-") for word in re.findall(r"[A-Za-z][\w.-]*", text)}
    libraries = sorted(words & (lexicon("libraries") | dependencies))
    if libraries:
        return libraries[0]
    match = _LIBRARY_PHRASE.search(text)
    return match.group().strip() if match else ""


def find_filler(text: str) -> str:
    """Return empty praise in a text."""
    match = _FILLER.search(text[:MAX_EXAMINED_CHARS])
    return match.group() if match else ""


def has_example(text: str, *, is_boolean: bool = False) -> bool:
    """Whether a parameter's description contains an example value.

    Args:
        text: The description.
        is_boolean: Whether the parameter is a boolean; the meaning of `true` suffices.
    """
    text = text[:MAX_EXAMINED_CHARS]
    return bool(_EXAMPLE.search(text) or (is_boolean and _BOOLEAN_MEANING.search(text)))


def has_bound(text: str) -> bool:
    """Whether it states the allowed values or the default."""
    plain = _without_example(text)
    if _NUMBER_WITH_UNIT.search(plain) or _NUMBER_RANGE.search(plain):
        return True
    return bool((_ZH_BOUND if language_of(text) == "zh" else _EN_BOUND).search(plain))


def has_meaning(text: str) -> bool:
    """Whether it explains the value, apart from bounds and the example."""
    for clause in _CLAUSE.split(_without_example(text)):
        if _BOUND_AT_START.match(clause):
            continue
        if len(_IDEOGRAPH.findall(clause)) >= 2 or len(_LATIN_WORD.findall(clause)) >= 2:
            return True
    return False


def _without_example(text: str) -> str:
    """Remove the example, so that a number in it is not taken for a bound."""
    text = text[:MAX_EXAMINED_CHARS]
    match = _EXAMPLE.search(text)
    if match is None:
        return text
    example = text[match.end() :]
    # The next sentence counts again.
    sentence_end = re.search(r"[。；;\n]|\.\s", example)
    return text[: match.start()] + (example[sentence_end.end() :] if sentence_end else "")


def judge_names(
    sheet: CheckSheet, tools: Sequence[ToolDecl], prefix: str, libraries: frozenset[str]
) -> None:
    """Check tool names: `<domain>_<action>`, about a subject."""
    for rule in _NAME_RULES:
        sheet.judge(rule)
    for tool in tools:
        name = tool.name[:80]
        values = {"name": name, "better": suggest_name(tool.name, prefix), "prefix": prefix}
        for code in _name_faults(tool.name, prefix):
            if code in PROBLEMS:
                sheet.judge_problems("name-shape", [Problem(code, "", tool.line, values)])
            else:
                sheet.fail(code, tool.line, **values)
    domain = prefix.replace("_", "-")
    is_library = domain in lexicon("libraries") or domain in libraries
    line = tools[0].line if tools else 0
    sheet.require("name-domain", not is_library, line, domain=domain)


def _name_faults(name: str, prefix: str) -> Iterator[str]:
    """Yield the codes of what is wrong with a tool name; the manifest reports an empty one."""
    if not name:
        return
    if not _TOOL_NAME.fullmatch(name) or len(name) > _MAX_TOOL_NAME_CHARS:
        yield "tool-name"
    elif prefix and not f"{name}_".startswith(f"{prefix}_"):
        yield "tool-name-prefix"
    else:
        if name == prefix:
            yield "name-action"
        if prefix in lexicon("actions") and name.rpartition("_")[2] not in lexicon("actions"):
            yield "name-order"


def suggest_name(name: str, prefix: str) -> str:
    """Return the suggested tool name: `ResizeImage` in the folder `image` -> `image_resize`."""
    plain = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name)
    plain = re.sub(r"[^a-z0-9]+", "_", plain.lower()).strip("_")
    if plain == prefix:
        return f"{plain}_read"[:_MAX_TOOL_NAME_CHARS]
    if not prefix or plain.startswith(f"{prefix}_"):
        return plain[:_MAX_TOOL_NAME_CHARS]
    # The domain may come last: `write_excel` -> `excel_write`.
    action = f"_{plain}_".replace(f"_{prefix}_", "_", 1).strip("_")
    return f"{prefix}_{action}"[:_MAX_TOOL_NAME_CHARS]


def judge_descriptions(
    sheet: CheckSheet, tools: Sequence[ToolDecl], libraries: frozenset[str], line: int = 0
) -> None:
    """Check tool descriptions: a verb first, a limit, a length, no library, no praise."""
    checks: dict[str, Callable[[str], dict[str, str] | None]] = {
        "description-verb": _wrong_start_values,
        "description-limit": lambda text: None if has_limit(text) else {},
        "description-length": _wrong_length_values,
        "description-library": lambda text: _word_values(find_library(text, libraries)),
        "description-filler": lambda text: _word_values(find_filler(text)),
    }
    for rule, check in checks.items():
        failures: list[RuleFailure] = []
        for tool in tools:
            values = check(tool.description) if tool.description else None
            if values is not None:
                failures.append(RuleFailure(line or tool.line, {"name": tool.name, **values}))
        sheet.judge(rule, failures)


# The values of a failure's message; None when the description is right.


def _wrong_length_values(text: str) -> dict[str, str] | None:
    length, (min_length, max_length) = description_length(text), description_bounds(text)
    return None if min_length <= length <= max_length else {"length": str(length)}


def _word_values(word: str) -> dict[str, str] | None:
    return {"word": word[:60]} if word else None


def _wrong_start_values(text: str) -> dict[str, str] | None:
    if begins_with_verb(text):
        return None
    words = text.split()
    if language_of(text) == "zh":
        return {"start": " ".join(words)[:8]}
    return {"start": " ".join(words[:2])[:40]}


def judge_parameters(sheet: CheckSheet, parameters: Sequence[Parameter]) -> None:
    """Check parameter descriptions: meaning, bounds, example."""
    for rule in ("parameter-what", "parameter-bound", "parameter-example"):
        sheet.judge(rule)
    for parameter in parameters:
        text, failure = (
            parameter.description,
            [RuleFailure(parameter.line, {"name": parameter.name})],
        )
        if not has_meaning(text):
            sheet.judge("parameter-what", failure)
        if not has_bound(text):
            sheet.judge("parameter-bound", failure)
        if not has_example(text, is_boolean=parameter.type == "boolean"):
            sheet.judge("parameter-example", failure)


def find_message_fault(message: str) -> MessageFault:
    """Return the fault in a message's form: none, no next step, or a vague word."""
    sentences = _DASH.split(message[:MAX_EXAMINED_CHARS].strip(), maxsplit=1)
    problem = sentences[0].strip(" ：:。.!！")
    if problem.lower() in _VAGUE_MESSAGES or not problem:
        return "vague"
    if len(sentences) == 1:
        return "no-step"
    step = sentences[1].strip(" 。.!！")
    if step.lower() in _VAGUE_STEPS or not _is_specific(step):
        return "empty-step"
    return ""


def _is_specific(step: str) -> bool:
    if "…" in step or len(re.findall("[\u4e00-\u9fff]", step)) >= 2:
        return True
    return len(re.findall(r"[A-Za-z]+", step)) >= 2


def find_internals(message: str) -> str:
    """Return program internals in a message; empty without any."""
    match = _INTERNALS.search(message[:MAX_EXAMINED_CHARS])
    return " ".join(match.group().split()) if match else ""


def judge_error(sheet: CheckSheet, text: str, language: str) -> None:
    """Check the text of an error, in which `…` stands for values."""
    is_other_language = has_words(text) and language_of(text) != language
    values = {"text": f"`{text[:60]}`"}
    sheet.require("error-wording", not find_message_fault(text), **values)
    sheet.require("error-inside", not find_internals(text), **values)
    sheet.require("error-language", not is_other_language, **values)
