"""Installing from a discovery index that was written by hand from the specification."""

from __future__ import annotations

import json
import re
import shutil
from hashlib import sha256

import pytest

from hub import servers
from hub.reader.tiny_hub import Traffic, pack, serving, skill_text
from satchel.errors import Changed, InvalidInput, NotFound, ServerFailed, Unsafe

INDEX = ".well-known/agent-skills/index.json"
SCHEMA = "https://schemas.agentskills.io/discovery/0.2.0/schema.json"


class Site:
    """A web site with skills."""

    def __init__(self, folder) -> None:
        self.folder = folder
        self.traffic = Traffic()
        self.url = ""
        self.skills: list[dict] = []
        self.put("code-review", "skill-md", "code-review/SKILL.md", skill_text("code-review"))
        files = {"SKILL.md": skill_text("wrangler"), "scripts/run.sh": b"#!/bin/sh\necho 1\n"}
        self.put("wrangler", "archive", "/.well-known/agent-skills/wrangler.tar.gz", pack(files))

    def put(self, name: str, kind: str, url: str, data: bytes, **changes) -> None:
        """A file below the folder of the index, and its row."""
        path = self.folder / ".well-known/agent-skills" / url.rpartition("agent-skills/")[2]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        row = {"name": name, "type": kind, "description": f"What {name} does.", "url": url}
        row["digest"] = f"sha256:{sha256(data).hexdigest()}"
        self.skills = [one for one in self.skills if one["name"] != name]
        self.skills.append({**row, **changes})
        self.write()

    def write(self, **changes) -> None:
        table = {"$schema": SCHEMA, "skills": self.skills, **changes}
        (self.folder / INDEX).write_text(json.dumps(table))


@pytest.fixture
def site(tmp_path):
    made = Site(tmp_path / "site")
    with serving(made.folder) as traffic:
        made.traffic = traffic
        made.url = f"{traffic.url}/{INDEX}"
        yield made


def test_one_skill_of_each_type(site, reader):
    for name in ("code-review", "wrangler"):
        site.traffic.sent.clear()
        reader.install(f"{site.url}#{name}")
        assert len(site.traffic.sent) == 2  # no other skill is downloaded
        place = reader.store.lock()[name].place
        assert (place.kind, place.url) == ("discovery", f"{site.url}#{name}")
    assert (reader.project / ".agents/skills/wrangler/scripts/run.sh").exists()
    assert [one.state for one in reader.store.verify()] == ["intact"] * 2


def test_of_several_skills_one_is_chosen(site, reader):
    with pytest.raises(InvalidInput, match="There are 2 skills in it: `code-review`") as caught:
        reader.install(site.url)
    assert "index.json#NAME" in caught.value.hint
    del site.skills[1:]
    site.write()
    reader.install(site.url)


def test_update_and_lockfile(site, reader):
    reader.install(f"{site.url}#code-review")
    site.put("code-review", "skill-md", "code-review/SKILL.md", skill_text("code-review", "New."))
    reader.update()
    assert "New." in reader.text("code-review")
    shutil.rmtree(reader.project / ".agents/skills")
    shutil.rmtree(reader.project / ".agents/.satchel")
    reader.restore()
    assert "New." in reader.text("code-review")


HOSTILE = [
    ({"digest": "sha256:" + "0" * 64}, Changed, "is not what the server"),
    ({"url": "http://127.0.0.1:9/SKILL.md"}, ServerFailed, "127.0.0.1:9/SKILL.md` cannot be used"),
    ({"url": "http://10.0.0.1/SKILL.md"}, ServerFailed, "url: "),
    ({"digest": ""}, ServerFailed, "digest: -"),
    ({"url": "//example.com/SKILL.md"}, ServerFailed, "url: "),
    ({"url": "file:///etc/passwd"}, ServerFailed, "url: "),
    ({"name": "../evil"}, ServerFailed, "name: "),
    ({"type": "script"}, ServerFailed, "type: "),
    ({"url": "gone.md"}, NotFound, "There is no"),
]


@pytest.mark.parametrize(("change", "kind", "words"), HOSTILE)
def test_hostile_rows(site, reader, change, kind, words):
    site.skills = [{**site.skills[0], **change}]
    site.write()
    with pytest.raises(kind, match=words):
        reader.install(site.url)
    assert not reader.store.lock()


def test_hostile_files(site, reader):
    site.put("wrangler", "archive", "w.tar.gz", pack({"SKILL.md": b"x", "../evil": b"x"}))
    with pytest.raises(Unsafe):
        reader.install(f"{site.url}#wrangler")
    site.put("wrangler", "archive", "w.tar.gz", pack({"inner/SKILL.md": skill_text("wrangler")}))
    with pytest.raises(NotFound, match=re.escape("There is no SKILL.md")):
        reader.install(f"{site.url}#wrangler")
    with pytest.raises(NotFound, match="There is no skill `other`"):
        reader.install(f"{site.url}#other")
    with pytest.raises(InvalidInput):
        reader.install(f"{site.url}#wrangler", ref="main")


def test_another_schema(site, reader):
    site.write(**{"$schema": "https://example.com/0.1.0"})
    with pytest.raises(ServerFailed):
        reader.install(site.url)


FOREIGN = [
    {"name": "postgres", "type": "oci", "url": "oci://registry.example/postgres:1"},
    {"name": "Upper", "type": "skill-md", "url": "x", "digest": "sha256:" + "0" * 64},
    {"name": "far", "type": "skill-md", "url": "ftp://x.example/y", "digest": "sha256:" + "0" * 64},
    {"name": "unpinned", "type": "skill-md", "url": "SKILL.md"},
    {"type": "skill-md"},
    "nonsense",
]


def test_foreign_entries_are_skipped_and_named(site, reader):
    site.skills = [*FOREIGN, *site.skills]
    site.write()
    with reader.store.plan_import(f"{site.url}#code-review") as plan:
        (note,) = [one for one in plan.steps[0].notes if one.startswith("Skipped")]
        reader.store.apply(plan)
    for name in ("`postgres` (type: oci)", "`Upper` (name: Upper)", "`unpinned` (digest: -)"):
        assert name in note
    assert "`far` (url: ftp://x.example/y)" in note
    assert "`nonsense`" in note
    with pytest.raises(ServerFailed, match="`postgres` \\(type: oci\\)"):
        reader.install(f"{site.url}#postgres")
    with pytest.raises(InvalidInput, match="There are 2 skills in it"):
        reader.install(site.url)


def test_a_file_may_be_on_another_host_because_its_digest_is_known(site, reader, tmp_path):
    with serving(tmp_path / "cdn") as cdn:
        (tmp_path / "cdn").mkdir()
        (tmp_path / "cdn/a.md").write_bytes(skill_text("code-review", "From afar."))
        digest = sha256(skill_text("code-review", "From afar.")).hexdigest()
        changes = {"url": f"{cdn.url}/a.md", "digest": f"sha256:{digest}"}
        site.skills = [{**site.skills[0], **changes}]
        site.write()
        reader.install(site.url)
        assert "From afar." in reader.text("code-review")
        (tmp_path / "cdn/a.md").write_bytes(skill_text("code-review", "Other."))
        site.skills = [{**site.skills[0], "digest": "sha256:" + "0" * 64}]
        site.write()
        with pytest.raises(Changed):
            reader.install(site.url)


@pytest.mark.parametrize("folder", [".well-known/agent-skills", ".well-known/skills"])
def test_an_index_without_a_schema_lists_files(reader, tmp_path, folder):
    """The format of v0.1, which many sites have."""
    root = tmp_path / "old"
    (root / folder / "greet/references").mkdir(parents=True)
    (root / folder / "greet/SKILL.md").write_bytes(skill_text("greet"))
    (root / folder / "greet/references/a.md").write_text("More.\n")
    rows = [{"name": "greet", "description": "x", "files": ["SKILL.md", "references/a.md"]}]
    rows += [{"name": "evil", "description": "x", "files": ["SKILL.md", "../../secret"]}]
    rows += [{"name": "empty", "description": "x", "files": []}]
    (root / folder / "index.json").write_text(json.dumps({"skills": rows}))
    (root / folder / "evil").mkdir()
    (root / folder / "evil/SKILL.md").write_bytes(skill_text("evil"))
    with serving(root) as traffic:
        with reader.store.plan_import(f"{traffic.url}#greet") as plan:
            notes = "\n".join(plan.steps[0].notes)
            assert "no digests, so the files were not verified" in notes
            assert "`empty` (files: -)" in notes
            reader.store.apply(plan)
        assert (reader.project / ".agents/skills/greet/references/a.md").exists()
        assert reader.store.lock()["greet"].place.url == f"{traffic.url}/{folder}/index.json#greet"
        with pytest.raises(Unsafe):
            reader.install(f"{traffic.url}#evil")
        (root / folder / "greet/SKILL.md").write_bytes(skill_text("greet", "New."))
        reader.update()
        assert "New." in reader.text("greet")


def test_a_site_behind_caddy(site, reader, tmp_path):
    (tmp_path / "caddy").mkdir()
    for address in servers.caddy(tmp_path / "caddy", site.folder):
        with pytest.raises(InvalidInput, match="There are 2 skills") as caught:
            reader.install(address)
        assert f"{address}#NAME" in caught.value.hint
        reader.install(f"{address}#wrangler")
        place = reader.store.lock()["wrangler"].place
        assert place.url == f"{address}/{INDEX}#wrangler"
        reader.install(f"{address}/.well-known/agent-skills/#code-review")
        (site.folder / INDEX).unlink()
        with pytest.raises(NotFound, match=INDEX):
            reader.install(address)
    assert [one.state for one in reader.store.verify()] == ["intact"] * 2
