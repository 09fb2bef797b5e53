"""The one-line protocol: long lines, cancellation, replies."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

import satchel
from satchel.runners.base import Launch, Program, ProgramLimits, RunRequest
from satchel.runners.protocol import exchange
from satchel.runners.reply import read_reply, request_line

LIMITS = ProgramLimits(timeout=5)
PYTHON = (sys.executable, "-I", "-S", "-u", "-c")


@pytest.fixture
def start(starter):
    """Start a few lines of Python."""
    processes = []

    def begin(code: str):
        limits = ProgramLimits(timeout=5)
        process = starter.start(Launch((*PYTHON, code), (), "/", limits=limits))
        processes.append(process)
        return process

    yield begin
    for process in processes:
        process.close()


def soon(seconds: float = 5.0) -> float:
    return time.monotonic() + seconds


def ask(process, line=b"{}\n", limits=LIMITS, cancel=None, seconds=5.0):
    return exchange(process, line, limits, soon(seconds), cancel)


# --- one call, one process ---------------------------------------------------------------------


def test_neither_side_waits_for_the_other_with_long_lines(start):
    # It writes as it reads: writing the whole request first would deadlock.
    process = start(
        "import os\n"
        'os.write(1, b\'{"output": "\')\n'
        "while (part := os.read(0, 4096)) and not part.endswith(b'\\n'): os.write(1, part)\n"
        "os.write(1, b'\"}\\n')"
    )
    found = ask(process, b"x" * 3_000_000 + b"\n")
    assert found.fault is None
    assert len(found.line) > 2_990_000


def test_of_standard_error_the_end_is_kept(start):
    limits = ProgramLimits(timeout=5, stderr=1000)
    process = start(
        "import sys; sys.stderr.write('x' * 500_000 + 'END')\nprint('{\"output\": \"fine\"}')"
    )
    found = ask(process, limits=limits)
    assert found.fault is None
    note = "… [499,003 bytes were dropped] …\n"
    assert found.stderr == note + "x" * 997 + "END"


# --- what is written -------------------------------------------------------------------------


def asked(arguments) -> bytes:
    return request_line(RunRequest("s", "excel_read", arguments, Program((), "", "c")))


def test_text_goes_as_it_is_but_for_what_some_take_for_the_end_of_a_line():
    sent = asked({"a": "表\u2028b\u2029c\x85d\ne"})
    assert sent == '{"arguments":{"a":"表\\u2028b\\u2029c\\u0085d\\ne"}}\n'.encode()
    assert json.loads(sent)["arguments"]["a"] == "表\u2028b\u2029c\x85d\ne"


@given(st.dictionaries(st.text(), st.text() | st.floats(allow_nan=False, allow_infinity=False)))
def test_every_request_is_one_line_that_says_the_same(arguments):
    sent = asked(arguments)
    assert sent.count(b"\n") == 1
    assert json.loads(sent) == {"arguments": arguments}


# --- what is read ------------------------------------------------------------------------------


@given(st.binary(max_size=200))
def test_no_bytes_raise(data):
    reply = read_reply(data, 100)
    assert reply.fault is None or reply.detail


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.integers() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        max_leaves=20,
    )
)
def test_any_reply_is_read_or_refused(value):
    reply = read_reply(json.dumps({"output": "x", "data": value}).encode(), 100)
    if reply.fault is None:
        assert reply.output == "x"
        json.dumps(reply.data, allow_nan=False).encode()
        assert value is None or isinstance(value, dict)
    else:
        assert reply.fault in {"not-json", "wrong-fields"}


def test_no_reply_overruns_the_stack_of_a_small_thread():
    # The parser of Python 3.12 and later counts on more stack than a thread may have.
    code = (
        "import threading\n"
        "from satchel.runners.reply import is_complete, read_reply\n"
        "def read():\n"
        "    for line in (b'[' * 90_000, b'{\"output\":' * 90_000, b'{\"output\":[' * 40_000):\n"
        "        assert read_reply(line, 10).fault == 'not-json'\n"
        "        is_complete(line + b'}')\n"
        "    print('fine')\n"
        "threading.stack_size(192 * 1024)\n"
        "thread = threading.Thread(target=read)\n"
        "thread.start()\n"
        "thread.join()\n"
    )
    source = os.path.dirname(os.path.dirname(satchel.__file__))
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": source},
    )
    assert (done.returncode, done.stdout) == (0, "fine\n"), done.stderr


@pytest.mark.parametrize(
    "data",
    [
        b"[" * 4_000_000,
        b"[]" * 2_000_000,
        b'{"a":' * 800_000,
        b'""' * 2_000_000,
        b'"' + b"\\" * 4_000_000,
        b"[" * 2_000_000 + b"]" * 2_000_000,
        b'{"output": "' + b"\\ud800" * 600_000 + b'"}',
    ],
    ids=["open", "pairs", "keys", "strings", "escapes", "deep", "halves"],
)
def test_the_longest_reply_is_judged_in_no_time(data):
    began = time.process_time()
    read_reply(data, 8000)
    assert time.process_time() - began < 1.5
