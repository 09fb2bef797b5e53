"""Runs lines of Python as a program that may write to a workspace, through the pool."""

from __future__ import annotations

import os
import sys

from satchel.runners import tiers
from satchel.runners.base import Program, ProgramLimits, ProgramPermissions, RunRequest
from satchel.runners.pool import Pool

START = """
import ctypes, json, os, shutil, socket, stat, sys, time
libc = ctypes.CDLL(None, use_errno=True)
def write(path, text="x", mode=0o666):
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "w") as file:
        file.write(text)
def tried(what, *given):
    try:
        what(*given)
    except OSError as exc:
        said.append(exc.strerror)
    else:
        said.append("done")
said = []
"""
END = """
print(json.dumps({"output": " ".join(said), "error": ""}), flush=True)
"""
LIMITS = ProgramLimits(timeout=30)


def run(folder, workspace, tier, code, *, protected=(), limits=LIMITS):
    """The result of one call; `folder` is the skill's."""
    os.makedirs(folder, exist_ok=True)
    made = tiers.python_program(str(folder), {})
    argv = (os.path.realpath(sys.executable), "-I", "-S", "-c", START + code + END)
    program = Program(argv, str(folder), "python", read=made.read)
    pool = Pool(tier=tier)
    try:
        return pool.run(
            RunRequest(
                "mine",
                "mine_run",
                {},
                program,
                ProgramPermissions(str(workspace), writable=True),
                limits,
                protected=tuple(f"{workspace}/{name}" for name in protected),
            )
        )
    finally:
        pool.close()


def files(folder):
    """The content of a folder: text, target of a link, or the type."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_symlink():
            found[name] = f"-> {os.readlink(path)}"
        elif path.is_file():
            found[name] = path.read_text()
        elif not path.is_dir():
            found[name] = "special"
    return found
