"""Every way a program can fail on its pipes, as data: what it does, and what must come of it.

The program in `faulty/` understands these words.
"""

from __future__ import annotations

from typing import NamedTuple

GOOD = b'{"output": "fine", "error": ""}'
LONG = 300_000
"""Bytes of a request that no pipe takes at once."""
REPLY = 100_000
"""Bytes that a reply may have in these tests."""
FOR_EVER = "sleep:60000"


def out(data: bytes, times: int = 1) -> str:
    return f"out:{data.hex()}:{times}"


class Case(NamedTuple):
    """One fault."""

    name: str
    acts: tuple[str, ...]
    fault: str | tuple[str, ...] | None
    """What the result must say; None where the answer counts."""
    request: int = 0
    """Bytes of padding in the request."""
    memory: int = 512
    """Megabytes."""
    output: str = "fine"
    exit_code: int | None = 0


def answers(name: str, *acts: str, **more) -> Case:
    return Case(name, acts, None, **more)


def says(name: str, line: bytes, fault: str) -> Case:
    """A program that reads its request and answers with `line`."""
    return Case(name, ("read", out(line + b"\n")), fault)


CASES = (
    # nothing, or not all of it
    Case("silent", ("read",), "no-reply"),
    Case("silent, and nothing read", ("exit:0",), "no-reply"),
    Case("hangs", ("read", FOR_EVER), "timeout"),
    Case("hangs, and nothing read", (FOR_EVER,), "timeout"),
    Case("hangs, and a long request is not read", (FOR_EVER,), "timeout", request=LONG),
    Case("half a line, then ends", ("read", out(b'{"output": "fi')), "partial-reply"),
    Case("half a line, then hangs", ("read", out(b'{"output": "fi'), FOR_EVER), "timeout"),
    Case("slow drip", ("read", out(b'{"output": "'), "drip"), "timeout"),
    Case("closes its output, then hangs", ("read", "close:1", FOR_EVER), "no-reply"),
    Case("closes its input, then ends", ("close:0", "exit:0"), "closed-input", request=LONG),
    Case("closes everything, then hangs",
         ("close:0", "close:1", "close:2", FOR_EVER), ("no-reply", "closed-input")),
    # too much of it
    Case("a line that never ends", ("read", "flood:1"), "too-long"),
    Case("a line that is too long",
         ("read", out(b'{"output": "'), out(b"x", REPLY), out(b'"}\n')), "too-long"),
    Case("a flood on standard error", ("read", "flood:2"), "timeout"),
    # what the line says
    says("not JSON", b"{output: fine}", "not-json"),
    says("words for people", b"Loading model...", "not-json"),
    says("an empty line", b"", "not-json"),
    says("NaN", b'{"output": "", "data": {"x": NaN}}', "not-json"),
    says("Infinity", b'{"output": "", "data": {"x": -Infinity}}', "not-json"),
    says("a number too large", b'{"output": "", "data": {"x": 1e999}}', "not-json"),
    says("a number too long",
         b'{"output": "", "data": {"x": ' + b"9" * 5000 + b"}}", "not-json"),
    says("nested too deep", b'{"output": "", "data": {"x": ' + b"[" * 70 + b"]" * 70 + b"}}",
         "not-json"),
    Case("nested deeper than any stack", ("read", out(b"[", 90_000), out(b"\n")), "not-json"),
    says("a raw control character", b'{"output": "a\x00b"}', "not-json"),
    says("not UTF-8", b'{"output": "\xff\xfe"}', "bad-utf8"),
    says("UTF-8 cut short", b'{"output": "\xe4\xb8"}', "bad-utf8"),
    says("surrogates as bytes", b'{"output": "\xed\xa0\x80"}', "bad-utf8"),
    says("binary", bytes(range(1, 10)) + bytes(range(128, 256)), "bad-utf8"),
    says("an array", b'["fine"]', "not-an-object"),
    says("a string", b'"fine"', "not-an-object"),
    says("null", b"null", "not-an-object"),
    says("no fields", b"{}", "wrong-fields"),
    says("output is a number", b'{"output": 5, "error": ""}', "wrong-fields"),
    says("error is an object", b'{"output": "", "error": {}}', "wrong-fields"),
    says("data is an array", b'{"output": "", "data": []}', "wrong-fields"),
    says("an unknown field", b'{"ouput": "fine", "error": ""}', "wrong-fields"),
    says("a key twice", b'{"output": "fine", "output": "no"}', "wrong-fields"),
    # more than one
    Case("two replies", ("read", out(GOOD + b"\n" + GOOD + b"\n")), "two-replies"),
    Case("a second reply, later", ("read", out(GOOD + b"\n"), "sleep:30", out(GOOD + b"\n")),
         "two-replies"),
    Case("more after the line", ("read", out(GOOD + b"\ndone")), "two-replies"),
    Case("a flood after the line", ("read", out(GOOD + b"\n"), "flood:1"), "two-replies"),
    # what came first is said first
    Case("a word before the reply", ("read", out(b"debug: starting\n" + GOOD + b"\n")), "not-json"),
    Case("a number before the reply", ("read", out(b"5\n" + GOOD + b"\n")), "not-json"),
    Case("a reply over several lines", ("read", out(b'{\n  "output": "fine"\n}\n')), "not-json"),
    # how it ends
    Case("segfault", ("read", "kill:11"), "crashed"),
    Case("abort", ("read", "kill:6"), "crashed"),
    Case("killed", ("read", "kill:9"), "crashed"),
    Case("killed in the middle of a line", ("read", out(b'{"out'), "kill:9"), "crashed"),
    Case("stopped", ("read", "kill:19", FOR_EVER), "timeout"),
    Case("exit status", ("read", "exit:3"), "exit-code"),
    Case("exit status in the middle of a line", ("read", out(b'{"out'), "exit:3"), "exit-code"),
    Case("deaf to signals", ("deaf", "read", FOR_EVER), "timeout"),
    # what it takes
    Case("too much memory", ("read", "memory:400", FOR_EVER), "memory", memory=160),
    Case("too many processes", ("read", "burst:120"), "processes"),
    Case("too large a file", ("read", "file:30000000"), ("crashed", "exit-code")),
    Case("too many files", ("read", "files:300"), "exit-code"),
    # what it leaves behind
    Case("a daemon that holds the pipes", ("read", "daemon"), "no-reply"),
    Case("a daemon, and hangs", ("read", "daemon", "deaf", FOR_EVER), "timeout"),
    Case("a process that forks away for ever", ("read", "hop"), "no-reply"),
    # where the answer counts nevertheless
    answers("an answer and a daemon", "read", "daemon", out(GOOD + b"\n")),
    answers("an answer without reading", out(GOOD + b"\n"), request=LONG),
    answers("an answer after closing the input", "close:0", out(GOOD + b"\n"), request=LONG),
    answers("an answer without a newline", "read", out(GOOD)),
    answers("a carriage return", "read", out(GOOD + b"\r\n")),
    answers("a byte order mark", "read", out(b"\xef\xbb\xbf" + GOOD + b"\n")),
    answers("a blank line more", "read", out(GOOD + b"\n\n")),
    answers("half a surrogate pair", "read", out(b'{"output": "a\\ud83d"}\n'), output="a\ufffd"),
    answers("an answer and an exit status", "read", out(GOOD + b"\n"), "exit:9", exit_code=9),
    answers("an answer, then a crash", "read", out(GOOD + b"\n"), "kill:9", exit_code=-9),
    answers("an answer, then hangs", "read", out(GOOD + b"\n"), FOR_EVER, exit_code=None),
    answers("much on standard error", "err:78:500000", "read", out(GOOD + b"\n")),
    answers("a long request", "read", out(GOOD + b"\n"), request=2_000_000),
)  # fmt: skip
