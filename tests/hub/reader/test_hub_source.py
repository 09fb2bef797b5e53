"""Skills of hubs: install, update, verify, undo, lock; keys, yanks and two hubs."""

from __future__ import annotations

import json
import shutil

import pytest

from hub.reader.tiny_hub import Key, TinyHub, serving
from satchel import Satchel
from satchel.errors import Changed, InvalidInput, NotFound, Refused, SatchelError, SettingsError
from satchel.store.hub_client import format as files
from satchel.store.hub_client.hubs import Hubs
from satchel.store.signing import key_fingerprint

GREET = "acme/greet"


def test_install_pins_publisher_version_and_hub(hub, reader):
    (step,) = reader.install(f"{GREET}@^1")
    assert step.id == "greet"
    assert "twice" in reader.text("greet")
    place = reader.place
    assert (place.kind, place.ref, place.commit, place.path) == ("hub", "^1", "1.1.0", "")
    assert place.url.endswith("/hub/acme/greet")
    assert (place.key, place.seen) == (hub.publisher.public, "3")
    assert any(key_fingerprint(hub.publisher.public) in note for note in step.notes)
    assert any("no findings (not a promise)" in note for note in step.notes)
    assert reader.install(f"{GREET}@^1")[0].kind == "same"


@pytest.mark.parametrize(
    ("source", "kind", "words"),
    [
        ("acme/greet@^3", NotFound, "has no version `^3`"),
        ("acme/greet@>1", InvalidInput, "is not valid"),
        ("acme/nothing", NotFound, "no skill `acme/nothing` in `skills.acme.example`"),
        ("./acme/greet", NotFound, "There is no `./acme/greet`"),
    ],
)
def test_not_found(hub, reader, source, kind, words):
    with pytest.raises(kind, match=words.replace("^", r"\^")):
        reader.install(source)


def test_a_path_that_exists_wins_and_that_is_said(hub, reader, monkeypatch):
    folder = reader.project / "acme/greet"
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_text("---\nname: greet\ndescription: Mine. Use it.\n---\nMine.\n")
    monkeypatch.chdir(reader.project)
    (step,) = reader.install(GREET)
    assert reader.place.kind == "folder"
    assert "`acme/greet` is here, so no hub and no git host was asked" in step.notes
    reader.install(f"{GREET}@1.0.0")
    assert reader.place.kind == "hub"


def test_update_verify_undo_and_locked(hub, reader):
    reader.install(f"{GREET}@^1")
    hub.release(GREET, "1.2.0", "Say hello three times.")
    hub.release(GREET, "2.0.0", "Say nothing.")
    hub.build()
    (step,) = reader.update()
    assert (step.kind, reader.place.commit, reader.place.seen) == ("replace", "1.2.0", "5")
    assert [one.state for one in reader.store.verify()] == ["intact"]
    path = reader.project / ".agents/skills/greet/SKILL.md"
    path.write_text(path.read_text() + "More.\n")
    assert [one.state for one in reader.store.verify()] == ["modified"]
    locked = Satchel.for_project(reader.project, builtin=False, trust="locked")
    assert not locked.library.snapshot().skills
    path.write_text(path.read_text().removesuffix("More.\n"))
    locked = Satchel.for_project(reader.project, builtin=False, trust="locked")
    assert [skill.name for skill in locked.library.snapshot().skills] == ["greet"]
    reader.store.undo()
    assert reader.place.commit == "1.1.0"
    assert "twice" in reader.text("greet")
    assert reader.install(f"{GREET}@^2")[0].after.place.commit == "2.0.0"


def test_lockfile_on_a_second_machine(hub, reader, tmp_path, monkeypatch):
    """A clone with the project's settings, an empty home, and nothing else."""
    reader.hubs = {}
    write_hub(reader.project / "satchel.toml", hub)
    store = Satchel.for_project(reader.project, builtin=False, trust="ask").store()
    with store.plan_import(f"{GREET}@1.0.0") as plan:
        store.apply(plan)
    clone = tmp_path / "reader" / "clone"
    (clone / ".agents").mkdir(parents=True)
    for name in ("satchel.toml", ".agents/satchel.lock"):
        shutil.copy(reader.project / name, clone / name)
    monkeypatch.setenv("SATCHEL_HOME", str(tmp_path / "second"))
    store = Satchel.for_project(clone, builtin=False, trust="ask").store()
    with store.plan_install(frozen=True) as plan:
        store.require_complete(plan)
        store.apply(plan)
    assert (clone / ".agents/skills/greet/SKILL.md").read_text() == reader.text("greet")
    assert [one.state for one in store.verify()] == ["intact"]


def test_installed_skills_need_no_hub(hub, reader):
    reader.install(GREET)
    shutil.rmtree(hub.folder)
    satchel = reader.satchel
    assert satchel.session().call("Skill", {"name": "greet"}).error is None
    assert [one.state for one in satchel.store().verify()] == ["intact"]
    shutil.rmtree(reader.project / ".agents/skills/greet")
    reader.restore()  # from the base archive
    with pytest.raises(NotFound, match="There is no hub at"):
        reader.update()
    reader.hubs = {}
    with pytest.raises(NotFound, match="which is not configured"):
        reader.update()


def test_an_update_downloads_only_the_archives_that_are_new(hub, reader):
    names = [f"acme/skill-{number}" for number in range(5)]
    for name in names:
        hub.release(name)
    hub.build()
    with serving(hub.folder) as traffic:
        reader.hubs[hub.name]["url"] = traffic.url

        def update() -> list[str]:
            """Update all skills; returns the archives that were downloaded."""
            traffic.sent.clear()
            reader.update()
            return [path for path in traffic.paths() if path.startswith("blobs/")]

        for name in names:
            reader.install(name)
        assert update() == []
        assert traffic.paths() == ["state"]
        changed = hub.release(names[3], "1.1.0", "Say more.")
        hub.build()
        assert update() == [files.content_path("blobs", changed["blob"])]
        assert "Say more." in reader.text("skill-3")
        # The files of another clone, without the store of this one.
        shutil.rmtree(reader.project / ".agents/.satchel")
        (reader.project / ".agents/skills/skill-2/SKILL.md").write_text("edited")
        traffic.sent.clear()
        with reader.store.plan_update() as plan:
            kinds = {step.id: step.kind for step in plan.steps}
        assert kinds == {f"skill-{number}": "same" for number in range(5)}
        (sent,) = [path for path in traffic.paths() if path.startswith("blobs/")]
        assert hub.releases[5]["blob"] in sent
        # A damaged archive in the store is downloaded again.
        shutil.rmtree(reader.project / ".agents/skills/skill-2")
        reader.update()
        (base,) = (reader.project / ".agents/.satchel/base").glob("*.zip")
        shutil.rmtree(reader.project / ".agents/skills/skill-2")
        assert update() == []
        assert "Say hello." in reader.text("skill-2")
        shutil.rmtree(reader.project / ".agents/skills/skill-2")
        base.write_bytes(b"junk")
        assert update() == [sent]
        assert [one.state for one in reader.store.verify()] == ["intact"] * 5


def test_new_key_with_the_old_ones_word(hub, reader):
    reader.install(GREET)
    second, third = Key(), Key()
    hub.new_key("acme", hub.publisher, second)
    hub.new_key("acme", second, third)
    hub.release(GREET, "1.2.0", "New key.", key=third)
    hub.build()
    reader.update()
    assert reader.place.key == third.public
    with pytest.raises(Changed, match="which did not sign the new one"):
        reader.install("acme/part")  # signed with the first key, which may have been stolen


def test_a_version_never_changes(hub, reader):
    reader.install(GREET)
    hub.releases = [one for one in hub.releases if one["version"] != "1.1.0"]
    hub.release(GREET, "1.1.0", "Swapped.")
    hub.build()
    with pytest.raises(Changed, match=r"greet@1\.1\.0` is not what was locked"):
        reader.update()


def test_new_key_by_the_hub_alone(hub, reader):
    reader.install(GREET)
    other = Key()
    hub.new_key("acme", hub.publisher, other, signer=hub.key)
    hub.release(GREET, "1.2.0", "New key.", key=other)
    hub.build()
    with pytest.raises(Changed, match="which did not sign the new one") as caught:
        reader.update()
    assert key_fingerprint(hub.publisher.public) in caught.value.message
    assert "remove the skills of `acme`" in caught.value.hint
    hub.release("acme/third", key=other)
    hub.build()
    with pytest.raises(Changed):  # another skill of that publisher: the pin is the publisher's
        reader.install("acme/third")
    hub.release("bits/other", key=other)
    hub.build()
    reader.install("bits/other")  # the pin of one publisher does not bind another
    with reader.store.plan_remove(["greet"]) as plan:
        reader.store.apply(plan)
    reader.install(GREET)
    assert reader.store.lock()["greet"].place.key == other.public


def test_yanked_versions_are_skipped_unless_locked(hub, reader):
    hub.releases[1]["yanked"] = "breaks"
    hub.build()
    reader.install(GREET)
    assert reader.place.commit == "1.0.0"
    with pytest.raises(NotFound, match=r"1\.1\.0 was withdrawn by its publisher: breaks"):
        reader.install(f"{GREET}@1.1.0")
    hub.releases[1]["yanked"] = ""
    hub.build()
    reader.update()
    assert reader.place.commit == "1.1.0"
    hub.releases[1]["yanked"] = "breaks"
    hub.build()
    assert reader.update()[0].kind == "same"
    shutil.rmtree(reader.project / ".agents/skills/greet")
    shutil.rmtree(reader.project / ".agents/.satchel/base")
    reader.restore()
    assert "twice" in reader.text("greet")


def test_an_update_reports_what_was_revoked(hub, reader):
    reader.install(GREET)
    hub.revoked.append({"tree": hub.releases[1]["tree"], "reason": "steals keys"})
    hub.build()
    with pytest.raises(SatchelError, match=r"1\.1\.0 was revoked by the hub: steals keys") as found:
        reader.update()
    assert "satchel remove greet" in found.value.hint
    reader.install(f"{GREET}@1.0.0")
    assert reader.place.commit == "1.0.0"
    hub.release(GREET, "1.2.0", "Clean.")
    hub.build()
    reader.install(GREET)
    assert reader.place.commit == "1.2.0"


def test_what_was_revoked_is_not_restored_while_the_hub_answers(hub, reader):
    reader.install(GREET)
    hub.revoked.append({"tree": hub.releases[1]["tree"], "reason": "steals keys"})
    hub.build()
    shutil.rmtree(reader.project / ".agents/skills/greet")
    with pytest.raises(Refused, match=r"1\.1\.0 was revoked by the hub: steals keys") as found:
        reader.restore()
    assert "satchel remove greet" in found.value.hint
    shutil.rmtree(hub.folder)
    reader.restore()


@pytest.mark.parametrize("fault", ["revoked", "unreadable"])
def test_a_version_that_cannot_be_used_is_skipped(hub, reader, fault):
    hub.releases[1]["scan"] = fault
    if fault == "revoked":
        hub.revoked.append({"tree": hub.releases[1]["tree"], "reason": "steals keys"})
    hub.build()
    reader.install(GREET)
    assert reader.place.commit == "1.0.0"


@pytest.fixture
def second(hub, tmp_path):
    made = TinyHub(tmp_path / "second", "second.example")
    made.release(GREET, "3.0.0", "Squatted.")
    made.release("bits/own", "1.0.0")
    made.build()
    return made


def test_each_publisher_has_its_hub(hub, second, reader):
    reader.hubs = {**hub.settings, **second.settings}
    reader.install("bits/own")
    with pytest.raises(Refused, match="Several hubs have `acme`"):
        reader.install("acme/part")  # the second hub has other skills of an `acme`
    reader.hubs[hub.name]["publishers"] = ["acme"]
    reader.install(GREET)
    assert reader.store.lock()["greet"].place.commit == "1.1.0"


def test_a_hub_that_does_not_answer_is_left_out_of_searches_only(hub, second, reader):
    reader.hubs = {**hub.settings, **second.settings}
    shutil.rmtree(second.folder)
    with pytest.raises(Refused, match="has `acme` too"):
        reader.install("acme/part")
    answer, total, left_out = Hubs.of(reader.satchel.settings).search("greet")
    assert (answer.matches[0].name, total) == (GREET, 2)
    assert "`second.example` was left out" in left_out[0]
    reader.hubs[hub.name]["publishers"] = ["acme"]
    reader.install("acme/part")


def write_hub(file, hub, **more) -> None:
    """Write a settings file that names one hub."""
    row = {**hub.settings[hub.name], **more}
    lines = "".join(f"{key} = {json.dumps(value)}\n" for key, value in row.items())
    file.parent.mkdir(exist_ok=True)
    file.write_text(f'[hubs."{hub.name}"]\n{lines}')


def plan(reader, source: str):
    return Satchel.for_project(reader.project, builtin=False).store().plan_import(source)


def test_a_project_cannot_take_a_publisher_from_a_hub_of_the_user(hub, second, reader):
    write_hub(reader.home / "satchel/config.toml", hub)
    write_hub(reader.project / "satchel.toml", second, publishers=["acme"])
    with pytest.raises(SatchelError, match="Several hubs have `acme`"):
        plan(reader, GREET)
    write_hub(reader.project / "satchel.toml", second, publishers=["bits"])
    with plan(reader, "bits/own") as made:
        assert made.changes
    reader.hubs = second.settings
    reader.install(GREET)  # as the lockfile of a clone
    write_hub(reader.home / "satchel/config.toml", hub, publishers=["acme"])
    store = Satchel.for_project(reader.project, builtin=False).store()
    with pytest.raises(NotFound, match="not configured for `acme`"), store.plan_update() as made:
        store.require_complete(made)


def test_a_project_cannot_change_a_hub_of_the_user(hub, second, reader):
    write_hub(reader.home / "satchel/config.toml", hub)
    second.name = hub.name
    write_hub(reader.project / "satchel.toml", second)
    satchel = Satchel.for_project(reader.project, builtin=False)
    assert satchel.settings.hubs == hub.settings
    assert any(code == "setting-refused" for code, _, _ in satchel.settings.remarks)
    second.name, second.folder = "third.example", hub.folder  # the same address, another key
    write_hub(reader.project / "satchel.toml", second)
    with plan(reader, GREET) as made:
        assert made.steps[0].after.place.commit == "1.1.0"


@pytest.mark.parametrize(
    "change",
    [
        {"key": "ssh-rsa AAAA"},
        {"publishers": "acme"},
        {"url": ""},
        {"url": "http://skills.acme.example"},
        {"url": "https://me:secret@skills.acme.example"},
        {"url": "https://skills.acme.example/?token=secret"},
    ],
)
def test_settings_that_cannot_be_used(hub, reader, change):
    reader.hubs[hub.name] |= change
    with pytest.raises(SettingsError, match=r"hubs\.skills\.acme\.example") as caught:
        reader.install(GREET)
    assert "secret" not in str(caught.value)


@pytest.fixture
def large(tmp_path, reader):
    """Skills for 2,048 bins."""
    made = TinyHub(tmp_path / "large")
    row = made.release("acme/greet")
    made.bits = 11
    for number in range(2_048 * 3):
        made.releases.append({**row, "name": f"p{number % 97}/skill-{number}"})
    made.count = 1
    made.build()
    reader.hubs = made.settings
    return made


def test_requests_and_bytes_of_a_cold_install(large, reader):
    with serving(large.folder) as traffic:
        reader.hubs[large.name]["url"] = traffic.url
        reader.install(GREET)
        beside = [size for path, size in traffic.sent if not path.startswith("blobs/")]
        assert [path.partition("/")[0] for path in traffic.paths()] == [
            "state", "index", "index", "index", "revoked", "blobs"
        ]  # fmt: skip
        assert sum(beside) < 60_000
        traffic.sent.clear()
        reader.install(GREET)
        assert [path.partition("/")[0] for path in traffic.paths()] == ["state", "blobs"]


def test_a_long_history_is_proved_in_few_steps(hub, reader):
    reader.install(GREET)
    hub.count = 900
    hub.build()
    with serving(hub.folder) as traffic:
        reader.hubs[hub.name]["url"] = traffic.url
        reader.install("acme/part")
        assert sum(path.startswith("commits/") for path in traffic.paths()) < 50
