"""The benchmark of the browser's server: it gets in, keeps its connection, and ends in time."""

from __future__ import annotations

import importlib
import os

import pytest

from satchel.testing import make_skill


@pytest.fixture
def ui_speed(root, monkeypatch):
    monkeypatch.syspath_prepend(os.path.join(root, "benchmarks"))
    return importlib.import_module("ui_speed")


@pytest.fixture
def project(tmp_path, monkeypatch):
    for name in ("SATCHEL_HOME", "HOME"):
        monkeypatch.setenv(name, str(tmp_path / "home"))
    monkeypatch.setenv("SATCHEL_TRUST", "all")
    make_skill(tmp_path / "project" / ".agents" / "skills", "pdf-forms", "Fills in PDF forms.")
    return tmp_path / "project"


@pytest.mark.soak
def test_it_signs_in_once_and_survives_a_closed_connection(ui_speed, project):
    server, browser = ui_speed.start(project)
    try:
        assert "pdf-forms" in browser.get("/skills")[1]
        browser.reconnect()
        took, body = browser.get("/skills?q=pdf", part=True)
        assert took > 0
        assert "pdf-forms" in body
        assert "<html" not in body
        assert ui_speed.memory(server.pid) > 0 or not os.path.exists("/proc/self/status")
    finally:
        browser.close()
        ui_speed.end(server)
    assert server.returncode is not None
