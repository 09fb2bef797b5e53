"""What every test can count on: an empty home, no network, English, and no silent skip.

On CI (`CI=true`) a skipped test is a failed one: a check that did not run proves nothing.
"""

from __future__ import annotations

import os
import signal
import socket
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings

from sizes import IN_SOAK, sized

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
IN_CI = os.environ.get("CI", "").lower() in {"1", "true"}

# Whoever starts the tests in the background may have had interrupts ignored; programs inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if hasattr(signal, "SIGQUIT") and signal.getsignal(signal.SIGQUIT) is signal.SIG_IGN:
    signal.signal(signal.SIGQUIT, signal.SIG_DFL)

if "PYTEST_XDIST_WORKER" in os.environ:  # which process all others of this run come from
    os.environ.setdefault("WARM_KEEPER", str(os.getppid()))

# The same examples for everyone on CI, so that a red run can be repeated.
settings.register_profile(
    "ci", derandomize=True, deadline=None, print_blob=True, max_examples=sized(25, 200)
)
settings.register_profile("local", deadline=None)
settings.load_profile("ci" if IN_CI else "local")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option for a machine that has no corpus."""
    parser.addoption(
        "--without-corpus",
        action="store_true",
        help="deselect the tests that read the folder `shared` beside the checkout",
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is marked `soak`, and on request what reads the corpus."""
    left = [] if IN_SOAK else [item for item in items if item.get_closest_marker("soak")]
    if config.getoption("--without-corpus"):
        left += [item for item in items if "shared" in getattr(item, "fixturenames", ())]
    if left:
        config.hook.pytest_deselected(items=left)
        items[:] = [item for item in items if item not in left]


def _refuse_skip(report: Any) -> None:
    if IN_CI and report.outcome == "skipped" and not hasattr(report, "wasxfail"):
        where = report.longrepr
        why = where[2] if isinstance(where, tuple) else where
        report.outcome = "failed"
        report.longrepr = f"skipped, and on CI a skip is a failure: {why}"


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport() -> Generator[None, Any, Any]:
    report = yield
    _refuse_skip(report)
    return report


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_make_collect_report() -> Generator[None, Any, Any]:
    report = yield
    _refuse_skip(report)
    return report


@pytest.fixture(scope="session", autouse=True)
def _empty_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Nobody's own skills, packages, settings, language or git identity reach a test."""
    home = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        for name in list(os.environ):
            if name.startswith(("SATCHEL_", "SKILLS_", "XDG_", "LC_", "GIT_")):
                patch.delenv(name)
        patch.setenv("HOME", str(home))
        patch.setenv("VIRTUAL_ENV", str(home / "no-environment"))  # whose packages have no skills
        patch.setenv("LANG", "C.UTF-8")
        patch.setenv("NO_COLOR", "1")
        patch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
        patch.setenv("GIT_CONFIG_NOSYSTEM", "1")
        for role in ("AUTHOR", "COMMITTER"):
            patch.setenv(f"GIT_{role}_NAME", "A Tester")
            patch.setenv(f"GIT_{role}_EMAIL", "tester@example.com")
        yield


@pytest.fixture(scope="session", autouse=True)
def _no_network() -> Iterator[None]:
    """A test that reaches for another machine fails at once instead of waiting."""
    connect = socket.socket.connect

    def guarded(self: socket.socket, address: Any) -> None:
        if self.family in {socket.AF_INET, socket.AF_INET6} and address[0] not in {
            "127.0.0.1",
            "::1",
            "localhost",
        }:
            raise AssertionError(f"a test tried to connect to {address}")
        connect(self, address)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket.socket, "connect", guarded)
        yield


@pytest.fixture(scope="session")
def root() -> str:
    """The project's own folder."""
    return ROOT


@pytest.fixture(scope="session")
def shared() -> str:
    """The folder with the corpus, beside the checkout."""
    folder = os.path.join(os.path.dirname(ROOT), "shared")
    if not os.path.isdir(folder):
        pytest.skip("the folder `shared` is not beside the checkout")
    return folder
