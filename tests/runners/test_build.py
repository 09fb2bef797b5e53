"""Builds are complete, made once, and sandboxed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from runners.leftovers import eventually
from satchel.errors import BuildFailed, Changed
from satchel.runners.base import BuildStopped
from satchel.runners.build import MAX_CONCURRENT_BUILDS, BuildCache, is_complete
from satchel.runners.sandbox import find_interpreter

SRC = os.path.join(os.path.dirname(__file__), "..", "..", "src")


def quiet(_line):
    pass


def workshop(folder, env=None, **more):
    return BuildCache(str(folder), env, choose=lambda: "landlock", **more)


@pytest.fixture
def shop(tmp_path):
    return workshop(tmp_path / "cache")


def run(shop, tmp_path, code, **more):
    base = find_interpreter()
    command = [base.executable, "-I", "-c", code]
    return shop.run(command, str(tmp_path / "aside"), read=base.read, **more)


def one_file(aside, _path):
    with open(os.path.join(aside, "thing"), "w", encoding="utf-8") as file:
        file.write("built")
    return ("thing",)


BUILDER = textwrap.dedent(
    """
    import os, sys, time
    from satchel.runners.build import BuildCache

    def build(aside, path):
        with open(sys.argv[2], "a") as log:
            log.write("building\\n")
        with open(os.path.join(aside, "thing"), "w") as file:
            file.write("half")
        while not os.path.exists(sys.argv[3]):
            time.sleep(0.01)
        with open(os.path.join(aside, "thing"), "w") as file:
            file.write("whole")
        return ("thing",)

    shop = BuildCache(sys.argv[1], choose=lambda: "none")
    home = shop.get_or_build("kind", "key", build, lambda line: print(line, flush=True))
    print(open(os.path.join(home, "thing")).read())
    """
)


def start(tmp_path):
    """A builder in a process of its own; it goes on when there is a file `go`."""
    places = [str(tmp_path / name) for name in ("cache", "log", "go")]
    return subprocess.Popen(
        [sys.executable, "-c", BUILDER, *places],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": SRC},
    )


def wait_for(path, seconds=60.0):
    end = time.monotonic() + seconds
    while not os.path.exists(path):
        assert time.monotonic() < end, f"{path} did not appear"
        time.sleep(0.01)


@pytest.mark.req("E3")
def test_two_processes_that_ask_at_once_build_once(tmp_path):
    one = start(tmp_path)
    wait_for(tmp_path / "log")
    other = start(tmp_path)
    line = other.stdout.readline()
    assert line == "Waiting for other builds\n"
    (tmp_path / "go").touch()
    assert one.communicate()[0] == other.communicate()[0] == "whole\n"
    assert (tmp_path / "log").read_text() == "building\n"


@pytest.mark.req("E3")
def test_a_killed_build_is_not_taken_for_whole(tmp_path, shop):
    killed = start(tmp_path)
    wait_for(tmp_path / "log")
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    assert not is_complete(shop.path("kind", "key"))
    assert os.listdir(tmp_path / "cache" / "unfinished")
    home = shop.get_or_build("kind", "key", one_file, quiet)
    assert is_complete(home)
    assert os.listdir(tmp_path / "cache" / "unfinished") == []


def test_an_unusable_cache_folder_is_an_error(tmp_path):
    (tmp_path / "file").write_text("")
    shop = workshop(tmp_path / "file" / "cache")
    with pytest.raises(BuildFailed, match="cannot be used: Not a directory") as caught:
        shop.get_or_build("kind", "key", one_file, quiet)
    assert "SATCHEL_HOME" in caught.value.hint
    with pytest.raises(BuildFailed, match="There is no home folder"):
        workshop("").get_or_build("kind", "key", one_file, quiet)


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
    shop = workshop(tmp_path / "cache", {**given, "HOME": str(tmp_path)})
    (tmp_path / ".npmrc").write_text("cafile=/etc/hosts\n")
    code = "import os, json; print(json.dumps(sorted(os.environ))); open('/etc/hosts')"
    told = run(shop, tmp_path, code, network=True)
    assert set(json.loads(told)) == {
        "PATH", "PIP_CERT", "npm_config_cafile", "https_proxy", "LC_ALL", "NO_COLOR", "HOME",
        "TMPDIR", "NPM_CONFIG_USERCONFIG",
    }  # fmt: skip


def test_programs_of_the_current_folder_are_not_tools(tmp_path, monkeypatch):
    fake = tmp_path / "node"
    fake.write_text("#!/bin/sh\n")
    fake.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    assert workshop("", {"PATH": f".{os.pathsep}{os.pathsep}bin"}).which("node") is None
    assert workshop("", {"PATH": f".{os.pathsep}{tmp_path}"}).which("node") == str(fake)


def test_a_tool_that_is_interrupted_leaves_no_process(shop, tmp_path):
    code = (
        "import subprocess; subprocess.Popen(['sleep', '61.7']);"
        "open('up', 'w').close(); subprocess.run(['sleep', '61.7'])"
    )
    main = threading.get_ident()

    def interrupt():
        wait_for(tmp_path / "aside" / "up")
        signal.pthread_kill(main, signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        run(shop, tmp_path, code)
    thread.join()
    assert eventually(
        lambda: subprocess.run(["pgrep", "-f", "sleep 61[.]7"], check=False).returncode
    )


# --- given up, and not kept ---------------------------------------------------------------


@pytest.mark.req("E3")
@pytest.mark.parametrize("fault", ["cancelled", "timeout"])
def test_a_build_without_waiting_callers_is_cancelled(tmp_path, cancel, fault):
    cache = str(tmp_path / "cache")
    shop = workshop(cache, cancel=cancel)
    if fault == "timeout":
        shop = workshop(cache, seconds=0.05)
    threading.Timer(0.05, cancel.set).start()

    def build(aside, _path):
        shop.run(["/bin/sleep", "30"], aside)
        return []

    with pytest.raises(BuildStopped) as stopped:
        shop.get_or_build("kind", "key", build, quiet)
    assert stopped.value.fault == fault
    assert os.listdir(tmp_path / "cache" / "unfinished") == []
    assert workshop(tmp_path / "cache").get_or_build("kind", "key", one_file, quiet)


@pytest.mark.req("E3")
def test_waiting_for_another_builder_can_be_given_up(tmp_path):
    other = start(tmp_path)
    wait_for(tmp_path / "log")
    with pytest.raises(BuildStopped):
        workshop(tmp_path / "cache", seconds=0.05).get_or_build("kind", "key", one_file, quiet)
    (tmp_path / "go").touch()
    assert "whole" in other.communicate()[0]


@pytest.mark.req("E3")
def test_few_builds_run_at_once(tmp_path):
    shop = workshop(tmp_path / "cache")
    under_way, most, lines = [], [], []

    def build(key):
        def inner(aside, path):
            under_way.append(key)
            most.append(len(under_way))
            time.sleep(0.1)
            under_way.remove(key)
            return one_file(aside, path)

        return shop.get_or_build("kind", key, inner, lines.append)

    with ThreadPoolExecutor(6) as pool:
        assert len(set(pool.map(build, "abcdef"))) == 6
    assert max(most) == MAX_CONCURRENT_BUILDS
    assert "Waiting for other builds" in lines


def test_an_unconfirmed_build_is_not_kept(tmp_path):
    def refuse():
        raise Changed("The skill changed meanwhile", "Call it again")

    shop = workshop(tmp_path / "cache", confirm=refuse)
    with pytest.raises(Changed):
        shop.get_or_build("kind", "key", one_file, quiet)
    assert not is_complete(shop.path("kind", "key"))
    assert os.listdir(tmp_path / "cache" / "unfinished") == []
