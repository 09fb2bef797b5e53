"""A project's detector keeps its index where nobody with other skills keeps theirs."""

from __future__ import annotations

import os

import pytest

from satchel.detect.pipeline import index_folder
from satchel.settings import load_settings


def settings(tmp_path, **given):
    env = {"HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    return load_settings(str(tmp_path / "project"), env, **given)


@pytest.mark.parametrize(
    "given",
    [
        {"include": ["pdf-*"]},
        {"exclude": ["pdf-*"]},
        {"tags": ["office"]},
        {"locations": ["more"]},
        {"builtin": True},
        {"ecosystem": False},
        {"trust": "ask"},
        {"max_depth": 2},
    ],
    ids=str,
)
def test_who_sees_other_skills_has_an_index_of_its_own(tmp_path, given):
    usual = index_folder(settings(tmp_path))
    other = index_folder(settings(tmp_path, **given))
    assert usual is not None
    assert other not in (usual, None)
    assert other == index_folder(settings(tmp_path, **given))
    assert os.path.dirname(other) == os.path.dirname(usual)


def test_what_changes_no_skills_changes_no_index(tmp_path):
    usual = index_folder(settings(tmp_path))
    assert index_folder(settings(tmp_path, shortlist=7, budget=5_000, trace="off")) == usual
    elsewhere = settings(tmp_path)._replace(project=str(tmp_path / "b\udce4d"))
    assert index_folder(elsewhere) not in (usual, None)


def test_without_an_index_nothing_is_kept(tmp_path):
    assert index_folder(settings(tmp_path, use_index=False)) is None
