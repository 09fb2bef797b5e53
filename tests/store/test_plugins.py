"""Manifests of plugins and marketplaces: their skills are listed and selected by plugin."""

from __future__ import annotations

import json

import pytest

from satchel.errors import InvalidInput, NotFound
from satchel.skill.file_tree import MemoryTree
from satchel.store.sources import read_plugins
from satchel.testing import make_skill

PLUGINS = [
    {"name": "documents", "source": "./", "skills": ["./skills/pdf", "./skills/docx"]},
    {"name": "notes", "source": "./plugins/notes"},
    {"name": "mail", "source": "./plugins/mail"},
    {"name": "everything", "source": "./", "skills": "./skills"},
    {"name": "remote", "source": {"source": "github", "repo": "acme/remote"}},
]  # fmt: skip


@pytest.fixture
def marketplace(bench):
    """A marketplace with five plugins, laid out in the four ways that there are."""
    root = bench.sources / "market"
    for path in ("skills/pdf", "skills/docx", "skills/loose", "plugins/notes/skills/minutes",
                 "plugins/mail/lib/reply", "template"):  # fmt: skip
        make_skill(root / path.rpartition("/")[0], path.rpartition("/")[2], "Helps. Use for help.")
    write(root / ".claude-plugin/marketplace.json", {"name": "market", "plugins": PLUGINS})
    write(root / "plugins/notes/.claude-plugin/plugin.json", {"name": "notes", "version": "1.0.0"})
    manifest = {"name": "mail", "skills": ["./lib/reply"]}
    write(root / "plugins/mail/.claude-plugin/plugin.json", manifest)
    return root


def write(path, table) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(table))


def test_a_marketplace_is_shown_with_its_plugins(bench, marketplace):
    with pytest.raises(InvalidInput) as caught:
        bench.bring(marketplace)
    assert caught.value.message == (
        "It is a marketplace with 5 plugins: `documents` (`docx`, `pdf`), `notes` (`minutes`), "
        "`mail` (`reply`), `everything` (`docx`, `loose`, `pdf`), `remote` from acme/remote, "
        "in no plugin: `template`"
    )
    assert "`--skill NAME`" in caught.value.hint


def test_a_plugin_is_installed_by_its_name(bench, marketplace):
    with bench.store.plan_import(str(marketplace), names=["documents", "mail"]) as plan:
        assert [step.id for step in plan.steps] == ["docx", "pdf", "reply"]
        assert "From the plugin `documents`, `everything`" in plan.steps[0].notes
        bench.store.apply(plan)
    assert sorted(bench.store.lock()) == ["docx", "pdf", "reply"]
    with pytest.raises(NotFound, match="The plugin `remote` is not in this source") as caught:
        bench.bring(marketplace, names=["remote"])
    assert caught.value.hint == "Run `satchel install acme/remote`"


def test_all_skills_are_installed_also_those_of_no_plugin(bench, marketplace):
    with bench.store.plan_import(str(marketplace), everything=True) as plan:
        assert [step.id for step in plan.steps] == [
            "reply", "minutes", "docx", "loose", "pdf", "template",
        ]  # fmt: skip


def test_a_plugin_alone(bench, marketplace):
    make_skill(marketplace / "plugins/notes/skills", "agenda", "Helps. Use for help.")
    with pytest.raises(InvalidInput, match="It is the plugin `notes` \\(`agenda`, `minutes`\\)"):
        bench.bring(marketplace / "plugins/notes")
    bench.bring(marketplace / "plugins/notes", names=["notes"])
    assert sorted(bench.store.lock()) == ["agenda", "minutes"]


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"plugins": [1]}', '{"plugins": 7}', "[[[[" * 9999]
)
def test_a_broken_manifest_is_ignored_and_named(bench, marketplace, text):
    (marketplace / ".claude-plugin/marketplace.json").write_text(text)
    with bench.store.plan_import(str(marketplace), names=["pdf"]) as plan:
        assert any("marketplace.json` cannot be used" in note for note in plan.steps[0].notes)


def test_a_plugin_reaches_nothing_outside_the_source():
    rows = [{"name": "evil", "source": "../..", "skills": ["/etc", "../../x"]}]
    text = json.dumps({"plugins": rows}).encode()
    tree = MemoryTree({".claude-plugin/marketplace.json": text, "a/SKILL.md": b"x"})
    (plugin,) = read_plugins(tree).plugins
    assert not plugin.has("a")
