"""A host that lets one program try to get out: bare, under bwrap, under Landlock.

Run as a program, by root or by somebody else, since who runs it matters. Takes a JSON object:
`package` (where Satchel lies), `argv` (the program; the targets are added), `read` (what it needs
to see), `whoami` (a set-user-id program). Prints the rows of each tier as JSON.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

given = json.loads(sys.argv[1])
sys.path.insert(0, given["package"])

from stage import CANARY, Stage  # noqa: E402

from satchel.runners import tiers  # noqa: E402
from satchel.runners.base import Program, ProgramLimits, ProgramPermissions  # noqa: E402
from satchel.runners.sandbox import sandboxed_launch  # noqa: E402


def run_bare(argv, stage) -> tuple[str, str]:
    """Start a program as most hosts do: with their environment and open descriptors."""
    scratch = os.path.join(stage.root, "scratch")
    os.makedirs(scratch, exist_ok=True)
    done = subprocess.run(
        list(argv),
        cwd=scratch,
        env={**os.environ, "SATCHEL_SCRATCH": scratch},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        pass_fds=(stage.secret_fd,),
        timeout=20,
        check=False,
    )
    return done.stdout, done.stderr if done.returncode else ""


os.environ[CANARY] = "canary"
found: dict[str, dict[str, str]] = {}
troubles: dict[str, str] = {}
for tier in ("none", "bwrap", "landlock"):
    with Stage() as stage:
        os.environ["HOME"] = stage.targets["home"]
        folder = stage.targets["skill"]
        read = list(given["read"])
        if given["whoami"]:
            os.symlink(given["whoami"], os.path.join(folder, "whoami"))
            read.append(given["whoami"])
        if given["argv"]:
            argv = (*given["argv"], json.dumps(stage.targets))
            program = Program(argv, folder, "binary", read=tuple(read))
        else:
            program = tiers.python_program(folder, stage.targets)
            program = program._replace(read=(*program.read, *read))
        if tier == "none":
            said, trouble = run_bare(program.argv, stage)
        else:
            permissions = ProgramPermissions(workspace=stage.targets["workspace"])
            said, trouble = tiers.run(sandboxed_launch(program, permissions, ProgramLimits(), tier))
        found[tier] = tiers.parse_rows(said)
        troubles[tier] = trouble
sys.stdout.write(json.dumps({"rows": found, "troubles": troubles}))
