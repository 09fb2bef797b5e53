"""A server with a project of its own, and a signed-in client."""

from __future__ import annotations

import io
import tempfile
import zipfile
from contextlib import ExitStack, contextmanager
from typing import NamedTuple

import pytest
from starlette.testclient import TestClient

from satchel.satchel import Satchel
from satchel.testing import make_skill
from satchel.ui.auth import UiAccess
from satchel.ui.server import make_app

ORIGIN = "http://127.0.0.1"


class Visit(NamedTuple):
    """A signed-in client and its server."""

    client: TestClient
    satchel: Satchel
    access: UiAccess

    def get(self, address: str, **more):
        return self.client.get(address, **more)

    def post(self, address: str, **more):
        """Post as a form of our own page does."""
        headers = {"Origin": ORIGIN, **more.pop("headers", {})}
        return self.client.post(address, headers=headers, **more)

    def upload(self, files: dict[str, str], name: str = "skills.zip"):
        """Upload an archive of these files."""
        body = io.BytesIO()
        with zipfile.ZipFile(body, "w") as archive:
            for path, text in files.items():
                archive.writestr(path, text)
        return self.post("/skills/import/zip", files={"file": (name, body.getvalue())})

    def part(self, address: str, **more):
        """Get as htmx does."""
        return self.client.get(address, headers={"HX-Request": "true"}, **more)


def _make_project(home, monkeypatch):
    folder = home / "project"
    folder.mkdir()
    monkeypatch.setenv("SATCHEL_HOME", str(home / "home"))
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.setenv("SATCHEL_LANG", "en")
    return folder


@pytest.fixture
def project(tmp_path, monkeypatch):
    """An empty project with a home of its own."""
    return _make_project(tmp_path, monkeypatch)


@pytest.fixture
def skill(project):
    """Write a skill of the user."""

    def write(
        name: str, description: str = "Does things. Use when asked.", body: str = "Do.", **more
    ):
        return make_skill(
            project / ".agents" / "skills", name, description=description, body=body, **more
        )

    return write


@pytest.fixture
def spooled(tmp_path, monkeypatch):
    """The folder of uploads."""
    folder = tmp_path / "spooled"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


@pytest.fixture
def satchel(project):
    """The skills of the project, without a server."""
    made = Satchel.for_project(project, trust="all")
    yield made
    made.close()


@contextmanager
def _serving(folder, access, **settings):
    """A server for a project, and a client that is signed in by its link if it has one."""
    satchel = Satchel.for_project(folder, **settings)
    app = make_app(satchel, access)
    with TestClient(app, base_url=ORIGIN, follow_redirects=False) as client:
        app.state.loading.reading.wait(30)  # else a busy machine shows the progress state
        if not access.by_password:
            answer = client.get(f"/enter?token={access.new_link()}")
            assert answer.status_code == 303
        yield Visit(client, satchel, access)
    satchel.close()


@pytest.fixture
def enter(project):
    """Opens servers for `project` with some settings: `enter(access, trust="ask")`."""
    with ExitStack() as stack:

        def enter(access=None, **settings):
            return stack.enter_context(_serving(project, access or UiAccess(), **settings))

        yield enter


@pytest.fixture
def visit(enter):
    """A server for `project`, and a signed-in client. Skills may be written before and after."""
    return enter(trust="all", builtin=True)


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """One server for the tests of a module that do not change it."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        folder = _make_project(tmp_path_factory.mktemp("shared"), monkeypatch)
        with _serving(folder, UiAccess(), trust="all", builtin=True) as made:
            yield made


@pytest.fixture
def guest(shared):
    """A client of the shared server, signed in for each test."""
    shared.client.cookies.clear()
    assert shared.get(f"/enter?token={shared.access.new_link()}").status_code == 303
    return shared
