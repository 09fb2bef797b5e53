"""Size of a bare install, and the run time of its commands.

    python benchmarks/startup.py --workdir DIR --out startup.json

Builds the wheel of this checkout (or takes `--wheel`), installs it with its dependencies into a
new environment, and measures whole programs there in turns with `python -c pass`.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

from corpora import ensure_synthetic
from measure import machine, table
from sampling import ROOT, Figure, environment, in_turns, ratios, spent_by

COMES_WITH_VENV = ("pip", "setuptools", "pkg_resources", "_distutils_hack", "distutils-precedence")
BARE = "python -c pass"
IMPORT = "import satchel"
FACADE = "from satchel import Satchel"
LIST = "satchel list"
LIST_COLD = "satchel list, no index"
LIST_JSON = "satchel list --json"
VERSION = "satchel --version"
HELP = "satchel --help"


class Installed(NamedTuple):
    """An environment with Satchel and nothing that it does not need."""

    python: str
    satchel: tuple[str, ...]
    packages: dict[str, float]
    """Package -> megabytes on disk, bytecode included; empty when this is no new environment."""


def here() -> Installed:
    """Satchel as the running interpreter has it: for a quick look, says nothing about size."""
    return Installed(sys.executable, (sys.executable, "-m", "satchel"), {})


def install(workdir: Path, wheel: Path | None = None) -> Installed:
    """Build, make an environment, install.

    Raises:
        RuntimeError: one of the steps failed, with what it said.
    """
    folder = Path(tempfile.mkdtemp(prefix="bare-", dir=workdir))
    if wheel is None:
        _run(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(folder), str(ROOT))
        wheel = next(folder.glob("satchel-*.whl"))
    _run(sys.executable, "-m", "venv", str(folder / "env"))
    python = folder / "env" / "bin" / "python"
    _run(str(python), "-m", "pip", "install", "-q", str(wheel))
    return Installed(str(python), (str(python.with_name("satchel")),), _packages(python))


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command[1:4])}: {done.stderr.strip()[-1500:]}")


def _packages(python: Path) -> dict[str, float]:
    top = next((python.parents[1] / "lib").glob("python*/site-packages"))
    sizes: dict[str, float] = {}
    for info in sorted(top.glob("*.dist-info")):
        name = info.name.split("-")[0]
        if name not in COMES_WITH_VENV:
            sizes[name] = sum(map(_size, _files_of(info, top))) / 1e6
    # Whatever no package owns up to still lies on the disk.
    total = sum(
        _size(path)
        for path in top.rglob("*")
        if path.is_file() and not path.relative_to(top).parts[0].startswith(COMES_WITH_VENV)
    )
    rest = total / 1e6 - sum(sizes.values())
    return {**sizes, "unaccounted": rest} if rest > 0.01 else sizes


def _files_of(info: Path, top: Path) -> list[Path]:
    rows = (info / "RECORD").read_text("utf-8").splitlines()
    return [path for row in rows if (path := top / row.split(",")[0]).is_file()]


def _size(path: Path) -> int:
    return path.stat().st_size


def measure(
    installed: Installed, workdir: Path, rounds: int, skills: int = 100
) -> dict[str, Figure]:
    """CPU milliseconds of whole programs, and their ratios to a Python that does nothing."""
    with tempfile.TemporaryDirectory(prefix="home-", dir=workdir) as home:
        project = Path(home, "project")
        ensure_synthetic(project / ".agents", skills)
        env = environment(home)
        if installed.packages:
            env.pop("PYTHONPATH", None)
        python = [installed.python]
        trust = "from satchel import Satchel; Satchel.for_project('.').trust()"
        spent_by([*python, "-c", trust], str(project), env)
        listed = subprocess.run(
            [*installed.satchel, "list", "--json"],
            cwd=project, env=env, capture_output=True, check=True,
        )  # fmt: skip
        shown = sum(row["source"] == "user" for row in json.loads(listed.stdout))
        if shown != skills:
            raise RuntimeError(f"`satchel list` shows {shown} of {skills} skills")
        commands: dict[str, tuple[list[str], dict[str, str]]] = {
            BARE: ([*python, "-c", "pass"], env),
            IMPORT: ([*python, "-c", IMPORT], env),
            FACADE: ([*python, "-c", FACADE], env),
            LIST: ([*installed.satchel, "list"], env),
            LIST_COLD: ([*installed.satchel, "list"], {**env, "XDG_CACHE_HOME": "/proc/none"}),
            LIST_JSON: ([*installed.satchel, "list", "--json"], env),
            VERSION: ([*installed.satchel, "--version"], env),
            HELP: ([*installed.satchel, "--help"], env),
        }
        for command, given in commands.values():
            spent_by(command, str(project), given)  # bytecode and page cache
        runs = in_turns(
            {
                name: lambda command=command, given=given: spent_by(command, str(project), given)
                for name, (command, given) in commands.items()
            },
            rounds,
        )
    figures = {name: Figure.of(run[name] * 1000 for run in runs) for name in commands}
    for name in commands:
        figures[f"{name} / bare"] = ratios(runs, name, BARE)
        figures[f"{name} - bare"] = Figure.of((run[name] - run[BARE]) * 1000 for run in runs)
    return figures


def terminal_modules(installed: Installed, workdir: Path) -> list[str]:
    """Packages of the terminal that `from satchel import Satchel` loads; there should be none."""
    code = f"{FACADE}; import sys; print(*sorted({{'click', 'yaml', 'rich'}} & set(sys.modules)))"
    env = environment(str(workdir))
    if installed.packages:
        env.pop("PYTHONPATH", None)
    done = subprocess.run(
        [installed.python, "-c", code], cwd=workdir, env=env, capture_output=True, check=True
    )
    return done.stdout.decode().split()


def printed(installed: Installed, figures: dict[str, Figure]) -> str:
    """The tables people read."""
    parts: list[str] = []
    if installed.packages:
        rows = [["package", "MB"]]
        rows += [[name, f"{size:.2f}"] for name, size in installed.packages.items()]
        rows.append(["total", f"{sum(installed.packages.values()):.2f}"])
        parts.append(table(rows))
    rows = [["command", "CPU ms", "net of python", "x python"]]
    for name, spent in figures.items():
        if " / " not in name and " - " not in name:
            net, times = figures[f"{name} - bare"], figures[f"{name} / bare"]
            row = [f"{spent.value:.1f}", f"{net.value:.1f}", f"{times.value:.2f}"]
            rows.append([name, *row])
    return "\n\n".join([*parts, table(rows)])


def main() -> None:
    """Install, measure, print, write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--wheel", type=Path, help="install this one instead of building")
    parser.add_argument("--workdir", type=Path, help="keeps the environment")
    parser.add_argument("--out", type=Path, help="JSON file for the figures")
    options = parser.parse_args()
    workdir = Path(options.workdir or tempfile.mkdtemp(prefix="satchel-startup-")).resolve()
    workdir.mkdir(parents=True, exist_ok=True)
    installed = install(workdir, options.wheel)
    figures = measure(installed, workdir, options.rounds)
    print(printed(installed, figures))
    if options.out:
        result: dict[str, Any] = {"machine": machine(), "packages": installed.packages}
        result["commands"] = {name: figure._asdict() for name, figure in figures.items()}
        options.out.write_text(json.dumps(result, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
