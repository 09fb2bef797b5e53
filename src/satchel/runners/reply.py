r"""What a reply line says: bytes of a stranger -> output, error and data, or the exact fault.

What is decided here, and why:

- UTF-8, strictly: `bad-utf8` names the byte. A byte order mark at the front and a carriage return
  at the end are let pass: some platforms write them without being asked.
- JSON, strictly: `NaN`, `Infinity` and numbers too large for a float are `not-json`, since the
  next reader would not take them. Nesting deeper than 64 is `not-json` too.
- A key that appears twice is `wrong-fields`: readers differ in which one counts.
- Half a surrogate pair (`\ud83d`) becomes U+FFFD. Programs that count in UTF-16 cut characters
  in two; the mark shows where. Left alone it could not be written to any file.
- `output` and `error` are strings; one may be missing or null and is empty then, not both.
  `data`, where a program has structure to give, is an object or null. Any other field is
  `wrong-fields`: a misspelt `ouput` should not look like silence.
- Output and error are cut at `Limits.output` characters each, and the cut says so.
"""

from __future__ import annotations

import json
import math
import re
from array import array
from itertools import accumulate
from types import NoneType
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from satchel._language import Message, say

if TYPE_CHECKING:
    from satchel.runners.base import Fault, RunRequest

DEPTH = 64
"""How deep a reply may nest, its own braces counted."""
FIELDS = ("output", "error", "data")
_KINDS = {
    dict: Message("an object"),
    list: Message("an array"),
    str: Message("a string"),
    bool: Message("a boolean"),
}

_STRING = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"')
_HALF = re.compile(r"\\u[dD][89a-fA-F]")
_SURROGATE = re.compile("[\ud800-\udfff]")
_BEGINNING = 10_000
_QUOTED = 4_000
"""Characters of a program's text in a sentence."""
_STEPS = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")
_OTHERS = bytes(byte for byte in range(256) if byte not in b"[{]}")
"""Brackets become one level up (1) or down (-1); the rest is left out."""
_BREAKS = {
    0x85: "\\u0085",
    0x2028: "\\u2028",
    0x2029: "\\u2029",
}


class Reply(NamedTuple):
    """What a program answered."""

    output: str = ""
    error: str = ""
    data: dict[str, Any] | None = None
    truncated: int = 0
    """Characters that were cut."""
    fault: Fault | None = None
    detail: str = ""


class _Wrong(Exception):
    def __init__(self, fault: Fault, detail: str, **values: Any) -> None:
        self.fault: Fault = fault
        self.detail = detail if isinstance(detail, Message) else Message(detail, **values)
        super().__init__(self.detail)


def request_line(request: RunRequest) -> bytes:
    """The line that a program reads.

    Characters that some readers take for the end of a line (Node's `readline` splits at U+2028)
    are written as escapes; others as they are, for programs that do not know escapes.

    Raises:
        ValueError: When the arguments hold what JSON cannot say.
    """
    arguments = request.arguments
    text = _encode(arguments if isinstance(arguments, dict) else dict(arguments))
    more = f',"tool":{_encode(request.tool)}' if request.several else ""
    more += f',"key":{_encode(request.key)}' if request.key else ""
    text = f'{{"arguments":{text}{more}}}\n'
    if text.isascii():
        return text.encode()
    try:
        return text.translate(_BREAKS).encode()
    except UnicodeEncodeError:  # half a surrogate pair: only escapes can carry it
        return json.dumps(json.loads(text), separators=(",", ":")).encode() + b"\n"


def read_reply(line: bytes, limit: int) -> Reply:
    """Read a reply line.

    Args:
        line: without its newline.
        limit: characters of output, and of error, that are kept.
    """
    try:
        fields = _parse(line)
        output, error = _text(fields, "output"), _text(fields, "error")
    except _Wrong as wrong:
        return Reply(fault=wrong.fault, detail=wrong.detail)
    data = cast("dict[str, Any] | None", fields.get("data"))
    output, cut = shorten(output, limit)
    error, also = shorten(error, limit)
    return Reply(output, error, data, cut + also)


def is_whole(data: bytes) -> bool:
    """Whether a line without its newline is a JSON object nevertheless."""
    data = data.strip()
    if not data.endswith(b"}"):
        return False
    try:
        _parse(data)
    except _Wrong as wrong:
        return wrong.fault == "wrong-fields"
    return True


def misplaced(line: bytes) -> tuple[Fault, str] | None:
    """What is wrong with a first line that is no reply, when more follows; None for a reply."""
    try:
        _parse(line)
    except _Wrong as wrong:
        if wrong.fault == "wrong-fields":
            return None  # an object, if a wrong one: it was meant as a reply
        if wrong.fault == "not-an-object":
            return "not-json", _stray(line)
        return wrong.fault, wrong.detail
    return None


def shorten(text: str, limit: int) -> tuple[str, int]:
    """Cut a text at `limit` characters and say so at its end; and how many were cut."""
    cut = len(text) - limit
    if cut <= 0:
        return text, 0
    said = say("[{n} more characters were cut; ask for a smaller part]", n=f"{cut:,}")
    return f"{text[:limit]}… {said}", cut


def _parse(line: bytes) -> dict[str, Any]:
    """The fields of a reply, checked but for the texts."""
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise _Wrong(
            "bad-utf8",
            Message(
                "byte {count} of its reply is not UTF-8 ({reason})",
                count=f"{error.start + 1:,}",
                reason=error.reason,
            ),
        ) from None
    text = text.removeprefix("\ufeff")
    if not text.strip():
        raise _Wrong("not-json", "its reply is an empty line")
    _check_depth(text)
    try:
        value: object = _decode(text)
    except json.JSONDecodeError as error:
        raise _Wrong("not-json", _where(text, error)) from None
    except (ValueError, RecursionError):
        raise _Wrong("not-json", "its reply holds a number with too many digits") from None
    if not isinstance(value, dict):
        raise _Wrong("not-an-object", "its reply is {kind}, not an object", kind=_kind(value))
    fields = cast("dict[str, Any]", value)
    unknown = [name for name in fields if name not in FIELDS]
    if unknown:
        raise _Wrong(
            "wrong-fields", "its reply has the unknown field `{name}`", name=_plain(unknown[0])
        )
    if "output" not in fields and "error" not in fields:
        raise _Wrong("wrong-fields", "its reply has neither `output` nor `error`")
    if not isinstance(fields.get("data"), (dict, NoneType)):
        raise _Wrong("wrong-fields", "`data` is {kind}, not an object", kind=_kind(fields["data"]))
    if _HALF.search(text):
        fields = cast("dict[str, Any]", _mend(fields))
    return fields


def _text(fields: dict[str, Any], name: str) -> str:
    value = fields.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise _Wrong(
            "wrong-fields", "`{name}` is {kind}, not a string", name=name, kind=_kind(value)
        )
    return value


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise _Wrong("wrong-fields", "its reply has the key `{name}` twice", name=_plain(twice))
    return found


def _constant(name: str) -> None:
    raise _Wrong("not-json", "its reply holds `{word}`, which is not JSON", word=name)


def _float(digits: str) -> float:
    value = float(digits)
    if math.isinf(value):
        raise _Wrong(
            "not-json",
            "its reply holds the number `{digits}`, which is too large",
            digits=digits[:40],
        )
    return value


def _check_depth(text: str) -> None:
    """Refuse what could exhaust the parser's stack, without a stack of our own."""
    if text.count("[") + text.count("{") <= DEPTH:
        return
    # Most of what is too deep is so from the beginning.
    for part in (text[:_BEGINNING], text) if len(text) > _BEGINNING else (text,):
        outside = _STRING.sub("", part).partition('"')[0]  # a string cut in two is no matter
        steps = array("b", outside.encode().translate(_STEPS, _OTHERS))
        if max(accumulate(steps), default=0) > DEPTH:
            raise _Wrong("not-json", "its reply is nested deeper than {count}", count=DEPTH)


def _mend(value: object) -> object:
    """The same with every half of a surrogate pair replaced."""
    if isinstance(value, str):
        return _SURROGATE.sub("\N{REPLACEMENT CHARACTER}", value)
    if isinstance(value, list):
        return [_mend(each) for each in cast("list[object]", value)]
    if isinstance(value, dict):
        items = cast("dict[str, object]", value).items()
        return {cast("str", _mend(name)): _mend(each) for name, each in items}
    return value


def _where(text: str, error: json.JSONDecodeError) -> str:
    if not text.lstrip().startswith(("{", "[")):
        return _stray(text.encode())
    if text.lstrip().startswith("{") and error.pos >= len(text.rstrip()):
        return Message("its reply is spread over several lines; write it in one")
    near = text[max(0, error.pos - 20) : error.pos + 20]
    return Message(
        "its reply is not JSON: {reason} at character {count}: {quote}",
        reason=error.msg,
        count=f"{error.pos + 1:,}",
        quote=quote(near.encode()),
    )


def _stray(line: bytes) -> str:
    return Message(
        "it wrote something that is not its reply: {quote}; send it to stderr",
        quote=quote(line.strip()),
    )


def quote(data: bytes) -> str:
    """What a program wrote, fit for a sentence.

    As good as whole: it may hold a secret, which is found only where it is not cut. Whoever shows
    it cuts it, after secrets were taken out.
    """
    text = data[: _QUOTED * 4].decode("utf-8", "replace").replace("`", "'")
    shown = "".join(each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in text)
    cut = len(shown) > _QUOTED or len(data) > _QUOTED * 4
    return f"`{shown[:_QUOTED]}…`" if cut else f"`{shown}`"


def _kind(value: object) -> str:
    if value is None:
        return "null"
    return _KINDS.get(cast("type[Any]", type(value)), Message("a number"))


def _plain(name: str) -> str:
    return quote(name.encode("utf-8", "replace")).strip("`")


_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode
_decode = json.JSONDecoder(
    object_pairs_hook=_object, parse_constant=_constant, parse_float=_float
).decode
