"""Snapshots of whole runs: exit code, stdout and stderr."""

from __future__ import annotations

import pytest

from satchel.cli.console import width_of
from sizes import IN_SOAK

BROKEN = """\
goal: Report what happened this week
steps:
  - id: fetch
    tool: fetch_news
  - id: write
    skill: code-reveiw
    prompt: "{{steps.fecth.output}}"
  - id: check
    prompt: "{{steps.write.output}} in {{inputs.language}}"
    needs: [send]
  - {id: send, prompt: Send it, needs: [check]}
"""
"""A plan with one error of each kind."""
ENGLISH = {
    "list": ("list",),
    "list-all": ("list", "--all"),
    "why-active": ("why", "code-review"),
    "why-repaired": ("why", "fix-yaml"),
    "why-shadowed": ("why", "skills/code-review"),
    "why-untrusted": ("why", "release-notes"),
    "why-broken": ("why", "plain-text"),
    "why-unknown": ("why", "code-reveiw"),
    "doctor": ("doctor",),
    "catalogue": ("catalogue",),
    "catalogue-short": ("catalogue", "--budget", "400"),
    "locations": ("list", "--locations"),
    "show": ("show", "code-review"),
    "show-untrusted": ("show", "release-notes"),
    "show-as-model": ("show", "code-review", "--as-model", "--args", "src/"),
    "show-file": ("show", "code-review", "--file", "references/checklist.md"),
    "search": ("search", "review the code of this pull request"),
    "search-explain": ("search", "--explain", "review the code of this pull request"),
    "search-none": ("search", "xylophone"),
    "search-far": ("search", "the house"),
    "why-goal": ("why", "style-guide", "--goal", "review the style of this pull request"),
    "check-spec": ("check", "--spec"),
    "check-spec-strict": ("check", "--spec", "--strict", ".agents/skills/code-review"),
    "new-example": ("new",),
    "trust-nobody-there": ("trust",),
    "error-trust-name": ("trust", "release-notes", "--yes"),
    "trust-revoke": ("trust", "--revoke"),
    "help": ("--help",),
    "version": ("--version",),
    "error-command": ("lst",),
    "error-old-command": ("import", "x.zip"),
    "error-option": ("list", "--al"),
    "error-missing": ("show",),
    "error-value": ("catalogue", "--form", "yaml"),
    "error-project": ("list", "--project", "nowhere"),
    "error-no-skill": ("show", "nothing-like-it"),
    "error-near-skill": ("show", "code-reveiw"),
    "error-load-untrusted": ("show", "release-notes", "--as-model"),
    "error-read-outside": ("show", "code-review", "--file", "../../../../secret.md"),
    "error-load-near": ("show", "release-note", "--as-model"),
    "error-load-broken": ("show", "plain-text", "--as-model"),
    "error-number": ("catalogue", "--budget", "x"),
    "goal-list-none": ("goal", "list"),
    "error-goal-plan": ("goal", "run", "broken.yaml"),
    "error-worker": ("goal", "worker"),
    "error-no-model": ("run", "hello"),
}
CHINESE = {
    "list": ("list", "--all"),
    "why": ("why", "code-review"),
    "doctor": ("doctor",),
    "why-broken": ("why", "plain-text"),
    "error": ("lst",),
    "error-load-untrusted": ("show", "release-notes", "--as-model"),
    "search": ("search", "review the code of this pull request, 润色中文"),
    "trust": ("trust",),
    "error-goal-plan": ("goal", "run", "broken.yaml"),
}


WIDTHS = {
    "list": ("list", "--all"),
    "search": ("search", "review a pull request"),
    "doctor": ("doctor",),
    "show": ("show", "pull-request-review-for-the-payments-team"),
    "locations": ("list", "--locations"),
}
COLD = {words[:1]: name for name, words in ENGLISH.items()}.values()
"""One run of each command in a process of its own: a missing import shows there."""


@pytest.mark.timeout(30)
@pytest.mark.req("B5")
@pytest.mark.parametrize("name", ENGLISH)
def test_english(name, terminal, monkeypatch):
    if IN_SOAK or name in COLD:
        monkeypatch.setenv("WARM_START", "0")
    (terminal.project / "broken.yaml").write_text(BROKEN, encoding="utf-8")
    terminal.check(name, terminal.run(*ENGLISH[name]))


@pytest.mark.timeout(30)
@pytest.mark.parametrize("name", CHINESE)
def test_chinese(name, terminal):
    (terminal.project / "broken.yaml").write_text(BROKEN, encoding="utf-8")
    terminal.check(f"zh-{name}", terminal.run(*CHINESE[name], SATCHEL_LANG="zh"))


@pytest.mark.timeout(60)
@pytest.mark.parametrize("columns", ["60", "80", "120"])
def test_widths(columns, terminal):
    """Names are never cut, and no line is wider than the screen."""
    names = ("pull-request-review-for-the-payments-team", "database-migration-planner-for-postgres")
    about = "Handles one kind of task from start to end. Use when the user asks for it in passing."
    terminal.skills({name: f"{name.replace('-', ' ').capitalize()}. {about}" for name in names})
    for name, words in WIDTHS.items():
        done = terminal.run(*words, COLUMNS=columns)
        terminal.check(f"{name}-{columns}", done)
        listed = [one for one in names if name == "list" and one not in done.out]
        wide = [row for row in done.out.splitlines() if width_of(row) > int(columns)]
        assert (listed, [row for row in wide if "/" not in row]) == ([], [])
