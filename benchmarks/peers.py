"""Installs each peer in its own environment and measures its discovery.

    python benchmarks/peers.py --count 1000 10000 --broken --out peers.json

A peer that cannot be installed or run is reported with the reason. Versions are pinned: the
figures speak of these releases and no others.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import broken
from corpora import ensure, ensure_synthetic, with_broken
from measure import HERE, Contender, machine, median, python_contender, run_once, table

if TYPE_CHECKING:
    from corpora import Row
    from measure import Run

KIND_TIMEOUT = 45.0
"""Twenty-one folders take a second; what is not back by then hangs."""


class Peer(NamedTuple):
    """A library others use for the same job."""

    name: str
    version: str
    adapter: str
    manager: str = "pip"
    also: tuple[str, ...] = ()
    """What must be installed beside it because its own metadata forgets it."""
    package: str = ""
    """What to install, where that is not the name."""


PEERS = (
    Peer("strands-agents", "1.62.0", "strands.py"),
    Peer("skillkit", "0.4.0", "skillkit.py", also=("aiofiles==25.1.0",)),
    Peer("deepagents", "0.7.32", "deepagents.py"),
    Peer("google-adk", "2.13.0", "google_adk.py"),
    Peer("agent-framework-core", "1.23.0", "agent_framework.py"),
    Peer("fastmcp", "4.1.2", "fastmcp.py"),
    Peer("pydantic-ai-skills", "2.1.0", "pydantic_ai_skills.py"),
    Peer("skillport", "1.1.0", "skillport.py"),
    Peer("skills-ref", "0.1.1", "skills_ref.py"),
    Peer("openskills", "1.5.0", "openskills.mjs", "npm"),
    Peer("openskills list", "1.5.0", "openskills_list.py", "npm", package="openskills"),
)


def install(peer: Peer, workdir: Path) -> Contender:
    """Install a peer once per work folder; a failure becomes a contender that says why."""
    package = peer.package or peer.name
    folder = workdir / "peers" / f"{package}-{peer.version}"
    marker = folder / "installed"
    adapter = f"peer_adapters/{peer.adapter}"
    if not marker.exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        reason = _install_pip(peer, folder) if peer.manager == "pip" else _install_npm(peer, folder)
        if reason:
            return Contender(peer.name, peer.version, (), reason)
        marker.touch()
    if peer.manager == "pip":
        return python_contender(peer.name, peer.version, folder / "bin" / "python", adapter)
    bundle = folder / "node_modules" / package / "dist" / "cli.js"
    if peer.adapter.endswith(".py"):
        ran = python_contender(peer.name, peer.version, sys.executable, adapter)
        return ran._replace(command=("env", f"OPENSKILLS_BUNDLE={bundle}", *ran.command))
    return Contender(peer.name, peer.version, ("node", str(HERE / adapter), str(bundle)))


def _install_pip(peer: Peer, folder: Path) -> str:
    python, wanted = str(folder / "bin" / "python"), f"{peer.package or peer.name}=={peer.version}"
    made = _quietly([sys.executable, "-m", "venv", str(folder)])
    return made or _quietly([python, "-m", "pip", "install", wanted, *peer.also])


def _install_npm(peer: Peer, folder: Path) -> str:
    if shutil.which("npm") is None:
        return "npm is not on this machine"
    return _quietly(
        ["npm", "install", "--prefix", str(folder), f"{peer.package or peer.name}@{peer.version}"]
    )


def _quietly(command: list[str]) -> str:
    """Run an installer; what it complained about, or nothing."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    except subprocess.TimeoutExpired:
        return f"`{Path(command[0]).name}` took more than ten minutes"
    if done.returncode == 0:
        return ""
    lines = [line for line in done.stderr.splitlines() if "error" in line.lower()]
    return (lines or done.stderr.splitlines() or ["unknown"])[-1].strip()[:300]


def footprint(contender: Contender) -> dict[str, float]:
    """How many packages a bare install of a peer brings, and how many megabytes."""
    if contender.failed or contender.command[0] == "env":
        return {}
    if contender.command[0] == "node":
        top = Path(contender.command[2]).parents[2]
        lock = json.loads((top / ".package-lock.json").read_text("utf-8"))
        packages = len(lock["packages"])
    else:
        top = next((Path(contender.command[0]).parents[1] / "lib").glob("python*/site-packages"))
        # pip and setuptools come with the environment, not with the peer.
        infos = {path.name.split("-")[0] for path in top.glob("*.dist-info")}
        packages = len(infos - {"pip", "setuptools", "wheel"})
    skipped = ("pip", "setuptools", "pkg_resources", "_distutils_hack")
    size = sum(
        path.stat().st_size
        for path in top.rglob("*")
        if path.is_file()
        and path.relative_to(top).parts[0] not in skipped
        and path.suffix != ".pyc"
    )
    return {"packages": packages, "megabytes": round(size / 1e6, 1)}


def measure_broken(contenders: list[Contender], workdir: Path) -> dict[str, Any]:
    """One kind at a time among twenty healthy skills, then all of them at 1 % of a corpus."""
    corpora = workdir / "corpora"
    every = tuple(broken.KINDS)
    without_fifo = tuple(kind for kind in every if kind != "FIFO")
    sets: dict[str, tuple[Path, list[Row]]] = {}
    for kind in every:
        out = corpora / f"one-{kind.replace(' ', '-').lower()}"
        sets[kind] = out, ensure(out, lambda s, k=kind: with_broken(s, 21, 7, 1 / 21, (k,)))
    for label, kinds in (("1 % without FIFO", without_fifo), ("1 %", every)):
        out, count = corpora / f"broken-{len(kinds)}", len(kinds) * 100
        sets[label] = out, ensure(out, lambda s, k=kinds, n=count: with_broken(s, n, 7, 0.01, k))
    results: dict[str, Any] = {}
    for contender in contenders:
        outcome: dict[str, Any] = {}
        for label, (out, truth) in sets.items():
            run = run_once(contender, out / "skills", truth, KIND_TIMEOUT)
            outcome[label] = {**run._asdict(), "verdict": verdict(run)}
        results[contender.name] = outcome
        print(f"{contender.name}: " + "; ".join(f"{k}: {outcome[k]['verdict']}" for k in outcome))
    return results


def verdict(run: Run) -> str:
    """What a broken file did; `+N`: so many of the broken ones were read rightly as well."""
    if run.status != "ok":
        return {"crashed": "CRASH", "timed out": "HANG"}.get(run.status, run.status)
    if run.healthy_lost:
        return f"lost {run.healthy_lost}"
    return f"ok +{run.repaired}" if run.repaired else "ok"


def summary(contender: Contender, runs: list[Run], total: int) -> dict[str, Any]:
    """Medians of one contender, or why there are none."""
    good = [run for run in runs if run.status == "ok"]
    last = (good or runs)[-1]
    row: dict[str, Any] = {
        "name": contender.name,
        "version": contender.version,
        "status": last.status,
        "reason": last.error,
        "rounds": len(good),
        "total": total,
    }
    if good:
        fields = ("cpu", "wall", "rss_added_mb", "import_cpu")
        row |= {field: round(median(good, field), 5) for field in fields}
        row |= {"found": last.found, "right": last.right, "cpu_runs": [run.cpu for run in good]}
    return row


def chosen(only: str) -> list[Peer]:
    """The peers named on the command line; all of them by default."""
    names = {name for name in only.split(",") if name}
    unknown = names - {peer.name for peer in PEERS}
    if unknown:
        raise SystemExit(f"error: No peer is called `{min(unknown)}`")
    return [peer for peer in PEERS if not names or peer.name in names]


def main() -> None:
    """Install, measure in turns, print a table, write the figures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--count", type=int, nargs="*", default=[1000, 10_000])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="", help="peers to run, separated by commas")
    parser.add_argument("--broken", action="store_true", help="measure broken files as well")
    parser.add_argument("--timeout", type=float, default=300.0)
    parser.add_argument("--workdir", type=Path, help="keeps environments and corpora for next time")
    parser.add_argument("--out", type=Path, help="JSON file for the figures, outside the checkout")
    options = parser.parse_args()
    workdir = Path(options.workdir or tempfile.mkdtemp(prefix="satchel-peers-")).resolve()
    contenders = [install(peer, workdir) for peer in chosen(options.only)]
    results: dict[str, Any] = {"machine": machine(), "discovery": {}}
    results["footprint"] = {item.name: footprint(item) for item in contenders}
    for count in options.count:
        corpus = workdir / "corpora" / f"synthetic-{count}"
        truth = ensure_synthetic(corpus, count)
        runs: dict[str, list[Run]] = {item.name: [] for item in contenders}
        for _ in range(options.rounds):
            for item in contenders:
                runs[item.name].append(run_once(item, corpus / "skills", truth, options.timeout))
        rows = [summary(item, runs[item.name], count) for item in contenders]
        results["discovery"][str(count)] = rows
        print(f"\n{count} synthetic skills, medians of {options.rounds}\n\n{_printed(rows)}\n")
        _save(results, options.out)
    if options.broken:
        results["broken"] = measure_broken(contenders, workdir)
        _save(results, options.out)


def _printed(rows: list[dict[str, Any]]) -> str:
    lines = [["peer", "version", "CPU s", "wall s", "RSS + MB", "import s", "found", "right"]]
    for row in rows:
        if "cpu" in row:
            figures = [f"{row['cpu']:.3f}", f"{row['wall']:.3f}", f"{row['rss_added_mb']:.0f}"]
            figures += [f"{row['import_cpu']:.2f}", str(row["found"]), str(row["right"])]
        else:
            figures = [row["status"], "", "", "", "", row["reason"][:60]]
        lines.append([row["name"], row["version"], *figures])
    return table(lines)


def _save(results: dict[str, Any], out: Path | None) -> None:
    if out is not None:
        out.write_text(json.dumps(results, indent=1), "utf-8")


if __name__ == "__main__":
    main()
