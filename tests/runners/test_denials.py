"""Denials that are recognised in the messages of real programs."""

from __future__ import annotations

import os
import sys

import pytest

from needs import needs
from satchel.runners import tiers
from satchel.runners.base import Program, ProgramLimits, ProgramPermissions, RunRequest, RunResult
from satchel.runners.pool import seen_denials, with_denials
from satchel.runners.sandbox import sandboxed_launch


def complaint(folder, tier, argv, permissions) -> str:
    """What a program says on stderr before it fails."""
    read = tiers.python_program(str(folder), {}).read
    launch = sandboxed_launch(
        Program(argv, str(folder), "binary", read=read), permissions, ProgramLimits(), tier
    )
    return tiers.run(launch)[1]


PYTHON = os.path.realpath(sys.executable)
CONNECT = "import socket; socket.create_connection(('127.0.0.1', 9), 1)"
RESOLVE = "import urllib.request as u; u.urlopen('http://example.com')"
NODE_CONNECT = "require('net').connect(9, '127.0.0.1')"


@pytest.mark.parametrize("code", [CONNECT, RESOLVE])
def test_python_without_network(tmp_path, tier, code):
    said = complaint(tmp_path, tier, (PYTHON, "-I", "-S", "-c", code), ProgramPermissions())
    (line,) = seen_denials(said, tier, ProgramPermissions())
    assert line.startswith("network: ")
    assert "network: true" in line
    assert not any(
        line.startswith("network")
        for line in seen_denials(said, tier, ProgramPermissions(network=True))
    )


def test_node_without_network(tmp_path, tier):
    said = complaint(tmp_path, tier, (needs("node"), "-e", NODE_CONNECT), ProgramPermissions())
    assert [line.split(":")[0] for line in seen_denials(said, tier, ProgramPermissions())] == [
        "network"
    ]


def test_files_are_named_with_what_would_allow_them(tmp_path, tier):
    skill, workspace = tmp_path / "skill", tmp_path / "workspace"
    skill.mkdir()
    workspace.mkdir()
    permissions = ProgramPermissions(workspace=str(workspace))
    for path, why in (
        (workspace / "new.txt", "declares reading only"),
        (skill / "new.txt", "own folder is read-only"),
    ):
        code = f"open({str(path)!r}, 'w')"
        said = complaint(skill, tier, (PYTHON, "-I", "-S", "-c", code), permissions)
        (line,) = seen_denials(said, tier, permissions, folder=str(skill))
        assert str(path) in line
        assert why in line


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("open /home/ada/x: permission denied", "files: `/home/ada/x`"),
        ("EACCES: permission denied, open '/home/ada/x'", "files: `/home/ada/x`"),
        ("PermissionError: [Errno 13] Permission denied: '/home/ada/x'", "files: `/home/ada/x`"),
        ("sh: 1: cannot create /usr/x: Read-only file system", "files: `/usr/x`"),
        ("OSError: [Errno 28] No space left on device", "size: "),
        ("dial tcp 1.2.3.4:80: socket: address family not supported by protocol", "network: "),
        ("PermissionError: [Errno 1] Operation not permitted", "operation: "),
        ("[Errno 30] Read-only file system", "operation: "),
    ],
)
def test_words_of_other_programs(text, start):
    (line,) = seen_denials(text, "landlock", ProgramPermissions())
    assert line.startswith(start)


def test_an_end_by_the_filter_is_known():
    (line,) = seen_denials("", "bwrap", ProgramPermissions(), exit_code=-31)
    assert line.startswith("operation: `SIGSYS`")


@pytest.mark.parametrize("text", ["", "ValueError: bad", "file not found: report.xlsx"])
def test_nothing_is_made_up(text):
    assert seen_denials(text, "bwrap", ProgramPermissions()) == ()


def test_nothing_is_refused_where_there_is_no_sandbox():
    assert seen_denials("Permission denied: '/x'", "none", ProgramPermissions()) == ()


def test_a_result_carries_them():
    program = Program(("/x",), "/skills/mine", "binary")
    request = RunRequest(
        "mine", "mine_run", {}, program, ProgramPermissions(secrets=(("KEY", "4711"),))
    )
    result = RunResult(error="cannot write", stderr="EROFS: open '/skills/mine/x'", tier="bwrap")
    (line,) = with_denials(request, result).denied
    assert "/skills/mine/x" in line
    assert with_denials(request, RunResult(output="fine", tier="bwrap")).denied == ()
    assert "4711" not in repr(request)
    assert "4711" not in repr(
        sandboxed_launch(program, request.permissions, ProgramLimits(), "bwrap")
    )


def test_a_flood_is_bounded():
    text = "\n".join(f"Permission denied: '/x/{number}'" for number in range(100_000))
    assert len(seen_denials(text, "bwrap", ProgramPermissions())) == 5
