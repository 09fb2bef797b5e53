"""Does a Python skill get the packages it asks for, and nothing else?"""

from __future__ import annotations

import os
import subprocess
import sys
from functools import partial

import pytest

from needs import builds, needs
from prepared import call, manifest, write_skill
from satchel.errors import BuildFailed, MissingRuntime
from satchel.runners.requirements import read_requirements
from satchel.runners.runtimes import Runtimes

MAIN = manifest("python", "main.py")


@pytest.fixture
def skill(tmp_path):
    """Write a skill's folder; give its path."""
    return partial(write_skill, str(tmp_path / "thing"))


@pytest.mark.req("E3")
def test_a_skill_imports_its_own_folder_and_nothing_of_the_host(skill, tmp_path):
    script = """
        import json, sys
        import helper
        seen = {}
        for name in ("satchel", "click", "yaml", "pytest", "stray", "pip"):
            try:
                __import__(name)
                seen[name] = True
            except ImportError:
                seen[name] = False
        print(json.dumps({"output": helper.WORD, "data": seen, "encoding": sys.stdout.encoding,
                          "user": sys.flags.no_user_site, "path": sys.path}))
    """
    folder = skill(
        {"main.py": "\n".join(line[8:] for line in script.split("\n")), "helper.py": "WORD = '词'"}
    )
    (tmp_path / "stray.py").write_text("")
    program = Runtimes(builds()).prepare(folder, MAIN)
    got = call(
        program,
        PYTHONPATH=str(tmp_path),
        PYTHONIOENCODING="latin-1",
        LC_ALL="C",
        PYTHONSTARTUP="/nowhere",
        PYTHONHOME="/nowhere",
    )
    assert got["output"] == "词"
    assert set(got["data"].values()) == {False}
    assert got["encoding"] == "utf-8"
    assert got["user"] == 1
    assert {"/", ""}.isdisjoint(got["path"])
    assert sorted(os.listdir(folder)) == ["helper.py", "main.py"]


def test_a_program_needs_to_see_its_interpreter_and_its_environment(skill):
    program = Runtimes(builds()).prepare(skill({"main.py": ""}), MAIN)
    code = "import sys, encodings; print(sys.prefix, encodings.__file__, sep='\\n')"
    told = subprocess.run([program.argv[0], "-c", code], capture_output=True, text=True, check=True)
    for path in (*told.stdout.split("\n")[:2], os.path.realpath(program.argv[0])):
        assert any(path.startswith(folder) for folder in program.read), path
    assert program.argv[-1] == os.path.join(program.folder, "main.py")


@pytest.mark.req("E3")
@pytest.mark.timeout(120)
@pytest.mark.parametrize("tool", ["uv", "pip"])
def test_requirements_are_installed_once(skill, tmp_path, tool):
    needs("uv")
    folder = skill(
        {
            "main.py": "import six, json; print(json.dumps({'output': six.__version__}))",
            "requirements.txt": "# what it needs\nsix==1.16.0 ; python_version >= '3.8'  # small\n",
        }
    )
    env = {**os.environ, "HOME": "/proc/no-home"}
    if tool == "pip":  # uv that does not know where packages are, as with pip's own configuration
        fake = tmp_path / "uv"
        fake.write_text("#!/bin/sh\nexit 1\n")
        fake.chmod(0o755)
        env["PATH"] = f"{tmp_path}{os.pathsep}{env['PATH']}"
    lines: list[str] = []
    runtimes = Runtimes(str(tmp_path / "cache"), env)
    program = runtimes.prepare(folder, MAIN, progress=lines.append)
    assert call(program) == {"output": "1.16.0"}
    used = ["with uv"] if tool == "uv" else ["with uv", "with pip"]
    assert [line.split("`thing` ")[1] for line in lines[1:-1]] == used
    compiled = [name for _, _, names in os.walk(tmp_path / "cache") for name in names]
    assert any(name.startswith("six.") and name.endswith(".pyc") for name in compiled)
    lines.clear()
    again = Runtimes(str(tmp_path / "cache"), env).prepare(folder, MAIN, progress=lines.append)
    assert again.argv == program.argv
    assert lines == []


@pytest.mark.req("E3")
@pytest.mark.timeout(120)
def test_a_wrong_checksum_is_not_installed(skill, tmp_path):
    folder = skill(
        {"main.py": "", "requirements.txt": "six==1.16.0 \\\n    --hash=sha256:" + "0" * 64}
    )
    with pytest.raises(BuildFailed, match="packages of `thing` cannot be installed"):
        Runtimes(str(tmp_path / "cache")).prepare(folder, MAIN)


@pytest.mark.timeout(120)
def test_nothing_is_built_from_source(skill, tmp_path):
    """An archive of sources runs its own `setup.py`; here that would leave a trace."""
    import tarfile

    trace = tmp_path / "ran"
    project = tmp_path / "evil-1.0"
    project.mkdir()
    (project / "setup.py").write_text(
        f"open({str(trace)!r}, 'w').close()\n"
        "from setuptools import setup\nsetup(name='evil', version='1.0')\n"
    )
    (project / "PKG-INFO").write_text("Metadata-Version: 2.1\nName: evil\nVersion: 1.0\n")
    links = tmp_path / "links"
    links.mkdir()
    with tarfile.open(links / "evil-1.0.tar.gz", "w:gz") as archive:
        archive.add(project, "evil-1.0")
    folder = skill({"main.py": "", "requirements.txt": "evil==1.0\n"})
    where = {"PIP_FIND_LINKS": str(links), "UV_FIND_LINKS": str(links), "PIP_NO_INDEX": "1"}
    env = {**os.environ, **where, "UV_NO_INDEX": "1", "PIP_NO_BINARY": ":all:"}
    with pytest.raises(BuildFailed) as caught:
        Runtimes(str(tmp_path / "cache"), env).prepare(folder, MAIN)
    assert "only packages that come as wheels" in caught.value.hint
    assert "evil" in caught.value.message
    assert not trace.exists()


@pytest.mark.parametrize(
    "line",
    [
        "-e .",
        "-r other.txt",
        "-c limits.txt",
        "." + "/local",
        "/absolute/wheel.whl",
        "../up",
        "name @ https://example.org/name.whl",
        "name@file:///etc/passwd",
        "https://example.org/name.whl",
        "git+https://example.org/x",
        "six --global-option=x",
        "six --config-settings=x=y",
        "--pre",
        "--trusted-host example.org",
        "-i https://example.org/simple",
        "-f /tmp",
        "${HOME}/wheel.whl",
        "six==${VERSION}",
        "six==1.16.0 --hash=md5:0",
        "six; python_version > '3' --no-binary :all:",
        "six \\\n  -r other.txt",
        "six \\",
    ],
)
def test_requirements_may_only_name_packages(skill, line):
    folder = skill({"requirements.txt": f"six\n{line}\n"})
    with pytest.raises(BuildFailed, match="line 2") as caught:
        read_requirements(folder)
    assert "may only name packages" in caught.value.message


def test_every_wrong_line_is_told_at_once(skill):
    with pytest.raises(BuildFailed) as caught:
        read_requirements(skill({"requirements.txt": "-e .\nsix\n\n-r x\n"}))
    assert caught.value.message.splitlines()[1:] == ["line 1: `-e .`", "line 4: `-r x`"]


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("", ""),
        ("# nothing\n\n", ""),
        ("six", "six"),
        ("\ufeffsix\r\nrequests>=2,<3\r\n", "six\nrequests>=2,<3"),
        ("A.b-c_d[x, y] ~= 1.0", "A.b-c_d[x, y] ~= 1.0"),
        ("six (>=1.0)", "six (>=1.0)"),
        ("six==1.* ; sys_platform == 'a-b' or extra != \"z\"",) * 2,
        ("six==1+cpu.1 # why", "six==1+cpu.1"),
        ("six==1 \\\n --hash=sha256:" + "a" * 64 + " \\\n --hash=sha256:" + "b" * 64,
         "six==1 --hash=sha256:" + "a" * 64 + " --hash=sha256:" + "b" * 64),
    ],
)  # fmt: skip
def test_requirements_that_are_read(skill, text, kept):
    assert read_requirements(skill({"requirements.txt": text})) == kept


def test_requirements_behind_a_link_to_elsewhere_are_refused(skill, tmp_path):
    folder = skill({"main.py": ""})
    (tmp_path / "secret").write_text("six")
    os.symlink(tmp_path / "secret", os.path.join(folder, "requirements.txt"))
    with pytest.raises(BuildFailed, match="cannot be read"):
        read_requirements(folder)


def test_satchel_runs_its_own_python(skill):
    program = Runtimes(builds()).prepare(skill({"main.py": ""}), MAIN)
    assert os.path.samefile(program.argv[0], getattr(sys, "_base_executable", sys.executable))


@pytest.mark.timeout(120)
def test_where_satchel_is_frozen_a_python_on_path_serves(skill, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    base = os.path.dirname(os.path.realpath(sys.executable))
    folder = skill({"main.py": "import sys; print('{\"output\": %d}' % sys.flags.no_user_site)"})
    runtimes = Runtimes(str(tmp_path / "cache"), {"PATH": base})
    assert call(runtimes.prepare(folder, MAIN)) == {"output": 1}
    with pytest.raises(MissingRuntime, match="needs Python"):
        Runtimes(str(tmp_path / "cache"), {"PATH": str(tmp_path)}).prepare(folder, MAIN)
    broken = tmp_path / "python3"
    broken.write_text("#!/bin/sh\necho broken >&2\nexit 1\n")
    broken.chmod(0o755)
    with pytest.raises(MissingRuntime, match="does not start: broken"):
        Runtimes(str(tmp_path / "cache"), {"PATH": str(tmp_path)}).prepare(folder, MAIN)


@pytest.mark.timeout(120)
def test_without_uv_and_pip_python_brings_its_own(skill, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pip", None)  # as if it were not installed
    fake = tmp_path / "uv"
    fake.write_text("#!/bin/sh\nexit 1\n")
    fake.chmod(0o755)
    env = {**os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    folder = skill(
        {
            "main.py": "import six, json; print(json.dumps({'output': six.__version__}))",
            "requirements.txt": "six==1.16.0\n",
        }
    )
    assert call(Runtimes(str(tmp_path / "cache"), env).prepare(folder, MAIN)) == {
        "output": "1.16.0"
    }
