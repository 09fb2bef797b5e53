"""Go skills become a binary in the cache, without running anything of them."""

from __future__ import annotations

import os
import zipfile

import pytest

from needs import builds, needs
from prepared import call, manifest
from satchel.errors import BuildFailed
from satchel.runners.runtimes import Runtimes

MAIN = manifest("go", "main.go")
MOD = "module thing\n\ngo 1.21\n"
pytestmark = pytest.mark.timeout(300)  # an empty cache: Go compiles its standard library


def program(expression, *imports):
    lines = "".join(f"import {one}\n" for one in imports)
    return (
        f'package main\n\nimport "fmt"\n{lines}\n'
        f'func main() {{ fmt.Printf("{{\\"output\\": %q}}\\n", {expression}) }}\n'
    )


@pytest.fixture
def cache(tmp_path):
    """A cache of its own, but for what Go has compiled of its standard library."""
    needs("go")
    shared = os.path.join(builds(), "runtimes", "downloads")
    os.makedirs(os.path.join(shared, "go"), exist_ok=True)
    own = tmp_path / "cache" / "runtimes"
    own.mkdir(parents=True)
    os.symlink(shared, own / "downloads")
    return str(tmp_path / "cache")


@pytest.mark.req("E3")
def test_go_is_built_once_and_again_when_it_changes(skill, cache):
    lines: list[str] = []
    runtimes = Runtimes(cache, {**os.environ, "HOME": "/proc/no-home"})
    folder = skill({"main.go": program('"one"'), "go.mod": MOD})
    one = runtimes.prepare(folder, MAIN, progress=lines.append)
    assert call(one) == {"output": "one"}
    again = Runtimes(cache).prepare(folder, MAIN, progress=lines.append)
    assert again.argv == one.argv
    assert lines == ["Building `thing` with Go"]
    skill({"main.go": program("word"), "word.go": 'package main\n\nvar word = "two"\n'})
    two = runtimes.prepare(folder, MAIN)
    assert two.key != one.key
    assert call(two) == {"output": "two"}
    assert sorted(os.listdir(folder)) == ["go.mod", "main.go", "word.go"]
    assert os.listdir(os.path.dirname(two.argv[0])) != ["sources"]


@pytest.mark.req("E3")
def test_modules_come_from_where_the_user_says(skill, cache, tmp_path):
    proxy = tmp_path / "proxy" / "example.com" / "word" / "@v"
    proxy.mkdir(parents=True)
    (proxy / "list").write_text("v1.0.0\n")
    (proxy / "v1.0.0.info").write_text('{"Version": "v1.0.0"}')
    (proxy / "v1.0.0.mod").write_text("module example.com/word\n")
    with zipfile.ZipFile(proxy / "v1.0.0.zip", "w") as archive:
        archive.writestr("example.com/word@v1.0.0/go.mod", "module example.com/word\n")
        archive.writestr("example.com/word@v1.0.0/word.go", 'package word\n\nconst Word = "far"\n')
    env = {**os.environ, "GOPROXY": f"file://{tmp_path}/proxy", "GOSUMDB": "off"}
    folder = skill(
        {
            "main.go": program("word.Word", '"example.com/word"'),
            "go.mod": MOD + "\nrequire example.com/word v1.0.0\n",
        }
    )
    assert call(Runtimes(cache, env).prepare(folder, MAIN)) == {"output": "far"}
    assert sorted(os.listdir(folder)) == ["go.mod", "main.go"], "go.sum is not written there"


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({"main.go": "package main\n\nfunc main() { x }\n"}, r"main\.go:3:15: undefined: x"),
        ({"main.go": "package other\n"}, "exactly one main package"),
        ({"go.mod": "module x\n\ngo 9.99\n"}, "go 9.99|GOTOOLCHAIN=local"),
        ({"go.mod": "modul x\n"}, "unknown directive"),
        ({"go.mod": MOD + "replace example.com/a => ../elsewhere\n"}, "published packages"),
        ({"go.mod": MOD + "replace example.com/a => /etc\n"}, "published packages"),
        ({"main.go": 'package main\n\nimport "C"\n\nfunc main() {}\n'}, "constraints|cgo"),
        (
            {
                "main.go": program("word.Word", '"example.com/none"'),
                "go.mod": MOD + "\nrequire example.com/none v1.0.0\n",
            },
            "module lookup disabled",
        ),
    ],
)  # fmt: skip
def test_a_build_error_is_reported(skill, cache, files, words):
    folder = skill({"main.go": program('"x"'), "go.mod": MOD, **files})
    with pytest.raises(BuildFailed, match=words) as caught:
        Runtimes(cache, {**os.environ, "GOPROXY": "off"}).prepare(folder, MAIN)
    assert cache not in caught.value.message
    assert caught.value.hint


def test_go_needs_a_go_mod(skill):
    with pytest.raises(BuildFailed, match=r"There is no `go\.mod`") as caught:
        Runtimes(builds()).prepare(skill({"main.go": program('"x"')}), MAIN)
    assert "go mod init" in caught.value.hint


def test_building_runs_no_program_of_the_skill(skill, cache, tmp_path):
    """Neither a tool in place of the compiler, nor C, nor a generator, nor version control."""
    trace = tmp_path / "ran"
    tool = tmp_path / "evil"
    tool.write_text(f"#!/bin/sh\ntouch {trace}\nexit 1\n")
    tool.chmod(0o755)
    folder = skill(
        {
            "main.go": f"//go:generate {tool}\n" + program('"x"'),
            "c.go": f'package main\n\n// #cgo CFLAGS: -B{tool}\n// int x;\nimport "C"\n',
            "go.mod": MOD,
            "go.env": f"GOFLAGS=-toolexec={tool}\n",
            ".git/config": f"[core]\n\tfsmonitor = {tool}\n",
        }
    )
    names = ("CC", "CXX", "AR", "PKG_CONFIG", "GIT_SSH", "GOROOT", "GOCACHEPROG")
    env = {**os.environ, **dict.fromkeys(names, str(tool)), "GOFLAGS": f"-toolexec={tool}"}
    assert call(Runtimes(cache, env).prepare(folder, MAIN)) == {"output": "x"}
    assert not trace.exists()
