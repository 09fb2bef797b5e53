"""Snapshots of whole runs: exit code, stdout and stderr."""

from __future__ import annotations

import pytest

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
    "catalogue-short": ("catalogue", "--budget", "1100"),
    "locations": ("locations",),
    "show": ("show", "code-review"),
    "show-untrusted": ("show", "release-notes"),
    "load": ("load", "code-review", "--args", "src/"),
    "read": ("read", ".agents/skills/code-review/references/checklist.md"),
    "search": ("search", "review", "code"),
    "which": ("which", "review the code of this pull request"),
    "which-none": ("which", "xylophone"),
    "why-goal": ("why", "style-guide", "--goal", "review the style of this pull request"),
    "validate": ("validate",),
    "validate-strict": ("validate", "--strict", ".agents/skills/code-review"),
    "init": ("init",),
    "trust-nobody-there": ("trust",),
    "error-trust-name": ("trust", "release-notes", "--yes"),
    "trust-revoke": ("trust", "--revoke"),
    "help": ("--help",),
    "version": ("--version",),
    "error-command": ("lst",),
    "error-option": ("list", "--al"),
    "error-missing": ("show",),
    "error-value": ("catalogue", "--form", "yaml"),
    "error-project": ("list", "--project", "nowhere"),
    "error-no-skill": ("show", "nothing-like-it"),
    "error-near-skill": ("show", "code-reveiw"),
    "error-load-untrusted": ("load", "release-notes"),
    "error-read-outside": ("read", "../secret.md"),
    "error-load-near": ("load", "release-note"),
    "error-load-broken": ("load", "plain-text"),
    "error-number": ("catalogue", "--budget", "x"),
    "error-shell": ("completion",),
    "goal-list-none": ("goal", "list"),
    "error-goal-plan": ("goal", "run", "broken.yaml"),
    "error-worker": ("worker",),
    "error-no-model": ("run", "hello"),
}
CHINESE = {
    "list": ("list", "--all"),
    "why": ("why", "code-review"),
    "doctor": ("doctor",),
    "why-broken": ("why", "plain-text"),
    "error": ("lst",),
    "error-load-untrusted": ("load", "release-notes"),
    "which": ("which", "review the code of this pull request, 润色中文"),
    "trust": ("trust",),
    "error-goal-plan": ("goal", "run", "broken.yaml"),
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
