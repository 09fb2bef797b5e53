r"""Formats the request line and parses the reply line of a program: the result, or the exact fault.

Decisions, and why:

- UTF-8, strictly: `bad-utf8` names the byte. A byte order mark at the front and a carriage return
  at the end are ignored: some platforms write them by default.
- JSON, strictly: `NaN`, `Infinity` and numbers too large for a float are `not-json`, since the
  next reader would reject them. Nesting deeper than 64 is `not-json` too.
- A key that appears twice is `wrong-fields`: parsers differ in which one counts.
- A lone surrogate (`\ud83d`) becomes U+FFFD. Programs that count in UTF-16 cut characters in two;
  the replacement shows where. Unchanged it could not be written to any file.
- `output` and `error` are strings; one may be missing or null and is empty then, not both.
  `data`, for structured output, is an object or null. Any other field is `wrong-fields`: a
  misspelt `ouput` should not look like an empty reply.
- Output and error are cut at `ProgramLimits.output` characters each, with a note.
"""

from __future__ import annotations

import json
import math
import re
from array import array
from itertools import accumulate
from types import NoneType
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from satchel._unicode import replace_unprintable
from satchel.i18n import Message, say

if TYPE_CHECKING:
    from satchel.runners.base import Fault, RunRequest

MAX_NESTING_DEPTH = 64
FIELDS = ("output", "error", "data")
_KINDS = {
    dict: Message("an object"),
    list: Message("a list"),
    str: Message("a text"),
    bool: Message("true or false"),
}

_JSON_STRING = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"')
_SURROGATE_ESCAPE = re.compile(r"\\u[dD][89a-fA-F]")
_SURROGATE = re.compile("[\ud800-\udfff]")
_MAX_QUOTE_CHARS = 4_000
_BRACKET_STEPS = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")
_OTHER_BYTES = bytes(byte for byte in range(256) if byte not in b"[{]}")
"""Brackets become one level up (1) or down (-1); other bytes are dropped."""
_LINE_BREAK_ESCAPES = {0x85: "\\u0085", 0x2028: "\\u2028", 0x2029: "\\u2029"}


class ProgramReply(NamedTuple):
    """A parsed reply."""

    output: str = ""
    error: str = ""
    data: dict[str, Any] | None = None
    truncated: int = 0
    """Number of characters that were cut."""
    fault: Fault | None = None
    detail: str = ""


class _ReplyFault(Exception):
    def __init__(self, fault: Fault, detail: str, **values: Any) -> None:
        self.fault: Fault = fault
        self.detail = detail if isinstance(detail, Message) else Message(detail, **values)
        super().__init__(self.detail)


def request_line(request: RunRequest) -> bytes:
    """The line that a program reads.

    Characters that some readers treat as the end of a line (Node's `readline` splits at U+2028)
    are escaped; others are not, for programs without support for escapes.

    Raises:
        ValueError: the arguments are not JSON data.
    """
    arguments = request.arguments
    text = _encode(arguments if isinstance(arguments, dict) else dict(arguments))
    further_fields = f',"tool":{_encode(request.tool)}' if request.several else ""
    further_fields += f',"key":{_encode(request.key)}' if request.key else ""
    text = f'{{"arguments":{text}{further_fields}}}\n'
    if text.isascii():
        return text.encode()
    try:
        return text.translate(_LINE_BREAK_ESCAPES).encode()
    except UnicodeEncodeError:  # a lone surrogate: only an escape can carry it
        return json.dumps(json.loads(text), separators=(",", ":")).encode() + b"\n"


def read_reply(line: bytes, limit: int) -> ProgramReply:
    """Parse a reply line."""
    try:
        fields = _parse(line)
        output, error = _read_text(fields, "output"), _read_text(fields, "error")
    except _ReplyFault as fault:
        return ProgramReply(fault=fault.fault, detail=fault.detail)
    data = cast("dict[str, Any] | None", fields.get("data"))
    output, output_cut = shorten(output, limit)
    error, error_cut = shorten(error, limit)
    return ProgramReply(output, error, data, output_cut + error_cut)


def is_complete(data: bytes) -> bool:
    """Whether a line without its newline is a complete JSON object."""
    data = data.strip()
    if not data.endswith(b"}"):
        return False
    try:
        _parse(data)
    except _ReplyFault as fault:
        return fault.fault == "wrong-fields"
    return True


def two_lines_fault(line: bytes, second_line: bytes) -> tuple[Fault, str]:
    """The fault of more than one line: that of the first, if it is no reply."""
    try:
        _parse(line)
    except _ReplyFault as fault:
        if fault.fault == "not-an-object":
            return "not-json", _stray_output(line)
        if fault.fault != "wrong-fields":  # such an object was meant as a reply
            return fault.fault, fault.detail
    return "two-replies", _stray_output(second_line)


def shorten(text: str, limit: int) -> tuple[str, int]:
    """Cut a text at `limit` characters, with a note; and the number of characters cut."""
    cut = len(text) - limit
    if cut <= 0:
        return text, 0
    note = say("[{n} more characters were cut; ask for a smaller part]", n=f"{cut:,}")
    return f"{text[:limit]}… {note}", cut


def _parse(line: bytes) -> dict[str, Any]:
    """The fields of a reply, checked except for the texts."""
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise _ReplyFault(
            "bad-utf8", "byte {count} of its reply is not UTF-8", count=f"{error.start + 1:,}"
        ) from None
    text = text.removeprefix("\ufeff")
    if not text.strip():
        raise _json_fault("an empty line")
    _check_depth(text)
    try:
        value: object = _decode(text)
    except json.JSONDecodeError as error:
        raise _ReplyFault("not-json", _describe_json_error(text, error)) from None
    except (ValueError, RecursionError):
        raise _json_fault("a number with too many digits") from None
    if not isinstance(value, dict):
        raise _ReplyFault(
            "not-an-object", "its reply is {kind}, not an object", kind=_describe_kind(value)
        )
    fields = cast("dict[str, Any]", value)
    unknown = [name for name in fields if name not in FIELDS]
    if unknown:
        raise _ReplyFault(
            "wrong-fields", "its reply has a wrong field, `{name}`", name=_quote_name(unknown[0])
        )
    if "output" not in fields and "error" not in fields:
        raise _ReplyFault("wrong-fields", "its reply has neither `output` nor `error`")
    if not isinstance(fields.get("data"), (dict, NoneType)):
        raise _kind_fault("data", fields["data"], dict)
    if _SURROGATE_ESCAPE.search(text):
        fields = cast("dict[str, Any]", _without_surrogates(fields))
    return fields


def _read_text(fields: dict[str, Any], name: str) -> str:
    value = fields.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise _kind_fault(name, value, str)
    return value


def _kind_fault(name: str, value: object, expected: type) -> _ReplyFault:
    kinds = {"kind": _describe_kind(value), "wanted": _KINDS[expected]}
    return _ReplyFault("wrong-fields", "`{name}` is {kind}, not {wanted}", name=name, **kinds)


def _json_fault(reason: str) -> _ReplyFault:
    return _ReplyFault("not-json", "its reply is not JSON: {reason}", reason=reason)


def _make_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        names = [name for name, _ in pairs]
        repeated_name = next(name for name in names if names.count(name) > 1)
        raise _ReplyFault(
            "wrong-fields", "its reply has a wrong field, `{name}`", name=_quote_name(repeated_name)
        )
    return fields


def _refuse_constant(name: str) -> None:
    raise _json_fault(f"`{name}`")


def _read_float(digits: str) -> float:
    value = float(digits)
    if math.isinf(value):
        raise _json_fault(f"`{digits[:40]}`")
    return value


def _check_depth(text: str) -> None:
    if text.count("[") + text.count("{") <= MAX_NESTING_DEPTH:
        return
    outside = _JSON_STRING.sub("", text).partition('"')[0]  # without a string that is cut in two
    steps = array("b", outside.encode().translate(_BRACKET_STEPS, _OTHER_BYTES))
    if max(accumulate(steps), default=0) > MAX_NESTING_DEPTH:
        raise _json_fault(f"nested deeper than {MAX_NESTING_DEPTH}")


def _without_surrogates(value: object) -> object:
    if isinstance(value, str):
        return _SURROGATE.sub("\N{REPLACEMENT CHARACTER}", value)
    if isinstance(value, list):
        return [_without_surrogates(member) for member in cast("list[object]", value)]
    if isinstance(value, dict):
        items = cast("dict[str, object]", value).items()
        return {
            cast("str", _without_surrogates(name)): _without_surrogates(member)
            for name, member in items
        }
    return value


def _describe_json_error(text: str, error: json.JSONDecodeError) -> str:
    if not text.lstrip().startswith(("{", "[")):
        return _stray_output(text.encode())
    if text.lstrip().startswith("{") and error.pos >= len(text.rstrip()):
        return Message("its reply is spread over several lines; write it in one")
    excerpt = text[max(0, error.pos - 20) : error.pos + 20]
    reason = f"{error.msg} at character {error.pos + 1:,}: {quote(excerpt.encode())}"
    return Message("its reply is not JSON: {reason}", reason=reason)


def _stray_output(line: bytes) -> str:
    return Message(
        "it wrote something that is not its reply: {quote}; send it to stderr",
        quote=quote(line.strip()),
    )


def quote(data: bytes) -> str:
    """Quote an output in a sentence.

    Nearly complete: redaction finds a secret only where it is not cut. It is shortened afterwards.
    """
    text = data[: _MAX_QUOTE_CHARS * 4].decode("utf-8", "replace").replace("`", "'")
    printable_text = replace_unprintable(text, "\N{REPLACEMENT CHARACTER}")
    cut = len(printable_text) > _MAX_QUOTE_CHARS or len(data) > _MAX_QUOTE_CHARS * 4
    return f"`{printable_text[:_MAX_QUOTE_CHARS]}…`" if cut else f"`{printable_text}`"


def _describe_kind(value: object) -> str:
    if value is None:
        return "null"
    return _KINDS.get(cast("type[Any]", type(value)), Message("a number"))


def _quote_name(name: str) -> str:
    return quote(name.encode("utf-8", "replace")).strip("`")


_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode
_decode = json.JSONDecoder(
    object_pairs_hook=_make_object, parse_constant=_refuse_constant, parse_float=_read_float
).decode
