"""A host that runs a program, waits for a line, and applies what the program proposes.

    python applying_host.py WORKSPACE    or without one: the next command, which recovers

Killed at any call, it must leave the workspace as before, as after, or so that the next command
finishes it.
"""

from __future__ import annotations

import ctypes
import os
import pathlib
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from runners.writing import run
from satchel.cli.main import run as command

OLD = ("old.txt", "gone.txt", "sub/inner.txt", "sub/deep/far.txt", "file", "whole/x", "whole/y")
CODE = """
write('new/folder/a'); write('old.txt', 'new'); os.remove('gone.txt'); os.symlink('file', 'link')
shutil.rmtree('sub'); write('sub'); os.remove('file'); write('file/below'); shutil.rmtree('whole')
"""
AFTER = {"new/folder/a": "x", "old.txt": "new", "link": "-> file", "sub": "x", "file/below": "x"}


def main() -> None:
    """Run the program, then apply its changes."""
    result = None
    if sys.argv[1:]:
        workspace = pathlib.Path(sys.argv[1])
        result = run(workspace.parent / "skill", workspace, "landlock", CODE)
        assert result.changes is not None, result.detail
    ctypes.CDLL(None).prctl(0x59616D61, ctypes.c_ulong(-1), 0, 0, 0)  # strace may attach
    os.write(1, b"ready\n")
    os.read(0, 1)
    if result is None or result.changes is None:
        sys.exit(command(["list"]))
    done = result.changes.apply(result.changes.changes)
    os.write(1, f"{len(done.applied)} {done.conflicts} {done.trouble}\n".encode())


if __name__ == "__main__":
    main()
