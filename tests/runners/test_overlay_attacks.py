"""Programs that attack the overlay, the list of changes and applying; as root and as a user."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile

import pytest

import satchel
from needs import needs
from sizes import sized

HERE = os.path.dirname(os.path.abspath(__file__))
USERS = ("root", "user") if os.geteuid() == 0 else ("user",)
NOBODY = "65534"
AT_LEAST = 165
PAIRS = [(user, tier) for tier in ("bwrap", "landlock") for user in USERS]
if len(PAIRS) > 2:  # root in one tier, a user in the other
    PAIRS = sized([PAIRS[0], PAIRS[-1]], PAIRS)


@pytest.fixture
def package():
    """Satchel and the attacks, where every user may read them."""
    root = tempfile.mkdtemp(prefix="satchel-attacks-")
    ours = os.path.dirname(os.path.abspath(satchel.__file__))
    shutil.copytree(ours, f"{root}/satchel", ignore=shutil.ignore_patterns("__pycache__"))
    os.makedirs(f"{root}/tests/runners")
    for name in ("writing.py", "overlay_attacks.py", "overlay_attack_table.py"):
        shutil.copy(os.path.join(HERE, name), f"{root}/tests/runners")
    os.makedirs(f"{root}/home")
    subprocess.run(["chmod", "-R", "a+rwX", root], check=True)
    yield root
    shutil.rmtree(root)


def attack(user, tier, package, only=""):
    """What is seen of each attack, and what got through."""
    given = {"package": package, "folder": f"{package}/home/w", "tier": tier, "only": only}
    words = ["-B", f"{package}/tests/runners/overlay_attacks.py", json.dumps(given)]
    if user == "user" and os.geteuid() == 0:
        as_user = [needs("setpriv"), "--reuid", NOBODY, "--regid", NOBODY, "--clear-groups"]
        words = [*as_user, "/usr/bin/python3", *words]
    elif user == "root":  # mounts of the attacks end with it
        words = [needs("unshare"), "--mount", sys.executable, *words]
    else:
        words = [sys.executable, *words]
    home = {"HOME": f"{package}/home", "PATH": os.environ["PATH"]}
    done = subprocess.run(words, capture_output=True, text=True, cwd="/", env=home, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.timeout(240)
@pytest.mark.parametrize(("user", "tier"), PAIRS)
def test_nothing_gets_through_and_each_attack_is_answered(user, tier, package):
    rows = attack(user, tier, package)
    assert len(rows) >= AT_LEAST
    assert {name: row for name, row in rows.items() if row["through"] or row["missing"]} == {}
