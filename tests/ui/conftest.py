"""A server of a project of its own, and somebody who came in."""

from __future__ import annotations

import tempfile

import pytest
from starlette.testclient import TestClient

from satchel.facade import Satchel
from satchel.testing import make_skill
from satchel.ui.access import Access
from satchel.ui.app import make_app
from ui_visit import ORIGIN, Visit


def _settle(home, monkeypatch):
    folder = home / "project"
    folder.mkdir()
    monkeypatch.setenv("SATCHEL_HOME", str(home / "home"))
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.setenv("SATCHEL_LANG", "en")
    return folder


@pytest.fixture
def project(tmp_path, monkeypatch):
    """An empty project, and a home of its own."""
    return _settle(tmp_path, monkeypatch)


@pytest.fixture
def skill(project):
    """Writes a skill of the user's own."""

    def write(
        name: str, description: str = "Does things. Use when asked.", body: str = "Do.", **more
    ):
        return make_skill(
            project / ".agents" / "skills", name, description=description, body=body, **more
        )

    return write


@pytest.fixture
def spooled(tmp_path, monkeypatch):
    """The folder where uploads are kept meanwhile."""
    folder = tmp_path / "spooled"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


@pytest.fixture
def visit(project):
    """A server for `project`, and a session in it. Skills may be written before and after."""
    satchel = Satchel.for_project(project, trust="all", builtin=True)
    access = Access()
    app = make_app(satchel, access)
    with TestClient(app, base_url=ORIGIN, follow_redirects=False) as client:
        answer = client.get(f"/enter?token={access.new_link()}")
        assert answer.status_code == 303
        yield Visit(client, satchel, access)
    satchel.close()


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """One server for the tests of a module that leave it as it is."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        folder = _settle(tmp_path_factory.mktemp("shared"), monkeypatch)
        satchel = Satchel.for_project(folder, trust="all", builtin=True)
        access = Access()
        app = make_app(satchel, access)
        with TestClient(app, base_url=ORIGIN, follow_redirects=False) as client:
            yield Visit(client, satchel, access)
        satchel.close()


@pytest.fixture
def guest(shared):
    """Somebody who came in there, anew for each test."""
    shared.client.cookies.clear()
    assert shared.get(f"/enter?token={shared.access.new_link()}").status_code == 303
    return shared
