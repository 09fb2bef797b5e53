"""A forked program is the same as one that was started: what it sees, how it ends, how it fails."""

from __future__ import annotations

import ast
import glob
import json
import os
import sys
import threading
import time
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from lag import Lag
from needs import needs
from runners.catalogue_of_faults import CASES, REPLY
from runners.leftovers import MARK, below, eventually, marked
from satchel.runners import _forkserver_main as far
from satchel.runners import forkserver
from satchel.runners.base import Limits, Powers, Program, RunRequest
from satchel.runners.launcher import launcher
from satchel.runners.pool import Pool
from satchel.trace import Trace

if TYPE_CHECKING:
    from collections.abc import Iterator

FLAGS = ("-E", "-s", "-B", "-X", "utf8")
HERE = os.path.dirname(os.path.abspath(__file__))
FAULTY = os.path.join(HERE, "faulty", "program.py")
ANSWER = "print(json.dumps({'output': out, 'error': ''}, ensure_ascii=False))"


def program(script: str, *arguments: str, python: str = sys.executable, key: str = "") -> Program:
    prefix = os.path.dirname(os.path.dirname(os.path.realpath(python)))
    read = () if prefix in {"/", "/usr"} else (prefix, sys.prefix, sys.base_prefix)
    argv = (python, *FLAGS, script, *arguments)
    return Program(argv, os.path.dirname(script), "python", read, script=script, key=key)


@pytest.fixture
def skill(tmp_path):
    """Writes a script and gives its program."""

    def write(source: str, name: str = "main.py", *arguments: str) -> Program:
        folder = tmp_path / "skill"
        folder.mkdir(exist_ok=True)
        (folder / name).write_text(source, "utf-8")
        return program(str(folder / name), *arguments)

    return write


@pytest.fixture(params=["bwrap", "landlock", "none"])
def tier(request) -> str:
    if request.param == "bwrap":
        needs("bwrap")
    return request.param


@pytest.fixture
def pools(tier) -> Iterator[tuple[Pool, Pool]]:
    """One that forks, one that does not."""
    both = Pool(tier=tier, processes=4), Pool(tier=tier, processes=4, fork_server=False)
    yield both
    for pool in both:
        pool.close()


def ask(pool: Pool, asked: Program, arguments: dict | None = None, **more):
    return pool.run(RunRequest("s", "t", arguments or {}, asked, **more))


# --- the same as cold ---------------------------------------------------------------------


SCRIPTS = {
    "the seed's template": (
        "import sys, json\n"
        "def run(arguments: dict) -> dict:\n"
        "    return {'output': '结果 ' + str(arguments), 'error': ''}\n"
        "if __name__ == '__main__':\n"
        "    req = json.loads(sys.stdin.readline())\n"
        "    result = run(req.get('arguments', {}))\n"
        "    print(json.dumps(result, ensure_ascii=False))\n"
    ),
    "names of the module": (
        "import json, sys\n"
        "import __main__\n"
        "out = repr([__name__, __file__, __package__, __spec__, __doc__, sys.argv, sys.path[0],\n"
        "  __main__.__file__, type(__loader__).__name__, 'exit' in dir(__builtins__),\n"
        "  sys.flags.utf8_mode, sys.stdin.encoding, sys.stdout.line_buffering])\n" + ANSWER
    ),
    "input()": "import json\nout = input()\n" + ANSWER,
    "a sibling": "import json, beside\nout = beside.word + beside.__file__\n" + ANSWER,
    "environment and folder": (
        "import json, os\n"
        "hidden = ('TMPDIR', 'HOME', 'SATCHEL_SCRATCH')\n"
        "out = repr([os.getcwd() == os.environ['HOME'], sorted(os.listdir('.')) == [],\n"
        "  {k: v for k, v in os.environ.items() if k not in hidden}])\n" + ANSWER
    ),
    "signals": (
        "import json, signal\n"
        "out = repr([signal.getsignal(n) for n in (2, 13, 15, 17, 25)])\n"
        + ANSWER
    ),
    "a file that nobody closes": (
        "import json, os, subprocess, atexit\n"
        "kept = open('left.txt', 'w')\nkept.write('written')\n"
        "out = lambda: json.dumps({'output': 'late ' + str(kept.closed), 'error': ''})\n"
        "atexit.register(lambda: print(out()))\n"
    ),
    "exit functions and threads": (
        "import json, atexit, threading, time\nout = []\n"
        "atexit.register(lambda: print(json.dumps({'output': ' '.join(out), 'error': ''})))\n"
        "def work():\n    time.sleep(0.05)\n    out.append('thread')\n"
        "threading.Thread(target=work).start()\nout.append('main')\n"
    ),
    "sys.exit(0) after the answer": "import json, sys\nout = 'x'\n" + ANSWER + "\nsys.exit()\n",
    "sys.exit(3)": "import sys\nsys.exit(3)\n",
    "sys.exit with words": "import sys\nsys.exit('no such file')\n",
    "an exception": "def f():\n    raise ValueError('no — 不')\nf()\n",
    "a syntax error": "x = = 1\n",
    "a null byte": "x = 1\0\n",
    "a recursion": "def f():\n    f()\nf()\n",
    "Ctrl-C": "raise KeyboardInterrupt\n",
    "a hook of its own": (
        "import sys\nsys.excepthook = lambda *a: print('hooked', file=sys.stderr)\n1/0\n"
    ),
    "os._exit": "import os\nos._exit(7)\n",
    "abort": "import os\nos.abort()\n",
    "a program that forks itself": (
        "import json, os\nchild = os.fork()\n"
        "if child:\n    os.waitpid(child, 0)\n    out = 'parent'\n    "
        + ANSWER + "\n"
    ),
    "multiprocessing": (
        "import json, multiprocessing\n"
        "def square(x):\n    return x * x\n"
        "if __name__ == '__main__':\n"
        "    with multiprocessing.get_context('fork').Pool(2) as pool:\n"
        "        out = str(pool.map(square, [1, 2, 3]))\n    " + ANSWER + "\n"
    ),
    "subprocesses": (
        "import json, subprocess, sys\n"
        "asked = [sys.executable, '-c', 'print(1+1)']\n"
        "out = subprocess.run(asked, capture_output=True, text=True).stdout\n"
        + ANSWER
    ),
    "standard error": "import json, sys\nprint('for people', file=sys.stderr)\nout = ''\n" + ANSWER,
    "annotations": "import json\nx: int = 3\nout = repr(__annotations__)\n" + ANSWER,
    "a finaliser": (
        "import json, sys\n"
        "class Late:\n    def __del__(self):\n        sys.stderr.write('deleted')\n"
        "late = Late()\nout = ''\n" + ANSWER
    ),
}  # fmt: skip


COUNTED = ("a recursion", "a null byte")
"""The traceback counts frames, of which there are a few more; the reader of files words it anew."""


@pytest.mark.req("E4")
@pytest.mark.parametrize("name", SCRIPTS, ids=lambda name: name.replace(" ", "-"))
@pytest.mark.parametrize("tier", ["bwrap"], indirect=True)
def test_a_forked_program_does_what_a_started_one_does(name, pools, skill):
    forked, cold = pools
    skill("word = 'beside'\n", "beside.py")
    asked = skill(SCRIPTS[name])
    arguments = {"text": "文本 \u2028 ü"}
    expected = ask(cold, asked, arguments)
    assert expected.way == "cold"
    for _ in range(3):  # the first one is forked before, the others after the preloading
        result = ask(forked, asked, arguments)
        assert result.way == "fork"
        for field in ("output", "error", "fault", "exit_code"):
            assert getattr(result, field) == getattr(expected, field), (field, result, expected)
        if name not in COUNTED:
            assert result.stderr == expected.stderr


def test_nothing_is_carried_from_one_call_to_the_next(pools, skill, tier):
    source = (
        "import json, os, sys, random, builtins\n"
        "seen = [hasattr(builtins, 'mark'), 'json.mark' in sys.modules, os.environ.get('MARK'),\n"
        "        [n for n in os.listdir('.') if n in ('file', 'left')],\n"
        "        os.path.exists(os.environ['TMPDIR'] + '/left/deep')]\n"
        "builtins.mark = 1\nsys.modules['json.mark'] = json\nos.environ['MARK'] = '1'\n"
        "os.makedirs(os.environ['TMPDIR'] + '/left/deep')\nopen('file', 'w').close()\n"
        "os.chmod(os.environ['TMPDIR'] + '/left', 0)\n"
        "out = json.dumps([seen, random.random()])\n" + ANSWER
    )
    asked = skill(source)
    outs = [ask(pools[0], asked) for _ in range(4)]
    assert {result.way for result in outs} == {"fork"}
    assert {result.fault for result in outs} == {None}, outs
    said = [json.loads(result.output) for result in outs]
    assert [seen for seen, _ in said] == [[False, False, None, [], False]] * 4
    assert len({random for _, random in said}) == 4


@pytest.mark.parametrize("tier", ["bwrap", "landlock"], indirect=True)
def test_nothing_is_carried_on_beside_what_is_bound(pools, skill, tmp_path):
    # A skill and a workspace in the folder for temporary files: the folders above them are made
    # for the sandbox, and nothing may be kept in those.
    (tmp_path / "work").mkdir()
    source = (
        "import json, os\nout = []\n"
        f"for place in [os.environ['TMPDIR'], *{[str(one) for one in tmp_path.parents]!r}]:\n"
        "    mark = os.path.join(place, 'satchel-left-mark')\n"
        "    out += [place] if os.path.exists(mark) else []\n"
        "    try:\n        open(mark, 'w').close()\n"
        "    except OSError:\n        pass\n"
        "out = json.dumps(out)\n" + ANSWER
    )
    asked = skill(source)
    powers = Powers(str(tmp_path / "work"))
    outs = [ask(pools[0], asked, powers=powers) for _ in range(3)]
    assert [(one.way, one.output) for one in outs] == [("fork", "[]")] * 3, outs


def test_each_program_is_a_process_of_its_own(pools, skill):
    asked = skill("import json, os\nout = str(os.getpid())\n" + ANSWER)
    seen = [ask(pools[0], asked).output for _ in range(5)]
    assert len(set(seen)) == 5


def test_a_changed_script_is_read_again(pools, skill):
    assert ask(pools[0], skill("import json\nout = 'one'\n" + ANSWER)).output == "one"
    assert ask(pools[0], skill("import json\nout = 'three'\n" + ANSWER)).output == "three"


def test_the_file_is_python_3_9():
    with open(far.__file__, encoding="utf-8") as file:
        ast.parse(file.read(), feature_version=(3, 9))


def find_pythons() -> dict[str, str]:
    """Every other Python that is installed here, by its version."""
    home = os.environ.get("PYENV_ROOT") or os.path.join(os.path.expanduser("~"), ".pyenv")
    found = {"{}.{}".format(*sys.version_info[:2]): sys.executable}
    for version in ("3.9", "3.10", "3.11", "3.12", "3.13", "3.14"):
        paths = glob.glob(os.path.join(home, "versions", f"{version}.*", "bin", "python"))
        paths += [os.path.join("/usr/bin", f"python{version}")]
        for path in filter(os.path.exists, paths):
            found.setdefault(version, path)
    return found


PYTHONS = find_pythons()


@pytest.mark.parametrize("version", PYTHONS)
def test_it_serves_other_pythons(version, skill):
    """The file runs in the skill's interpreter, which may be older or newer than ours."""
    pool = Pool(tier="none", processes=2)
    try:
        asked = skill("import json, sys\nout = '%d.%d' % sys.version_info[:2]\n" + ANSWER)
        asked = program(asked.script, python=PYTHONS[version])
        for _ in range(3):
            result = ask(pool, asked)
            assert (result.output, result.way, result.exit_code) == (version, "fork", 0), result
    finally:
        pool.close()


# --- faults -------------------------------------------------------------------------------


HARD = [
    case for case in CASES if case.name.startswith(("a daemon", "a process", "hangs", "closes"))
]
"""What has to be ended: in each tier another way to be found."""


@pytest.mark.req("E4")
@pytest.mark.parametrize(
    ("tier", "case"),
    [("bwrap", case) for case in CASES] + [("landlock", case) for case in HARD],
    ids=lambda each: each if isinstance(each, str) else each.name.replace(" ", "-"),
    indirect=["tier"],
)
def test_every_fault_is_the_same_and_leaves_nothing(case, tier):
    timed = case.fault == "timeout"
    mark = uuid4().hex
    limits = Limits(timeout=0.6 if timed else 5.0, reply=REPLY, memory=case.memory << 20)
    asked = program(FAULTY, *case.acts)._replace(env=((MARK, mark),))
    pool = Pool(tier=tier, processes=2)
    try:
        request = RunRequest("s", "t", {"text": "x" * case.request}, asked, limits=limits)
        began = time.monotonic()
        with Lag() as lag:
            result = pool.run(request)
        late = time.monotonic() - began - limits.timeout
        assert result.way == "fork", result
        assert late < 0.25 + lag.lost
        if case.fault is None:
            assert (result.fault, result.detail) == (None, "")
            assert (result.output, result.exit_code) == (case.output, case.exit_code)
        else:
            expected = (case.fault,) if isinstance(case.fault, str) else case.fault
            assert result.fault in expected, result
        if not timed:  # the same server, or the next one, is as good as new
            assert pool.run(request).fault == result.fault
    finally:
        pool.close()
    assert eventually(lambda: marked(mark) == [])


def test_a_call_that_hangs_does_not_touch_another(pools, skill):
    asked = skill(
        "import json, sys, time\nasked = json.loads(sys.stdin.readline())['arguments']\n"
        "time.sleep(asked['sleep'])\nout = str(asked['sleep'])\n" + ANSWER
    )
    results = {}

    def call(sleep: float, timeout: float) -> None:
        limits = Limits(timeout=timeout)
        results[sleep] = ask(pools[0], asked, {"sleep": sleep}, limits=limits)

    threads = [threading.Thread(target=call, args=pair) for pair in ((30.0, 0.5), (1.0, 5.0))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results[30.0].fault == "timeout"
    assert results[1.0].output == "1.0"


def test_a_server_that_is_killed_is_replaced(pools, skill):
    asked = skill("import json\nout = 'well'\n" + ANSWER)
    assert ask(pools[0], asked).output == "well"
    (server,) = pools[0].kept()
    for pid in below(server.process.pid):
        os.kill(pid, 9)
    os.kill(server.process.pid, 9)
    assert eventually(lambda: not server.is_well())
    result = ask(pools[0], asked)
    assert (result.output, result.way) == ("well", "fork")


def test_a_program_that_kills_its_server_hurts_only_itself(pools, skill, tier):
    asked = skill("import os\nos.kill(os.getppid(), 9)\nimport time\ntime.sleep(30)\n")
    result = ask(pools[0], asked, limits=Limits(timeout=5))
    assert result.fault == "crashed"
    assert result.ran_ms < 3000
    assert ask(pools[0], skill("import json\nout = 'well'\n" + ANSWER)).output == "well"


def test_a_program_that_stops_its_server_is_ended_from_outside(pools, skill):
    asked = skill("import os\nos.kill(os.getppid(), 19)\nimport time\ntime.sleep(30)\n")
    began = time.monotonic()
    result = ask(pools[0], asked, limits=Limits(timeout=0.5))
    assert result.fault == "timeout"
    assert time.monotonic() - began < 1.5
    assert ask(pools[0], skill("import json\nout = 'well'\n" + ANSWER)).output == "well"


def test_a_server_that_cannot_start_is_said_and_done_without(skill, monkeypatch, tmp_path):
    broken = tmp_path / "broken.py"
    broken.write_text("raise ImportError('no ctypes here')\n")
    monkeypatch.setattr(forkserver, "_MAIN", str(broken))
    trace = Trace()
    pool = Pool(tier="none", processes=2, trace=trace)
    try:
        asked = skill("import json\nout = 'well'\n" + ANSWER)
        for _ in range(2):
            result = ask(pool, asked)
            assert (result.output, result.way) == ("well", "cold")
    finally:
        pool.close()
    (event,) = trace.events
    reason = "it ended with status 1 before it was ready"  # and not what it wrote
    assert event.values == {"what": "fork server", "reason": reason}


def test_a_module_that_hides_one_of_pythons_own_is_imported_nevertheless(pools, skill):
    skill("word = 'mine'\n", "csv.py")
    asked = skill("import json, csv\nout = csv.word\n" + ANSWER)
    result = ask(pools[0], asked)
    assert (result.output, result.way) == ("mine", "cold")


def test_secrets_and_powers_have_a_server_of_their_own(pools, skill, tmp_path):
    asked = skill("import json, os\nout = os.environ.get('KEY', 'none')\n" + ANSWER)
    said = [
        ask(pools[0], asked, powers=Powers(secrets=secrets)).output
        for secrets in ((("KEY", "one"),), (("KEY", "two"),), ())
    ]
    assert said == ["one", "two", "none"]
    assert pools[0].counts()["kept"] == 1


def test_no_descriptor_and_no_process_is_left_over_many_calls(pools, skill, tier):
    asked = skill("import json\nout = 'well'\n" + ANSWER)
    for _ in range(2):
        ask(pools[0], asked)
    before = len(os.listdir("/proc/self/fd"))
    (server,) = pools[0].kept()
    assert eventually(lambda: len(below(server.process.pid)) >= 1 + 2 * (tier == "bwrap"))
    inside = len(below(server.process.pid))
    for _ in range(60):
        assert ask(pools[0], asked).way == "fork"
    assert len(os.listdir("/proc/self/fd")) == before
    assert eventually(lambda: len(below(server.process.pid)) == inside)
    pools[0].close()
    assert eventually(lambda: "Z" not in below(launcher().pid).values())  # pyright: ignore[reportAttributeAccessIssue]
