"""Programs in four languages try to get out of each sandbox, as root and as an ordinary user.

The same attempts without a sandbox are the control: only what succeeds there counts, and most must.
One process makes all attempts of a language. The one in Python is the self-check that Satchel
ships; the one in C makes every attempt.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile

import filelock
import pytest

import satchel
from needs import builds, go_cache, needs

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "escapes")
USERS = ("root", "user") if os.geteuid() == 0 else ("user",)
NOBODY = 65534
AT_LEAST = {"python": 10, "node": 25, "go": 25, "c": 40}


@pytest.fixture(scope="module")
def shared():
    """A folder that everybody may read: Satchel itself and the programs."""
    root = tempfile.mkdtemp(prefix="satchel-escapes-")
    os.chmod(root, 0o755)
    package = os.path.dirname(os.path.abspath(satchel.__file__))
    shutil.copytree(
        package, os.path.join(root, "satchel"), ignore=shutil.ignore_patterns("__pycache__")
    )
    shutil.copytree(HERE, os.path.join(root, "escapes"))
    subprocess.run(["chmod", "-R", "a+rX", root], check=True)
    yield root
    shutil.rmtree(root)


def built(kind: str, shared: str) -> str:
    """A compiled program, from the cache when its source has not changed."""
    source = os.path.join(HERE, {"c": "escapes.c", "go": "escapes.go", "whoami": "whoami.c"}[kind])
    with open(source, "rb") as file:
        key = hashlib.sha256(file.read()).hexdigest()[:16]
    cached = os.path.join(builds(), f"escapes-{kind}-{key}")
    with filelock.FileLock(f"{cached}.lock"):
        if not os.path.exists(cached):
            if kind == "go":
                tool, words = needs("go"), ["build", "-trimpath"]
            else:
                tool, words = needs("cc"), ["-O1", "-static"]
            env = {**os.environ, "CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOCACHE": go_cache()}
            words += ["-o", f"{cached}.new", os.path.basename(source)]
            subprocess.run([tool, *words], cwd=HERE, env=env, check=True)
            os.rename(f"{cached}.new", cached)
    place = os.path.join(shared, f"{kind}-program")
    if not os.path.exists(place):
        shutil.copyfile(cached, place)
        os.chmod(place, 0o755)
    return place


def set_user_id(user: str, shared: str) -> str:
    """A set-user-id program; only root can make one."""
    if os.geteuid() != 0:
        return ""
    place = os.path.join(shared, f"whoami-{user}")
    if not os.path.exists(place):
        shutil.copyfile(built("whoami", shared), place)
        os.chown(place, NOBODY if user == "root" else 0, -1)
        os.chmod(place, 0o4755)
    return place


def program(language: str, shared: str) -> dict:
    if language == "python":
        return {"argv": [], "read": []}
    if language == "node":
        node = os.path.realpath(needs("node"))
        script = os.path.join(shared, "escapes", "escapes.js")
        # A Node of the system is seen anyway; one from a wheel has its own folder.
        beside = [] if node.startswith("/usr/") else [os.path.dirname(os.path.dirname(node))]
        return {"argv": [node, script], "read": [script, *beside]}
    place = built(language, shared)
    return {"argv": [place], "read": [place]}


def drive(user: str, language: str, shared: str) -> dict:
    given = {"package": shared, "whoami": set_user_id(user, shared), **program(language, shared)}
    words = [os.path.join(shared, "escapes", "driver.py"), json.dumps(given)]
    if user == "user" and os.geteuid() == 0:
        who = str(NOBODY)
        as_user = [needs("setpriv"), "--reuid", who, "--regid", who, "--clear-groups"]
        words = [*as_user, "/usr/bin/python3", "-B", *words]
    else:
        words = [sys.executable, "-B", *words]
    # A folder that only root may enter must not be the working folder of another user.
    done = subprocess.run(words, capture_output=True, text=True, cwd="/", check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.timeout(120)  # Go compiles its standard library once; every other run takes seconds
@pytest.mark.parametrize("language", ["python", "node", "go", "c"])
@pytest.mark.parametrize("user", USERS)
def test_no_program_gets_out_of_either_tier(user, language, shared):
    needs("bwrap")
    told = drive(user, language, shared)
    bare = told["rows"]["none"]
    works = {name for name, outcome in bare.items() if outcome == "escaped"}
    assert len(works) >= AT_LEAST[language], bare
    for tier in ("bwrap", "landlock"):
        assert not told["troubles"][tier]
        rows = told["rows"][tier]
        assert set(rows) == set(bare), "an attempt is missing"
        out = {name for name, outcome in rows.items() if outcome == "escaped"}
        assert out == set(), tier
