"""Whole runs, exit code and both streams: wording is reviewed in the diff."""

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
"""A plan with one slip of each kind that people make."""
ENGLISH = {
    "list": ("list",),
    "list-all": ("list", "--all"),
    "why-active": ("why", "code-review"),
    "why-repaired": ("why", "fix-yaml"),
    "why-shadowed": ("why", "skills/code-review"),
    "why-untrusted": ("why", "release-notes"),
    "why-short-budget": ("why", "code-review", "--budget", "1100"),
    "why-broken": ("why", "plain-text"),
    "why-unknown": ("why", "code-reveiw"),
    "doctor": ("doctor",),
    "catalogue": ("catalogue",),
    "catalogue-short": ("catalogue", "--budget", "1100"),
    "locations": ("locations",),
    "show": ("show", "code-review"),
    "show-untrusted": ("show", "release-notes"),
    "show-body": ("show", "code-review", "--body"),
    "load": ("load", "code-review", "--args", "src/"),
    "read": ("read", ".agents/skills/code-review/references/checklist.md"),
    "search": ("search", "review", "code"),
    "search-nothing": ("search", "xylophone"),
    "which": ("which", "review the code of this pull request"),
    "which-none": ("which", "xylophone"),
    "which-asked": ("which", "a release", "--skill", "style-guide", "--never", "fix-yaml"),
    "why-goal": ("why", "style-guide", "--goal", "review the style of this pull request"),
    "why-goal-untrusted": ("why", "release-notes", "--goal", "write release notes"),
    "error-no-goal": ("which",),
    "help-which": ("which", "--help"),
    "validate": ("validate",),
    "validate-strict": ("validate", "--strict", ".agents/skills/code-review"),
    "validate-ok": ("validate", ".agents/skills/team/style-guide"),
    "init": ("init",),
    "init-exists": ("init", "code-review"),
    "init-bad-name": ("init", "My Skill"),
    "trust-nobody-there": ("trust",),
    "trust-one": ("trust", "release-notes", "--yes"),
    "trust-nothing": ("trust", "code-review"),
    "trust-revoke": ("trust", "fix-yaml", "--revoke"),
    "trust-revoke-nothing": ("trust", "release-notes", "--revoke"),
    "help": ("--help",),
    "help-why": ("why", "--help"),
    "no-words": (),
    "version": ("--version",),
    "error-command": ("lst",),
    "error-option": ("list", "--al"),
    "error-missing": ("show",),
    "error-value": ("catalogue", "--form", "yaml"),
    "error-extra-word": ("list", "everything"),
    "error-project": ("list", "--project", "nowhere"),
    "error-no-skill": ("show", "nothing-like-it"),
    "error-near-skill": ("show", "code-reveiw"),
    "error-broken-skill": ("show", "plain-text"),
    "error-load": ("load", "nothing-like-it"),
    "error-load-untrusted": ("load", "release-notes"),
    "error-read": ("read", "nowhere.md"),
    "error-read-outside": ("read", "../secret.md"),
    "error-load-near": ("load", "release-note"),
    "error-load-broken": ("load", "plain-text"),
    "error-number": ("catalogue", "--budget", "x"),
    "error-small-number": ("search", "x", "--limit", "0"),
    "error-no-value": ("why", "code-review", "--budget"),
    "error-shell": ("completion",),
    "error-validate": ("validate", "nowhere"),
    "init-named": ("init", "release-notes"),
    "help-completion": ("completion", "--help"),
    "help-catalogue": ("catalogue", "--help"),
    "help-chat": ("chat", "--help"),
    "help-run": ("run", "--help"),
    "help-goal": ("goal", "--help"),
    "help-goal-run": ("goal", "run", "--help"),
    "help-worker": ("worker", "--help"),
    "goal-list-none": ("goal", "list"),
    "error-goal-plan": ("goal", "run", "broken.yaml"),
    "error-goal-none": ("goal", "show", "week-46"),
    "error-worker": ("worker",),
    "error-no-model": ("run", "hello"),
    "error-amount": ("run", "hello", "--max-cost", "nothing"),
}
CHINESE = {
    "list": ("list", "--all"),
    "why": ("why", "code-review"),
    "doctor": ("doctor",),
    "why-broken": ("why", "plain-text"),
    "error": ("lst",),
    "error-option": ("list", "--al"),
    "error-missing": ("show",),
    "error-value": ("catalogue", "--form", "yaml"),
    "error-number": ("catalogue", "--budget", "x"),
    "error-extra-word": ("list", "everything"),
    "error-shell": ("completion",),
    "error-load-near": ("load", "release-note"),
    "error-load-broken": ("load", "plain-text"),
    "error-load-untrusted": ("load", "release-notes"),
    "error-read": ("read", "nowhere.md"),
    "error-read-outside": ("read", "../secret.md"),
    "init-exists": ("init", "code-review"),
    "init-bad-name": ("init", "My Skill"),
    "search": ("search", "review", "code", "bugs"),
    "which": ("which", "review the code of this pull request, 润色中文"),
    "which-none": ("which", "xylophone"),
    "why-goal": ("why", "style-guide", "--goal", "review the style of this pull request"),
    "help-which": ("which", "--help"),
    "catalogue-short": ("catalogue", "--budget", "1100", "--form", "markdown"),
    "validate-strict": ("validate", "--strict", ".agents/skills/code-review"),
    "locations": ("locations",),
    "help": ("--help",),
    "help-why": ("why", "--help"),
    "help-validate": ("validate", "--help"),
    "help-chat": ("chat", "--help"),
    "help-run": ("run", "--help"),
    "error-no-model": ("run", "hello"),
    "help-goal": ("goal", "--help"),
    "help-worker": ("worker", "--help"),
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
