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


@pytest.mark.soak
def test_a_server_that_does_not_start_is_said_so(ui_speed):
    with pytest.raises(SystemExit, match="ended before it said its address"):
        ui_speed.Browser("")


@pytest.mark.soak
def test_an_index_that_takes_too_long_ends_the_run(ui_speed):
    class Endless:
        def prepare(self, progress):
            for done in range(1_000_000):
                progress(done)

    with pytest.raises(SystemExit, match="--index-minutes"):
        ui_speed.prepare(Endless(), 0.0001)


@pytest.mark.soak
def test_the_figures_are_those_of_the_list(ui_speed):
    assert ui_speed.figures([float(number) for number in range(101)]) == {
        "p50": 50.0,
        "p95": 95.0,
        "worst": 100.0,
    }
