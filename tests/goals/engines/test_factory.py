"""Engines made from settings alone, and what they may use of other packages."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from satchel.errors import InvalidInput, SettingsError
from satchel.goals import engines
from satchel.goals.engines.factory import (
    database_url,
    is_shared,
    local_folder,
    open_engine,
    temporal_address,
)
from satchel.settings import load_settings


@pytest.fixture
def settings(tmp_path):
    def make(project="one", **more):
        (tmp_path / project).mkdir(exist_ok=True)
        environ = {"HOME": str(tmp_path), "SATCHEL_HOME": str(tmp_path / "home")}
        return load_settings(str(tmp_path / project), env=environ, **more)

    return make


def test_each_project_has_a_folder_and_a_database_of_its_own(settings):
    one, two = settings(), settings("two")
    assert local_folder(one) != local_folder(two)
    assert database_url(one) != database_url(two)
    for wrong in ("db.internal/satchel", "sqlite"):
        with pytest.raises(SettingsError, match="is not valid"):
            database_url(one, wrong)


def test_an_engine_is_named_or_set(settings):
    assert open_engine(settings()).name == "local"
    assert open_engine(settings(engine="dbos")).name == "dbos"
    assert open_engine(settings(engine="dbos"), "local").name == "local"
    assert open_engine(settings(), "temporal").name == "temporal"


def test_only_what_several_machines_share_is_shared(settings):
    assert not is_shared(settings(), None)
    assert not is_shared(settings(engine="dbos"), None)
    assert is_shared(settings(), "temporal")
    assert is_shared(settings(engine="dbos:postgresql://me@there/goals"), None)
    assert is_shared(settings(engine="dbos:postgresql://me@there/goals"), "dbos")
    assert not is_shared(settings(engine="dbos:postgresql://me@there/goals"), "local")


def test_addresses_are_read_or_refused(settings):
    assert temporal_address("") == ("", "", "satchel")
    assert temporal_address("there/mine") == ("there:7233", "mine", "satchel")
    with pytest.raises(SettingsError):
        temporal_address("a/b/c/d")
    with pytest.raises(InvalidInput, match="`mysql` is not valid"):
        open_engine(settings(), "dbos:mysql://there")


@pytest.mark.parametrize("package", ["dbos", "temporal"])
def test_no_private_name_of_the_package_is_used(package):
    files = [*Path(engines.__file__).parent.glob(f"{package}*.py")]
    assert len(files) >= 3
    private = {
        f"{file.name}: {name}"
        for file in files
        for name in re.findall(r"(?<!\bself)\.(_[a-z]\w*)| import (_\w+)", file.read_text("utf-8"))
        if name[0] != "_replace"  # of our named tuples
    }
    assert private == set()
