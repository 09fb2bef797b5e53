"""A hub of real skills behind Caddy: builds, installs, requests, bytes, search.

    PYTHONPATH=src:tests python benchmarks/hub_serving.py --corpus ../shared/corpus [--pages]

Writes the skills of the corpus (name, description and 400 characters of each) as
`publisher/skill`, publishes them in a folder, serves that with Caddy, and prints in one run:

- seconds to publish and build from nothing, to build again after one release, and from the
  commits alone
- requests and bytes of a cold install, of a second skill, of the same again, after a release
- installs per second that Caddy serves from the hub, in turns with the same bytes as plain files,
  with a bootstrapped 95 % interval of their ratio, and those that a client fetches and verifies
- search in the hub's list beside the same detector on a local library (median and p95)
"""

from __future__ import annotations

import argparse
import http.client
import json
import lzma
import os
import random
import re
import shutil
import statistics
import subprocess
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from hub import servers
from satchel.detect.hybrid import HybridDetector
from satchel.detect.pipeline import SelectionPipeline
from satchel.detect.skill_texts import make_header_row
from satchel.hub.build import build, create_hub
from satchel.hub.storage import open_storage
from satchel.skill.document import SkillHeader
from satchel.skill.model import Skill, SkillOrigin
from satchel.store.hub_client.client import Hub, HubClient
from satchel.store.hub_client.hubs import Hubs, listed_skills
from satchel.store.signing import SshKey

NAME = "skills.bench.example"
_BOOTSTRAP_SAMPLES = 10_000
QUERIES = (
    "review a contract", "make a chart from a csv file", "write release notes", "resize images",
    "deploy to kubernetes", "fix a flaky test", "translate a document into Chinese",
    "summarise a meeting", "fill a pdf form", "optimise a slow sql query", "design a logo",
    "set up continuous integration", "scrape a web page", "write unit tests for python",
    "plan a database migration", "清理数据", "create a slide deck", "audit dependencies",
    "explain a stack trace", "generate api documentation",
)  # fmt: skip


def write_skills(corpus: Path, folder: Path, count: int) -> list[str]:
    """Write the skills; returns their names."""
    names: list[str] = []
    taken: set[str] = set()
    with lzma.open(corpus / "skills.jsonl.xz", "rt", encoding="utf-8") as lines:
        for line in lines:
            if len(names) >= count:
                break
            row = json.loads(line)
            publisher = _word(row["source_repo"].partition("/")[0])[:39].strip("-") or "unknown"
            base = skill = _word(row["name"])[:50].strip("-") or "skill"
            number = 1
            while f"{publisher}/{skill}" in taken:
                number += 1
                skill = f"{base}-{number}"
            taken.add(f"{publisher}/{skill}")
            names.append(f"{publisher}/{skill}")
            target = folder / publisher / skill
            target.mkdir(parents=True)
            about = " ".join(row["description"].split())[:1000] or "None."
            (target / "SKILL.md").write_text(
                f"---\nname: {skill}\ndescription: {json.dumps(about, ensure_ascii=False)}\n"
                f"metadata:\n  version: 1.0.0\n---\n{row['body_head']}\n",
                encoding="utf-8",
                errors="replace",
            )
    return names


def _word(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def fetch(hub: Hub, name: str, folders: tuple[str, str]) -> tuple[str, int]:
    """Fetch and verify a skill as an installation does; returns its digest and bytes."""
    from satchel.store.trees import HashedTree

    source = Hubs([hub], *folders).requested(name, base="/")
    assert source is not None
    with source.fetch() as bundle:
        return HashedTree(bundle.tree).digest, 0


class Counter:
    """Counts what a client requests."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, int]] = []
        from satchel.store import download

        reader_class: Any = download.FileReader
        inside = reader_class.read

        def counted(reader: Any, path: str, *given: Any, **named: Any) -> Any:
            data = inside(reader, path, *given, **named)
            self.requests.append((path, len(data or b"")))
            return data

        reader_class.read = counted

    def take(self) -> str:
        """What was requested since the last call."""
        blobs = sum(size for path, size in self.requests if path.startswith("blobs/"))
        total = sum(size for _, size in self.requests)
        words = f"{len(self.requests)} requests, {total - blobs:,} bytes beside a blob of {blobs:,}"
        self.requests.clear()
        return words


def installs(hub: Hub, names: list[str]) -> int:
    """Fetch skills, each with an empty cache, as a new machine would."""
    for name in names:
        fetch(hub, name, ("", ""))
    return len(names)


def plain(address: str, paths: list[str]) -> int:
    """Request the same paths with one plain connection."""
    parts = urlsplit(address)
    connection = http.client.HTTPConnection(str(parts.hostname), parts.port)
    for path in paths:
        connection.request("GET", f"/{path}")
        connection.getresponse().read()
    connection.close()
    return len(paths)


def timed(label: str, call: Any) -> Any:
    """Call and print seconds of CPU and of waiting."""
    began, cpu = time.perf_counter(), time.process_time()
    result = call()
    took, used = time.perf_counter() - began, time.process_time() - cpu
    print(f"{label}: {took:.1f} s, {used:.1f} s of CPU", flush=True)
    return result


def search(hub: Hub, folders: tuple[str, str]) -> None:
    """Compare a search in the hub's list with one in a local library of the same skills."""
    client = HubClient(hub, *folders)
    skills = tuple(timed("search list, first time", lambda: listed_skills(client)))
    again = HubClient(hub, *folders)
    timed("search list, from the cache", lambda: listed_skills(again))
    here = SkillOrigin("local", "project", "local")
    local = tuple(
        Skill(SkillHeader(s.name, s.description, s.name, "SKILL.md", n, 0, 1), here)
        for n, s in enumerate(skills)
    )
    found: dict[str, list[float]] = {"hub": [], "local": []}
    with tempfile.TemporaryDirectory() as folder:
        detectors = {
            kind: SelectionPipeline(
                HybridDetector(
                    os.path.join(folder, kind), limit=10, patience=600, rows=make_header_row
                )
            )
            for kind in found
        }
        rows = {"hub": skills, "local": local}
        for kind, detector in detectors.items():
            timed(f"index of {kind}", lambda d=detector, k=kind: d.look(QUERIES[0], rows[k], 10))
        for _ in range(5):
            for query in QUERIES:
                for kind, detector in detectors.items():
                    began = time.perf_counter()
                    detector.look(query, rows[kind], 10)
                    found[kind].append((time.perf_counter() - began) * 1000)
    for kind, times in found.items():
        ordered = sorted(times)
        p95 = ordered[int(len(ordered) * 0.95)]
        print(f"search {kind}: median {statistics.median(times):.1f} ms, p95 {p95:.1f} ms")


def main() -> None:
    """Run all parts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--corpus", type=Path, required=True)
    parser.add_argument("--skills", type=int, default=69_568)
    parser.add_argument("--pages", action="store_true", help="also write the pages")
    parser.add_argument("--turns", type=int, default=10, help="of hub beside plain files")
    parser.add_argument("--folder", type=Path, help="keep the hub here")
    options = parser.parse_args()
    top = options.folder or Path(tempfile.mkdtemp(prefix="hub-"))
    top.mkdir(exist_ok=True)
    subprocess.run(
        ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "hub", "-f", top / "key"], check=True
    )
    key = SshKey(str(top / "key"))
    names = write_skills(options.corpus, top / "skills", options.skills)
    print(f"{len(names):,} skills", flush=True)
    pages = options.pages
    skills, store = str(top / "skills"), str(top / "hub")
    with open_storage(store, create=True) as storage:
        create_hub(storage, NAME, key)
        report = timed(
            "publish and build from nothing", lambda: build(storage, key, skills, pages=pages)
        )
        for name, error in list(report.refused.items())[:3]:
            print(f"refused: {name}: {error.message}")
        if report.refused:
            print(f"{len(report.refused):,} refused; they are left out")
            for name in report.refused:
                shutil.rmtree(top / "skills" / name)
            names = [name for name in names if name not in report.refused]
            report = timed(
                "publish and build from nothing", lambda: build(storage, key, skills, pages=pages)
            )
        os.remove(top / "hub" / "state")
        timed(
            "build from the commits alone", lambda: build(storage, key, pages=pages, rebuild=True)
        )
    hub_key = key.public
    (top / "caddy").mkdir()
    for address in servers.caddy(top / "caddy", top / "hub"):
        hub = Hub(NAME, address, hub_key)
        counter = Counter()
        folders = (str(top / "state"), str(top / "cache"))
        for label, name in (
            ("cold install", names[100]), ("second skill", names[200]), ("the same", names[200]),
        ):  # fmt: skip
            fetch(hub, name, folders)
            print(f"{label}: {counter.take()}")
        skill = top / "skills" / names[300] / "SKILL.md"
        skill.write_text(skill.read_text().replace("1.0.0", "1.1.0"))
        shutil.rmtree(top / "one", ignore_errors=True)
        shutil.copytree(skill.parent, top / "one" / names[300])
        with open_storage(store) as storage:
            timed(
                "publish one and build",
                lambda: build(storage, key, str(top / "one"), pages=pages),
            )
        fetch(hub, names[300], folders)
        print(f"after a release: {counter.take()}")
        fetch(hub, names[400], ("", ""))
        paths = [path for path, _ in counter.requests]
        counter.take()
        search(hub, folders)
        throughput(hub, address, names, paths, top, turns=options.turns)
    if options.folder is None:
        shutil.rmtree(top)


def throughput(
    hub: Hub, address: str, names: list[str], paths: list[str], top: Path, *, turns: int
) -> None:
    """Compare the requests of an install with those for the same bytes as plain files."""
    flat = [f"flat/{at}" for at in range(len(paths))]
    (top / "hub" / "flat").mkdir()
    for path, copy in zip(paths, flat, strict=True):
        shutil.copy(top / "hub" / path, top / "hub" / copy)
    share = 600
    rates: dict[str, list[float]] = {"hub": [], "plain files": [], "verified by a client": []}
    with ProcessPoolExecutor(2) as pool:
        for turn in range(turns):
            kinds = [("hub", paths), ("plain files", flat)]
            for kind, wanted in kinds[:: -1 if turn % 2 else 1]:
                began = time.perf_counter()
                sum(pool.map(plain, [address] * 2, [wanted * share] * 2))
                rates[kind].append(2 * share / (time.perf_counter() - began))
            first = 300 * turn % max(1, len(names) - 250)
            lots = [names[first + 150 * at :][:100] for at in range(2)]
            began = time.perf_counter()
            done = sum(pool.map(installs, [hub] * 2, lots))
            rates["verified by a client"].append(done / (time.perf_counter() - began))
    for kind, found in rates.items():
        print(f"installs per second, {kind}: {statistics.median(found):.0f}")
    ratios = [hub / flat for hub, flat in zip(rates["hub"], rates["plain files"], strict=True)]
    chance = random.Random(1)
    samples = sorted(
        statistics.median(chance.choices(ratios, k=turns)) for _ in range(_BOOTSTRAP_SAMPLES)
    )
    low, high = (samples[int(_BOOTSTRAP_SAMPLES * share)] for share in (0.025, 0.975))
    print(f"hub beside plain files, {turns} turns: {statistics.median(ratios):.2f}, "
          f"95 % interval {low:.2f} to {high:.2f}")  # fmt: skip


if __name__ == "__main__":
    main()
