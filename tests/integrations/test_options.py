"""Options of adapters are checked when the adapter is made, and by type checkers."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from satchel.errors import InvalidInput
from satchel.integrations.pydantic_ai import SkillsCapability

TYPOS = """\
from satchel import Satchel
from satchel.integrations.pydantic_ai import SkillsCapability

satchel = Satchel.for_project(".")
SkillsCapability(satchel, approve=True, ask=["Bash"])
SkillsCapability(satchel, aprove=True)
satchel.session().definitions("antropic")
satchel.session().definitions("anthropic")
"""


def test_a_wrong_option_is_refused_when_the_adapter_is_made(satchel):
    with pytest.raises(TypeError, match="aprove"):
        SkillsCapability(satchel, aprove=True)  # pyright: ignore[reportCallIssue]
    with pytest.raises(InvalidInput, match="belong to new sessions"):
        SkillsCapability(satchel.session(), approve=True)
    with pytest.raises(TypeError, match="includes"):
        SkillsCapability(satchel).child(includes=["a"])  # pyright: ignore[reportCallIssue]


@pytest.mark.timeout(180)
def test_a_type_checker_finds_both_typos_and_nothing_else(tmp_path, root):
    file = tmp_path / "typos.py"
    file.write_text(TYPOS)
    config = {
        "typeCheckingMode": "strict",
        "extraPaths": [f"{root}/src"],
        "pythonVersion": "3.11",
        "include": [str(file)],
    }
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(config))
    low = os.environ.get("LOW", "")  # where .ci installs the checkers
    python = f"{low}/bin/python" if low else sys.executable
    done = subprocess.run(
        [python, "-m", "pyright", "--outputjson", "-p", str(tmp_path), "--pythonpath", python],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    found = json.loads(done.stdout)["generalDiagnostics"]
    told = sorted((one["range"]["start"]["line"] + 1, one["rule"]) for one in found)
    assert told == [(6, "reportCallIssue"), (7, "reportArgumentType")], done.stdout
