"""What a word on the command line means, and how it is written down."""

from __future__ import annotations

import pytest

from satchel.errors import InvalidInput, NotFound, Unsafe
from satchel.library.lockfile import LockedSource
from satchel.store.sources import source_from, source_of
from satchel.store.sources.addresses import redact_address
from store.trees import write_folder


@pytest.mark.parametrize(
    ("word", "url", "ref", "path"),
    [
        ("https://host/o/r", "https://host/o/r", "", ""),
        ("HTTPS://host/o/r.git#v1", "https://host/o/r.git", "v1", ""),
        ("git+https://host/o/r#main:skills/x", "https://host/o/r", "main", "skills/x"),
        ("https://host/o/r#:skills/x/", "https://host/o/r", "", "skills/x"),
        ("https://host/o/r#feature/x:a", "https://host/o/r", "feature/x", "a"),
        ("https://host/o/r/tree/main/skills/x", "https://host/o/r", "main", "skills/x"),
        ("https://host/o/r/tree/main", "https://host/o/r", "main", ""),
        ("https://host/o/r/blob/v1/skills/x/SKILL.md", "https://host/o/r", "v1", "skills/x"),
        ("https://host/g/s/r/-/tree/main/x%20y", "https://host/g/s/r", "main", "x y"),
        ("https://host/o/r/src/branch/main/x", "https://host/o/r", "main", "x"),
        ("git@host:o/r.git#v1:x", "git@host:o/r.git", "v1", "x"),
        ("ssh://git@host:2222/o/r", "ssh://git@host:2222/o/r", "", ""),
        ("https://[::1]:8080/o/r", "https://[::1]:8080/o/r", "", ""),
    ],
)
def test_addresses(word, url, ref, path, tmp_path):
    source = source_of(word, base=str(tmp_path))
    assert (source.kind, source.url) == ("git", url)
    assert (source.ref, source.path) == (ref, path)  # pyright: ignore[reportAttributeAccessIssue]
    again = source_from(LockedSource("git", url, ref, "", path), base=str(tmp_path))
    assert again.url == url


@pytest.mark.parametrize(
    ("word", "left"),
    [
        ("https://bob:s3cr3t@host/x", "https://…@host/x"),
        ("https://s3cr3t@host/x#v1", "https://…@host/x#v1"),
        ("ssh://git:s3cr3t@host/x", "ssh://…@host/x"),
        ("ftp://bob:s3cr3t@host/x", "ftp://…@host/x"),
        ("hg+https://bob:s3cr3t@host/x", "hg+https://…@host/x"),
        ("https://bob:p@s3cr3t/s3cr3t@host/x", "https://…@host/x"),
        ("https://bob:s3cr3t@s3cr3t/s3cr3t@host/o/r/tree/main/x", "https://…@host/o/r/tree/main/x"),
        ("https://bob:s3cr3t#s3cr3t@host/x", "https://…@host/x"),
        ("https://bob:s3cr3t?s3cr3t@host/x", "https://…"),
        ("https://bob:s3cr3t/x#v1", "https://…"),
        ("https://host/x?token=s3cr3t", "https://host/x?…"),
        ("https://host/x?access_token=s3cr3t#v1", "https://host/x?…"),
        ("https://host/x?access_token=s3cr3t@s3cr3t", "https://…"),
        ("https://bob:s3 cr3t's3cr3t@ho st/x", "https://…@ho st/x"),
        ("https://bob:s3cr3t%0a@host/x", "https://…@host/x"),
        ("https:/bob:s3cr3t@host/x", "…@host/x"),
        ("bob:s3cr3t@host:x", "…@host:x"),
        ("-https://bob:s3cr3t@host/x", "…@host/x"),
    ],
)
def test_a_refusal_shows_no_secrets(word, left, tmp_path):
    with pytest.raises((Unsafe, NotFound)) as caught:
        source_of(word, base=str(tmp_path))
    assert "s3cr3t" not in str(caught.value) + repr(caught.value)
    assert f"`{left}`" in caught.value.message
    assert redact_address(left) == left


@pytest.mark.parametrize(
    "word",
    [
        "",
        "-x",
        "--help",
        "ext::sh -c x",
        "fd::17",
        "git+ext::x",
        "ftp://host/x",
        "https://-host/x",
        "https:///x",
        "https://user:secret@ho st/x",
        "https://host/x\nhttps://other/y",
        "ssh://-oProxyCommand=x/y",
        "https://host:port/x",
    ],
)
def test_addresses_that_are_never_used(word, tmp_path):
    with pytest.raises(Unsafe) as caught:
        source_of(word, base=str(tmp_path))
    assert caught.value.rule == "git-address"
    assert "secret" not in str(caught.value)


def test_an_archive_on_another_machine_is_not_fetched(tmp_path):
    for word in ("https://host/a.zip", "https://host/x/a.tar.gz"):
        with pytest.raises(InvalidInput):
            source_of(word, base=str(tmp_path))


def test_paths_on_this_machine(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_folder(tmp_path / "skills")
    (tmp_path / "a#b.zip").write_bytes(b"")
    base = str(tmp_path / ".agents")
    for word, kind, url, path in (
        ("skills", "folder", "../skills", ""),
        ("./skills#:references", "folder", "../skills", "references"),
        ("skills#v1", "git", "../skills", ""),
        ("git+skills", "git", "../skills", ""),
        ("git+skills#:a/b", "git", "../skills", "a/b"),
        (f"file://{tmp_path}/skills", "git", "../skills", ""),
        ("a#b.zip", "archive", "../a#b.zip", ""),
    ):
        source = source_of(word, base=base)
        assert (source.kind, source.url) == (kind, url), word
        assert source.path == path  # pyright: ignore[reportAttributeAccessIssue]


def test_a_path_is_recorded_relative_to_the_lockfile_unless_it_is_far(tmp_path):
    archive = tmp_path / "a.zip"
    archive.write_bytes(b"")
    for folder, url in (
        ("x/.agents", "../../a.zip"),
        ("x/y/.agents", "../../../a.zip"),
        ("x/y/z/.agents", str(archive)),
    ):
        base = str(tmp_path / folder)
        assert source_of(str(archive), base=base).url == url
        for recorded in (url, str(archive)):  # older lockfiles have absolute paths
            place = LockedSource("archive", recorded)
            assert source_from(place, base=base).location == str(archive)  # pyright: ignore[reportAttributeAccessIssue]
    archive.unlink()
    with pytest.raises(NotFound, match="which the lockfile names"):
        source_from(LockedSource("archive", "../../a.zip"), base=str(tmp_path / "x/.agents"))


@pytest.mark.parametrize(
    "ref", ["-x", "a b", "a..b", "a:b", "@{1}", "a^", "x.lock", "/a", "a/", "@"]
)
def test_refs_that_are_never_used(ref, tmp_path):
    folder = write_folder(tmp_path / "s")
    with pytest.raises(Unsafe) as caught, source_of(f"git+{folder}", base="/").fetch(ref=ref):
        pass
    assert caught.value.rule == "git-ref"
