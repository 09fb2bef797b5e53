"""Permission rules, as pure functions."""

from __future__ import annotations

from pathlib import Path

import pytest

from satchel.tools.argument_patterns import BaseFolder, glob_match
from satchel.tools.permission_rules import (
    SkillToolRules,
    decide_call,
    is_call_forbidden,
    is_call_granted,
    is_overbroad,
    parse_patterns,
)


@pytest.mark.parametrize(
    ("pattern", "tool", "given"),
    [
        ("ReadFile", "ReadFile", {"path": "a.md"}),
        ("Read", "ReadFile", {"path": "a.md"}),
        ("excel_*", "excel_read", {}),
        ("Bash(git:*)", "Bash", {"command": "git"}),
        ("Bash(git:*)", "Bash", {"command": "git log --oneline"}),
        ("Bash(npm run *)", "Bash", {"command": "npm run test"}),
        ("Bash", "Bash", {"command": "ls; rm x"}),
        ("Read(docs/*)", "ReadFile", {"path": "docs/a.md"}),
        ("shop_order(tea)", "shop_order", {"article": "tea"}),
    ],
)
def test_a_pattern_covers_a_call(pattern, tool, given):
    assert is_call_granted(pattern, tool, given)
    assert is_call_forbidden(pattern, tool, given)


@pytest.mark.parametrize(
    ("pattern", "tool", "given"),
    [
        ("Read", "Readme", {}),
        ("excel_*", "my_excel_read", {}),
        ("Bash(git:*)", "Bash", {"command": "gitk"}),
        ("Bash(git:*)", "Bash", {"command": "rm -r x"}),
        ("not a pattern", "not", {}),
    ],
)
def test_a_pattern_does_not_cover_another_call(pattern, tool, given):
    assert not is_call_granted(pattern, tool, given)
    assert not is_call_forbidden(pattern, tool, given)


@pytest.mark.parametrize(
    "command",
    [
        "git log; rm -r x",
        "git log && rm x",
        "git log | sh",
        "git $(rm x)",
        "git `rm x`",
        "git log > /etc/passwd",
        "git log\nrm x",
        "git log & rm x",
    ],
)
def test_chained_commands_are_not_approved_but_forbidden(command):
    assert not is_call_granted("Bash(git:*)", "Bash", {"command": command})
    assert is_call_forbidden("Bash(git:*)", "Bash", {"command": command})
    if "rm" in command:
        assert is_call_forbidden("Bash(rm:*)", "Bash", {"command": command})


def test_ambiguous_calls_are_forbidden_and_never_approved():
    given = {"one": "a", "two": "b"}  # which of them is it about?
    assert not is_call_granted("Tool(a)", "Tool", given)
    assert is_call_forbidden("Tool(a)", "Tool", given)


def test_patterns_are_read_as_people_write_them():
    assert parse_patterns("Read Bash(git add:*) excel_*") == ("Read", "Bash(git add:*)", "excel_*")
    assert parse_patterns("Read, Grep") == ("Read", "Grep")
    assert parse_patterns(["Read", "Bash(npm run *)"]) == ("Read", "Bash(npm run *)")
    assert parse_patterns(None) == ()


def test_a_word_that_is_no_pattern_forbids_its_whole_tool_and_allows_nothing():
    assert parse_patterns("Bash(a, b)") == ()
    assert parse_patterns("Bash(a, b)", forbidding=True) == ("Bash", "b")


def test_forbidding_wins_over_approval_whatever_the_order():
    grants = [SkillToolRules("a", ("Bash",)), SkillToolRules("b", (), ("Bash(rm:*)",))]
    for order in (grants, grants[::-1]):
        found = decide_call("Bash", {"command": "rm x"}, needs_approval=True, skill_rules=order)
        assert (found.answer, found.by) == ("deny", "b")
    assert (
        decide_call("Bash", {"command": "ls"}, needs_approval=True, skill_rules=grants).answer
        == "allow"
    )


def test_every_list_must_name_the_tool():
    assert (
        decide_call("a", {}, needs_approval=False, boundaries=[("a", "b"), ("b", "c")]).answer
        == "deny"
    )
    assert (
        decide_call("b", {}, needs_approval=False, boundaries=[("a", "b"), ("b", "c")]).answer
        == "allow"
    )
    assert decide_call("b", {}, needs_approval=False, boundaries=[()]).answer == "deny"


# --- what approves nothing --------------------------------------------------------------------


@pytest.mark.parametrize(
    "pattern",
    ["*", "**", "?*", "*(x)", "", "a b", "[!~]*", "[A-Za-z]*", "*_*", "B*", "Ba*", "_*", "ba?h",
     "a*b*"],
)  # fmt: skip
def test_a_pattern_that_names_hardly_anything_approves_nothing(pattern):
    assert is_overbroad(pattern)
    assert not is_call_granted(pattern, "Bash", {"command": "x"})
    assert not is_call_granted(pattern, "a_b", {})


@pytest.mark.parametrize(
    ("pattern", "tool", "given"),
    [
        ("Write(docs/*)", "Write", {"path": Path("/etc/passwd"), "text": "docs/x"}),
        ("Write(docs/*)", "Write", {"path": Path("docs/x"), "text": "y"}),
        ("shell(git:*)", "shell", {"cmd": "git log; rm -rf /"}),
        ("Bash(git:*)", "Bash", {"command": ["rm", "-rf", "/"], "description": "git log"}),
        ("Bash(git:*)", "Bash", {"command": "git log", "cwd": "/etc"}),
        ("Bash(git:*)", "Bash", {"command": "git log", "env": {"PAGER": "rm"}}),
        ("Write(docs/*)", "Write", {"path": "docs/a", "file": "/etc/passwd"}),
        ("Write(docs/*)", "Write", {"file_path": "docs/../../../root/.ssh/x", "content": "x"}),
        ("Write(docs/*)", "Write", {"file_path": "/etc/docs/x", "content": "x"}),
        ("Write(docs/*)", "Write", {"file_path": "~/docs/x", "content": "x"}),
        ("Write(docs/*)", "Write", {"file_path": "docs\\..\\x", "content": "x"}),
    ],
)
def test_ambiguous_arguments_are_not_approved(pattern, tool, given):
    assert not is_call_granted(pattern, tool, given)


@pytest.mark.parametrize(
    ("pattern", "tool", "given"),
    [
        ("Write(docs/*)", "Write", {"file_path": "./docs/a.md", "content": "rm; x"}),
        ("Write(../shared/*)", "Write", {"path": "../shared/a", "text": "x"}),
        ("Write(/srv/x/*)", "Write", {"path": "/srv/x/a", "text": "x"}),
        ("Bash(git:*)", "Bash", {"command": "git show stash@{0}", "timeout": 5, "quiet": True}),
    ],
)
def test_certain_matches_are_approved(pattern, tool, given):
    assert is_call_granted(pattern, tool, given)


# --- what is forbidden whichever way it is said ----------------------------------------------


@pytest.mark.parametrize(
    "command",
    [
        "rm\t-rf x", "{ rm x; }", "if true; then rm x; fi", "! rm x", "time rm x", "A=1 rm x",
        "rm\\\n x", "ls; rm x", "/bin/rm x", "sudo -n rm x", "sh -c 'rm x'", "r\\m x", "RM x",
        "env A=1 B=2 rm x", "timeout 5 rm x", ["rm", "-rf", "/"], [["ls"], ["rm", "x"]],
    ],
)  # fmt: skip
@pytest.mark.parametrize("parameter", ["command", "cmd", "steps"])
def test_a_forbidden_command_is_found(command, parameter):
    given = {parameter: command, "description": "lists files"}
    assert is_call_forbidden("Bash(rm:*)", "Bash", given)
    assert not is_call_forbidden("Bash(mv:*)", "Bash", given)


@pytest.mark.parametrize(
    ("pattern", "tool", "given"),
    [
        ("Write(/etc/*)", "Write", {"path": Path("/etc/passwd"), "text": "docs/x"}),
        ("Tool(a)", "Tool", {"what": object()}),
        ("Bash(rm:*)", "Bash", {"command": b"rm x"}),
        ("Tool(7)", "Tool", {"what": 7}),
        ("bash", "Bash", {}),
        ("read(secret)", "ReadFile", {"path": "secret"}),
        ("[Bb]ash*", "Bash", {}),
    ],
)
def test_possible_matches_are_forbidden(pattern, tool, given):
    assert is_call_forbidden(pattern, tool, given)


def test_a_text_that_only_mentions_a_forbidden_thing_may_be_written():
    given = {"path": "notes.md", "content": "See\ndocs/a.md\nand (rm x)"}
    assert not is_call_forbidden("Write(docs/*)", "Write", given)


@pytest.mark.parametrize("path", [".env", "./.env", "x/../.env", "{project}/.env", "link", ".ENV"])
def test_a_forbidden_file_is_found_however_its_path_is_written(tmp_path, path):
    (tmp_path / ".env").write_text("x")
    (tmp_path / "link").symlink_to(".env")
    given = {"path": path.format(project=tmp_path)}
    assert is_call_forbidden("ReadFile(.env)", "ReadFile", given, BaseFolder(str(tmp_path)))
    assert is_call_forbidden(
        f"ReadFile({tmp_path}/.e*)", "ReadFile", given, BaseFolder(str(tmp_path))
    )
    assert not is_call_forbidden(
        "ReadFile(.env)", "ReadFile", {"path": "env"}, BaseFolder(str(tmp_path))
    )


def test_a_link_that_leads_out_is_not_approved(tmp_path):
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "out").symlink_to("/etc")
    place = BaseFolder(str(tmp_path))
    assert is_call_granted("Write(docs/*)", "Write", {"path": "docs/a.md"}, place)
    assert not is_call_granted("Write(docs/*)", "Write", {"path": "docs/out/passwd"}, place)


@pytest.mark.parametrize("address", ["https://x.y/a", "https://other.org/"])
def test_a_domain_is_always_in_doubt(address):
    assert not is_call_granted("WebFetch(domain:x.y)", "WebFetch", {"url": address})
    assert is_call_forbidden("WebFetch(domain:x.y)", "WebFetch", {"url": address})


def test_every_name_among_the_forbidden_counts():
    assert parse_patterns("Bash, Read Write", forbidding=True) == ("Bash", "Read", "Write")
    assert parse_patterns({"Bash": True, "Read": None}, forbidding=True) == ("Bash", "Read")
    assert parse_patterns("Bash(echo $(rm))", forbidding=True) == ("Bash",)
    assert parse_patterns("Bash (rm:*)", forbidding=True) == ("Bash",)
    assert parse_patterns({"Bash": True}) == ()


def test_a_list_with_arguments_holds_a_call_to_them():
    within = [("Bash(git:*)", "Read*")]
    assert (
        decide_call("Bash", {"command": "git log"}, needs_approval=False, boundaries=within).answer
        == "allow"
    )
    found = decide_call("Bash", {"command": "rm x"}, needs_approval=False, boundaries=within)
    assert (found.answer, found.pattern, found.by) == ("deny", "Bash(git:*)", "")
    assert (
        decide_call("ReadFile", {"path": "x"}, needs_approval=False, boundaries=within).answer
        == "allow"
    )


def test_a_star_is_found_quickly_in_long_texts():
    assert glob_match("a*b*c", "a" + "xb" * 1000 + "c")
    assert not glob_match("a*a*a*a*a*a*a*a*b", "a" * 5_000)
    assert glob_match("[a]*", "[a]b")
    assert not glob_match("[a]*", "ab")
