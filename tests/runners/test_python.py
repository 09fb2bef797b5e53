"""Python skills get the packages they require, and nothing else."""

from __future__ import annotations

import json
import os
import tarfile
import zipfile

import pytest

from needs import builds, needs
from prepared import call, in_tier, manifest
from satchel.errors import BuildFailed, Unsandboxed
from satchel.runners import tiers
from satchel.runners.build import BuildCache
from satchel.runners.python import read_requirements
from satchel.runners.runtimes import Runtimes
from satchel.runners.sandbox import find_interpreter
from satchel.runners.tiers import TIERS
from satchel.settings import load_settings
from sizes import sized

MAIN = manifest("python", "main.py")


def wheel(folder, name, *needed):
    """Write a wheel whose metadata asks for `needed`."""
    info = f"{name}-1.0.dist-info"
    lines = "".join(f"Requires-Dist: {one}\n" for one in needed)
    files = {
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n{lines}",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/RECORD": "",
    }
    with zipfile.ZipFile(folder / f"{name}-1.0-py3-none-any.whl", "w") as archive:
        for path, text in files.items():
            archive.writestr(path, text)


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


@pytest.mark.req("E3")
@pytest.mark.timeout(120)
@pytest.mark.parametrize(("tool", "tier"), [("uv", "landlock"), ("pip", "bwrap")])
def test_requirements_are_installed_once(skill, tmp_path, tool, tier):
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
    runtimes = in_tier(tier, tmp_path, env)
    program = runtimes.prepare(folder, MAIN, progress=lines.append)
    assert call(program) == {"output": "1.16.0"}
    used = ["with uv…"] if tool == "uv" else ["with uv…", "with pip…"]
    assert [line.split("`thing` ")[1] for line in lines] == used
    home = os.path.dirname(os.path.dirname(os.path.dirname(program.argv[0])))
    with open(os.path.join(home, "requirements.txt"), encoding="utf-8") as file:
        assert file.read().startswith("six==1.16.0 --hash=sha256:")
    compiled = [name for _, _, names in os.walk(home) for name in names]
    assert any(name.startswith("six.") and name.endswith(".pyc") for name in compiled)
    lines.clear()
    again = in_tier(tier, tmp_path, env).prepare(folder, MAIN, progress=lines.append)
    assert again.argv == program.argv
    assert lines == []


@pytest.mark.req("E3")
@pytest.mark.timeout(120)
def test_a_wrong_checksum_is_not_installed(skill, tmp_path):
    folder = skill(
        {"main.py": "", "requirements.txt": "six==1.16.0 \\\n    --hash=sha256:" + "0" * 64}
    )
    with pytest.raises(BuildFailed, match="`thing` cannot be built"):
        Runtimes(str(tmp_path / "cache")).prepare(folder, MAIN)


@pytest.mark.req("E4")
@pytest.mark.timeout(120)
@pytest.mark.parametrize("tier", sized(TIERS[:1], TIERS))
def test_only_wheels_from_an_index_are_installed(skill, tmp_path, tier, web):
    """An archive of sources runs its own `setup.py`, which would ask the server for `/ran`."""
    links = tmp_path / "links"
    links.mkdir()
    sources = tmp_path / "sources"
    sources.mkdir()
    (sources / "setup.py").write_text(
        f"import urllib.request\nurllib.request.urlopen('{web.address}/ran')\n"
        "from setuptools import setup\nsetup(name='payload', version='1.0')\n"
    )
    (sources / "PKG-INFO").write_text("Metadata-Version: 2.1\nName: payload\nVersion: 1.0\n")
    for folder in (links, web.folder):
        with tarfile.open(folder / "payload-1.0.tar.gz", "w:gz") as archive:
            archive.add(sources, "payload-1.0")
    wheel(web.folder, "payload")
    env = {**os.environ, "PIP_FIND_LINKS": str(links), "UV_FIND_LINKS": str(links)}
    env |= {"PIP_NO_INDEX": "1", "UV_NO_INDEX": "1", "PIP_NO_BINARY": ":all:"}
    runtimes = in_tier(tier, tmp_path, env)
    for number, needed in enumerate(
        (
            "payload",
            f"payload @ file://{sources}",
            f"payload @ {web.address}/payload-1.0.tar.gz",
            f"payload @ {web.address}/payload-1.0-py3-none-any.whl",
        )
    ):
        wheel(links, f"carrier{number}", needed)
        folder = skill({"main.py": "", "requirements.txt": f"carrier{number}\n"})
        with pytest.raises(BuildFailed, match=r"payload|sources"):
            runtimes.prepare(folder, MAIN)
    assert "/payload-1.0-py3-none-any.whl" in web.asked
    assert "/ran" not in web.asked


@pytest.mark.req("E4")
@pytest.mark.parametrize("tier", TIERS)
def test_a_build_that_ran_something_reaches_nothing_of_the_user(tmp_path, monkeypatch, tier, web):
    home = tmp_path / "home"
    home.mkdir()
    (home / "secret").write_text("canary")
    monkeypatch.setenv("HOME", str(home))
    base = find_interpreter()
    code = f"""
import json, os, urllib.request
def tried(what):
    try:
        return what() or True
    except OSError:
        return False
print(json.dumps([
    tried(lambda: open("{home}/secret").read()),
    tried(lambda: os.listdir("{home}")),
    tried(lambda: open("{home}/planted", "w").close()),
    tried(lambda: os.rename("{home}", "{home}-away")),
    tried(lambda: os.kill({os.getpid()}, 0)),
    "API_KEY" in os.environ,
    tried(lambda: urllib.request.urlopen("{web.address}/hello").status),
    tried(lambda: open("written", "w").close()),
    tried(lambda: open(os.environ["TMPDIR"] + "/x", "w").close()),
]))"""
    env = {"HOME": str(home), "API_KEY": "canary", "PATH": os.defpath}
    shop = BuildCache(str(tmp_path / "cache"), env, choose=lambda: tier)
    told: list[str] = []

    def build(aside, _path):
        command = [base.executable, "-I", "-S", "-c", code]
        told.extend(shop.run(command, aside, read=base.read, network=net) for net in (True, False))
        return ()

    shop.get_or_build("kind", "key", build, told.append)
    online, offline = map(json.loads, told)
    assert online == [False] * 6 + [200, True, True]
    assert offline == [False] * 7 + [True, True]
    assert os.listdir(home) == ["secret"]


def test_what_must_be_built_is_refused_without_a_sandbox(skill, tmp_path, monkeypatch):
    monkeypatch.setattr(tiers, "probe", lambda tier: tiers.TierState(tier, False, "no", {}))
    folder = skill({"main.py": "", "requirements.txt": "six==1.16.0\n"})
    with pytest.raises(Unsandboxed, match="no sandbox here"):
        in_tier(None, tmp_path, os.environ).prepare(folder, MAIN)
    settings = load_settings(env={"HOME": str(tmp_path)}, sandbox="own")
    runtimes = Runtimes(str(tmp_path / "cache"), settings=settings)
    assert runtimes.prepare(folder, MAIN, own=True)


def test_requirements_may_only_name_packages(skill):
    for line in (
        "-e .", "-r other.txt", "-c limits.txt", "." + "/local", "/absolute/wheel.whl", "../up",
        "name @ https://example.org/name.whl", "name@file:///etc/passwd",
        "https://example.org/name.whl", "git+https://example.org/x", "six --global-option=x",
        "six --config-settings=x=y", "--pre", "--trusted-host example.org",
        "-i https://example.org/simple", "-f /tmp", "${HOME}/wheel.whl", "six==${VERSION}",
        "six==1.16.0 --hash=md5:0", "six; python_version > '3' --no-binary :all:",
        "six \\\n  -r other.txt", "six \\",
    ):  # fmt: skip
        folder = skill({"requirements.txt": f"six\n{line}\n"})
        with pytest.raises(BuildFailed, match="2: ") as caught:
            read_requirements(folder)
        assert "may only name published packages" in caught.value.message, line


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
