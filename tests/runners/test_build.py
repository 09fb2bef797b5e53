"""Is what is built whole, built once, and built without anything that was not allowed?"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from satchel.errors import BuildFailed, Changed
from satchel.runners.base import BuildStopped
from satchel.runners.build import AT_ONCE, ToolFailed, Workshop, is_whole, last_lines

SRC = os.path.join(os.path.dirname(__file__), "..", "..", "src")


def quiet(_line):
    pass


@pytest.fixture
def shop(tmp_path):
    return Workshop(str(tmp_path / "cache"), dict(os.environ))


def one_file(aside, _path):
    with open(os.path.join(aside, "thing"), "w", encoding="utf-8") as file:
        file.write("built")
    return ("thing",)


BUILDER = textwrap.dedent(
    """
    import os, sys, time
    from satchel.runners.build import Workshop

    def build(aside, path):
        with open(sys.argv[2], "a") as log:
            log.write("building\\n")
        with open(os.path.join(aside, "thing"), "w") as file:
            file.write("half")
        time.sleep(float(sys.argv[3]))
        with open(os.path.join(aside, "thing"), "w") as file:
            file.write("whole")
        return ("thing",)

    shop = Workshop(sys.argv[1])
    home = shop.make("kind", "key", build, lambda line: print(line, flush=True))
    print(open(os.path.join(home, "thing")).read())
    """
)


def start(tmp_path, seconds):
    return subprocess.Popen(
        [sys.executable, "-c", BUILDER, str(tmp_path / "cache"), str(tmp_path / "log"), seconds],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": SRC},
    )


def wait_for(path, seconds=8.0):
    end = time.monotonic() + seconds
    while not os.path.exists(path):
        assert time.monotonic() < end, f"{path} did not appear"
        time.sleep(0.01)


@pytest.mark.req("E3")
def test_two_processes_that_ask_at_once_build_once(tmp_path):
    one = start(tmp_path, "1")
    wait_for(tmp_path / "log")
    other = start(tmp_path, "1")
    first, second = one.communicate()[0], other.communicate()[0]
    assert (tmp_path / "log").read_text() == "building\n"
    assert first == "whole\n"
    assert second == "Another process is preparing this already: waiting for it\nwhole\n"


@pytest.mark.req("E3")
def test_a_killed_build_is_not_taken_for_whole(tmp_path, shop):
    killed = start(tmp_path, "60")
    wait_for(tmp_path / "log")
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    assert not is_whole(shop.path("kind", "key"))
    assert os.listdir(tmp_path / "cache" / "unfinished")
    home = shop.make("kind", "key", one_file, quiet)
    assert is_whole(home)
    assert os.listdir(tmp_path / "cache" / "unfinished") == []


def test_threads_that_ask_at_once_build_once(shop):
    built: list[str] = []

    def build(aside, path):
        built.append(aside)
        time.sleep(0.2)
        return one_file(aside, path)

    threads = [
        threading.Thread(target=shop.make, args=("kind", "key", build, quiet)) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(built) == 1


def test_what_was_deleted_is_built_again(shop):
    home = shop.make("kind", "key", one_file, quiet)
    os.unlink(os.path.join(home, "thing"))
    assert not is_whole(home)
    assert is_whole(shop.make("kind", "key", one_file, quiet))
    shutil.rmtree(shop.folder)
    assert is_whole(shop.make("kind", "key", one_file, quiet))


def test_what_nobody_uses_for_a_month_makes_room(shop):
    month = time.time() - 31 * 86_400
    homes = [shop.make("kind", key, one_file, quiet) for key in ("used", "unused")]
    for home in homes:
        os.utime(os.path.join(home, ".whole"), (month, month))
    shop.make("kind", "used", one_file, quiet)
    shop.make("kind", "new", one_file, quiet)
    assert [is_whole(home) for home in homes] == [True, False]


def test_a_cache_that_is_deleted_while_building_is_built_again(shop):
    attempts: list[int] = []

    def build(aside, path):
        attempts.append(1)
        if len(attempts) == 1:
            shutil.rmtree(shop.folder)
        return one_file(aside, path)

    assert is_whole(shop.make("kind", "key", build, quiet))
    assert len(attempts) == 2


def test_a_failed_build_leaves_nothing(shop):
    def build(aside, path):
        one_file(aside, path)
        raise BuildFailed("no")

    with pytest.raises(BuildFailed, match="no"):
        shop.make("kind", "key", build, quiet)
    assert os.listdir(os.path.join(shop.folder, "unfinished")) == []
    assert not os.path.exists(shop.path("kind", "key"))


def test_a_cache_folder_that_cannot_be_used_is_said(tmp_path):
    (tmp_path / "file").write_text("")
    shop = Workshop(str(tmp_path / "file" / "cache"))
    with pytest.raises(BuildFailed, match="cannot be used: Not a directory") as caught:
        shop.make("kind", "key", one_file, quiet)
    assert "SATCHEL_HOME" in caught.value.hint
    with pytest.raises(BuildFailed, match="There is no cache folder"):
        Workshop("").make("kind", "key", one_file, quiet)


def test_tools_get_an_environment_by_allow_list(tmp_path):
    given = {
        "PATH": os.environ["PATH"],
        "OPENAI_API_KEY": "secret",
        "PYTHONPATH": "/somewhere",
        "NODE_OPTIONS": "--require=/evil.js",
        "GOFLAGS": "-toolexec=/evil",
        "LD_PRELOAD": "",
        "PIP_CERT": "/certs",
        "PIP_TARGET": "/elsewhere",
        "npm_config_cafile": "/certs",
        "npm_config_ignore_scripts": "false",
        "https_proxy": "http://proxy:1",
        "LC_ALL": "C.UTF-8",
    }
    shop = Workshop(str(tmp_path), given)
    code = "import os, json; print(json.dumps(sorted(os.environ)))"
    names = set(json.loads(shop.run([sys.executable, "-I", "-c", code], str(tmp_path))))
    assert names == {
        "PATH", "PIP_CERT", "npm_config_cafile", "https_proxy", "LC_ALL", "NO_COLOR",
    }  # fmt: skip


def test_programs_of_the_current_folder_are_not_tools(tmp_path, monkeypatch):
    fake = tmp_path / "node"
    fake.write_text("#!/bin/sh\n")
    fake.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    assert Workshop("", {"PATH": f".{os.pathsep}{os.pathsep}bin"}).which("node") is None
    assert Workshop("", {"PATH": f".{os.pathsep}{tmp_path}"}).which("node") == str(fake)


def test_the_end_of_what_a_tool_wrote_is_told(shop, tmp_path):
    code = (
        "import sys; print('\\n'.join(str(n) for n in range(50)), file=sys.stderr);"
        "print('\\x1b[31mnpm warn old\\nerror: from https://me:pass@host/x\\x1b[0m\\n',"
        "file=sys.stderr);"
        "sys.exit(3)"
    )
    with pytest.raises(ToolFailed) as caught:
        shop.run([sys.executable, "-c", code], str(tmp_path))
    lines = caught.value.words.splitlines()
    assert lines[-1] == "error: from https://host/x"
    assert lines[0] == "39"
    assert last_lines(b"") == ""


def test_a_tool_that_is_interrupted_leaves_no_process(shop, tmp_path):
    code = (
        "import os, subprocess, sys;"
        "subprocess.Popen(['sleep', '61.7']); print('up', flush=True);"
        f"open({str(tmp_path / 'up')!r}, 'w').close(); subprocess.run(['sleep', '61.7'])"
    )
    main = threading.get_ident()

    def interrupt():
        wait_for(tmp_path / "up")
        signal.pthread_kill(main, signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        shop.run([sys.executable, "-c", code], str(tmp_path))
    thread.join()
    time.sleep(0.1)
    left = subprocess.run(["pgrep", "-f", "sleep 61[.]7"], capture_output=True, check=False)
    assert left.stdout == b""


# --- given up, and not kept ---------------------------------------------------------------


class Cancel:
    """Taken back by `now`."""

    def __init__(self):
        self._read, self._write = os.pipe()

    def fileno(self):
        return self._read

    def now(self):
        os.write(self._write, b"!")

    def close(self):
        os.close(self._read)
        os.close(self._write)


@pytest.fixture
def cancel():
    made = Cancel()
    yield made
    made.close()


SLEEP = [sys.executable, "-c", "import time; time.sleep(30)"]


@pytest.mark.req("E3")
@pytest.mark.parametrize("fault", ["cancelled", "timeout"])
def test_a_build_that_nobody_waits_for_is_given_up(tmp_path, cancel, fault):
    cache = str(tmp_path / "cache")
    shop = Workshop(cache, cancel=cancel)
    if fault == "timeout":
        shop = Workshop(cache, seconds=0.5)
    threading.Timer(0.5, cancel.now).start()
    began = time.monotonic()

    def build(aside, _path):
        shop.run(SLEEP, cwd=aside)
        return []

    with pytest.raises(BuildStopped) as stopped:
        shop.make("kind", "key", build, quiet)
    assert stopped.value.fault == fault
    assert time.monotonic() - began < 5
    assert os.listdir(tmp_path / "cache" / "unfinished") == []
    assert Workshop(str(tmp_path / "cache")).make("kind", "key", one_file, quiet)


@pytest.mark.req("E3")
def test_waiting_for_another_builder_can_be_given_up(tmp_path):
    other = start(tmp_path, "1.5")
    wait_for(tmp_path / "log")
    began = time.monotonic()
    with pytest.raises(BuildStopped):
        Workshop(str(tmp_path / "cache"), seconds=0.3).make("kind", "key", one_file, quiet)
    assert time.monotonic() - began < 1.4
    assert "whole" in other.communicate()[0]


@pytest.mark.req("E3")
def test_few_builds_run_at_once_and_one_may_need_another(tmp_path):
    shop = Workshop(str(tmp_path / "cache"))
    under_way, most, lines = [], [], []

    def build(key):
        def inner(aside, path):
            under_way.append(key)
            most.append(len(under_way))
            shop.make("part", "shared", one_file, quiet)
            time.sleep(0.1)
            under_way.remove(key)
            return one_file(aside, path)

        return shop.make("kind", key, inner, lines.append)

    with ThreadPoolExecutor(6) as pool:
        assert len(set(pool.map(build, "abcdef"))) == 6
    assert max(most) == AT_ONCE
    assert "Other skills are being prepared: waiting for them" in lines


def test_what_is_not_confirmed_is_not_kept(tmp_path):
    def refuse():
        raise Changed("The skill changed meanwhile", "Call it again")

    shop = Workshop(str(tmp_path / "cache"), confirm=refuse)
    with pytest.raises(Changed):
        shop.make("kind", "key", one_file, quiet)
    assert not is_whole(shop.path("kind", "key"))
    assert os.listdir(tmp_path / "cache" / "unfinished") == []


def test_a_slow_tool_is_told_everything(shop, tmp_path):
    code = "import sys, time; time.sleep(0.4); print(len(sys.stdin.read()))"
    told = shop.run([sys.executable, "-c", code], cwd=str(tmp_path), stdin="x" * 300_000)
    assert told.strip() == "300000"
