"""`owner/repo`: a repository of a git host, here one with `git http-backend`."""

from __future__ import annotations

import pytest

from git_server import git, publish, serving_git
from satchel.errors import NotFound, Unsafe
from satchel.store.sources import source_of

SKILL = "---\nname: {name}\ndescription: Greets as {name} does. Use for greetings.\n---\n{body}\n"


def skill(name: str, body: str = "Say hello.") -> str:
    return SKILL.format(name=name, body=body)


@pytest.fixture
def host(tmp_path, monkeypatch):
    """A git server with the repository `acme/skills`: two skills, and the tag `v1`."""
    root = tmp_path / "host"
    files = {"skills/greet/SKILL.md": skill("greet"), "skills/part/SKILL.md": skill("part")}
    clone = publish(root, "acme/skills", files)
    git(clone, "tag", "v1")
    git(clone, "push", "-q", "origin", "v1")
    publish(root, "acme/skills", {"skills/greet/SKILL.md": skill("greet", "Say good day.")})
    with serving_git(root) as address:
        monkeypatch.setenv("SATCHEL_GIT_HOST", f"{address}/")
        yield address


def test_a_repository_is_read_from_the_git_host(bench, host):
    with bench.store.plan_import("acme/skills", everything=True) as plan:
        assert [step.id for step in plan.steps] == ["greet", "part"]
        assert all(f"Read from `{host}/acme/skills`" in step.notes for step in plan.steps)
        bench.store.apply(plan)
    assert "Say good day." in bench.loads("greet")
    place = bench.store.lock()["greet"].place
    assert (place.kind, place.url, place.ref) == ("git", f"{host}/acme/skills", "")
    assert place.path == "skills/greet"


@pytest.mark.parametrize("word", ["acme/skills/skills/greet@v1", "acme/skills/skills/greet/@v1"])
def test_a_folder_at_a_tag(bench, host, word):
    bench.bring(word)
    assert "Say hello." in bench.loads("greet")
    place = bench.store.lock()["greet"].place
    assert (place.ref, place.path) == ("v1", "skills/greet")
    bench.do("update")  # the tag stays where it is
    assert "Say hello." in bench.loads("greet")


def test_a_folder_of_that_name_wins_and_the_plan_names_it(bench, host, monkeypatch):
    bench.folder("acme/skills")
    monkeypatch.chdir(bench.sources)
    with bench.store.plan_import("acme/skills") as plan:
        (step,) = plan.steps
        note = "`acme/skills` is here, so no hub and no git host was asked"
        assert note in step.notes
        bench.store.apply(plan)
    assert bench.store.lock()["skills"].place.kind == "folder"


def test_what_the_host_lacks_is_named_with_its_address(bench, host):
    with pytest.raises(NotFound, match=f"{host}/acme/gone"):
        bench.bring("acme/gone")
    with pytest.raises(NotFound, match="no such branch, tag or commit"):
        bench.bring("acme/skills@v9")
    with pytest.raises(NotFound, match="There is no `nowhere`"):
        bench.bring("acme/skills/nowhere")


@pytest.mark.parametrize("word", ["acme/skills.zip", "example.com/skills"])
def test_other_words_are_no_repositories(bench, host, word):
    with pytest.raises(NotFound, match="There is no"):
        source_of(word, base=str(bench.project))


@pytest.mark.parametrize("word", ["acme/skills/../x", "acme/skills/a/./b", "acme/skills@-x"])
def test_a_path_or_ref_that_leads_elsewhere_is_refused(bench, host, word):
    with pytest.raises(Unsafe):
        source_of(word, base=str(bench.project))


def test_without_the_variable_the_host_is_github(tmp_path, monkeypatch):
    monkeypatch.delenv("SATCHEL_GIT_HOST", raising=False)
    source = source_of("acme/skills@v1", base=str(tmp_path))
    assert source.url == "https://github.com/acme/skills"


def test_a_bare_repository_on_this_machine(bench, host, tmp_path):
    bench.bring(tmp_path / "host/acme/skills", names=["part"])
    place = bench.store.lock()["part"].place
    assert (place.kind, place.path) == ("git", "skills/part")
    publish(tmp_path / "host", "acme/skills", {"skills/part/SKILL.md": skill("part", "Bye.")})
    bench.do("update")
    assert "Bye." in bench.loads("part")
