"""The package page has links that lead somewhere, and one address stands in every file."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
from hatchling.builders.wheel import WheelBuilder

import package_page
import satchel

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def metadata() -> str:
    """The metadata of a wheel of this checkout."""
    wheel = WheelBuilder(str(ROOT))
    return wheel.config.core_metadata_constructor(wheel.metadata)


def test_the_description_has_no_relative_link(metadata):
    body = metadata.partition("\n\n")[2]
    targets = re.findall(r"\]\(([^)\s]+)\)", body)
    assert len(targets) > 10
    assert [target for target in targets if not target.startswith("https://")] == []


def test_links_of_the_description_lead_to_files_of_this_version(metadata):
    address = package_page.current_address()
    links = re.findall(rf"{re.escape(address)}/(blob|raw)/v([\d.]+)/([^)\s#]+)", metadata)
    assert len(links) > 10
    assert {version for _, version, _ in links} == {satchel.__version__}
    assert [path for _, _, path in links if not (ROOT / path).exists()] == []
    assert {view for view, _, path in links if path.endswith((".png", ".svg"))} == {"raw"}


def test_the_page_names_the_repository_the_issues_and_the_changelog(metadata):
    address = package_page.current_address()
    urls = dict(re.findall(r"^Project-URL: (\w+), (\S+)$", metadata, re.MULTILINE))
    assert {"Repository", "Issues", "Documentation", "Changelog"} <= set(urls)
    assert all(url.startswith(address) for url in urls.values())


@pytest.mark.parametrize("name", package_page.FILES_WITH_ADDRESS)
def test_every_file_with_the_address_has_the_same_one(name):
    assert package_page.current_address() in (ROOT / name).read_text(encoding="utf-8")


def test_no_other_file_has_the_address():
    listing = subprocess.run(
        ["git", "grep", "-lF", package_page.current_address()],
        cwd=ROOT, capture_output=True, text=True, check=False,
    ).stdout.split()  # fmt: skip
    assert set(listing) <= set(package_page.FILES_WITH_ADDRESS)


def test_the_version_stands_once_in_each_place(metadata):
    assert f"\nVersion: {satchel.__version__}\n" in metadata


def test_another_address_is_written_into_every_file(tmp_path, monkeypatch):
    old, new = package_page.current_address(), "https://git.example.net/acme/satchel"
    for name in package_page.FILES_WITH_ADDRESS:
        copy = tmp_path / name
        os.makedirs(copy.parent, exist_ok=True)
        copy.write_text((ROOT / name).read_text(encoding="utf-8"), encoding="utf-8")
    monkeypatch.setattr(package_page, "ROOT", str(tmp_path))
    package_page.replace_address(old, new)
    assert package_page.current_address(str(tmp_path)) == new
    for name in package_page.FILES_WITH_ADDRESS:
        text = (tmp_path / name).read_text(encoding="utf-8")
        assert new in text
        assert old not in text
