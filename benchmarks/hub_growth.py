"""What one release and one revocation cost in a hub of 2,000, 20,000 or 200,000 skills.

    PYTHONPATH=src python benchmarks/hub_growth.py --corpus ../shared/corpus 2000 20000 200000

One run on one machine; prints a row for each size. The skills are the names and descriptions of the
corpus, repeated under new names; their archives and signatures do not exist, since nothing reads
them. Such a hub is written through the library in a few minutes. Then one real skill of its largest
publisher is published, built, installed and revoked with the functions that the commands use:

- files and bytes that the storage reads and writes for `publish` with `hub build`, and for
  `hub revoke` with `hub build`, pages included; seconds of CPU of all processes
- requests and bytes of a cold install, and of the list of `search --hub`
"""

from __future__ import annotations

import argparse
import itertools
import json
import lzma
import os
import random
import re
import resource
import subprocess
import tempfile
from base64 import b64encode
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from satchel.hub import ledger as ledger_module
from satchel.hub.build import build, create_hub, write_files
from satchel.hub.ledger import HubLedger, batches, open_ledger
from satchel.hub.publish import publish, read_draft, revoke
from satchel.hub.storage import Storage, open_storage
from satchel.store.download import FileReader
from satchel.store.hub_client import format as hub_format
from satchel.store.hub_client import hubs
from satchel.store.hub_client.client import Hub, HubClient
from satchel.store.signing import SshKey

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

NAME = "skills.bench.example"
SKILL = "measured-skill"
COLUMNS = ("files read", "bytes read", "files written", "bytes written", "CPU")


class CountingStorage(Storage):
    """Counts the files that another storage reads and writes."""

    def __init__(self, inner: Storage) -> None:
        super().__init__(inner.name)
        self._inner = inner
        self.counts: Counter[str] = Counter()

    def get(self, path: str, limit: int) -> bytes | None:
        """Read a file; one that does not exist is not counted."""
        data = self._inner.get(path, limit)
        if data is not None:
            self._count("read", data)
        return data

    def put(self, path: str, data: bytes) -> None:
        """Write a file."""
        self._count("written", data)
        self._inner.put(path, data)

    def create(self, path: str, data: bytes) -> bool:
        """Write a file that must not exist."""
        self._count("written", data)
        return self._inner.create(path, data)

    def _count(self, kind: str, data: bytes) -> None:
        self.counts[f"files {kind}"] += 1
        self.counts[f"bytes {kind}"] += len(data)


def real_heads(corpus: Path) -> Iterator[tuple[str, str, str]]:
    """Yield publisher, name and description of skills without end, repeated with new names."""
    heads: list[tuple[str, str, str]] = []
    with lzma.open(corpus / "skills.jsonl.xz", "rt", encoding="utf-8") as lines:
        for line in lines:
            row = json.loads(line)
            publisher = _word(row["source_repo"].partition("/")[0])[:30].strip("-") or "unknown"
            description = " ".join(row["description"].split())[:1_000]
            heads.append((publisher, _word(row["name"])[:50].strip("-") or "skill", description))
            yield heads[-1]
    for turn in itertools.count(2):
        for publisher, name, description in heads:
            yield f"{publisher}-{turn}", name, description


def _word(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def write_hub(storage: Storage, key: SshKey, corpus: Path, count: int) -> str:
    """Write a hub with many skills, whose signatures are random; returns its largest publisher."""
    chance = random.Random(38)
    descriptions: dict[str, str] = {}
    for publisher, name, description in real_heads(corpus):
        number = 1
        full_name = f"{publisher}/{name}"
        while full_name in descriptions:
            number += 1
            full_name = f"{publisher}/{name}-{number}"
        descriptions[full_name] = description
        if len(descriptions) == count:
            break

    def inspect(release: hub_format.HubRelease) -> hub_format.Row:
        about = descriptions[release.name]
        return {"description": about, "license": "MIT", "scan": "no findings"}

    def signature() -> str:
        return b64encode(chance.randbytes(64)).decode()

    sizes = Counter(name.partition("/")[0] for name in descriptions)
    changes: list[hub_format.Row] = [
        {"type": "publisher", "publisher": publisher, "key": key.public, "previous": "",
         "signature": signature()}
        for publisher in sizes
    ]  # fmt: skip
    changes += [
        {"type": "release", "name": name, "version": "1.0.0",
         "tree": f"sha256:{chance.randbytes(32).hex()}", "blob": chance.randbytes(32).hex(),
         "size": 10_000, "signature": signature()}
        for name in descriptions
    ]  # fmt: skip
    create_hub(storage, NAME, key)
    verify, module = ledger_module.signed_by, cast("Any", ledger_module)
    module.signed_by = lambda *_: True  # pyright: ignore[reportUnknownLambdaType]
    ledger = HubLedger(storage, inspect=inspect)
    for batch in batches(changes):
        ledger.append(lambda batch=batch: batch)
    module.signed_by = verify
    state = write_files(storage, ledger)
    sign: Callable[[bytes, str], str] = lambda data, space: key.sign([data], space)[0]  # noqa: E731
    storage.put(hub_format.STATE, hub_format.render_state(state, sign))
    return sizes.most_common(1)[0][0]


def measured(address: str, call: Callable[[Storage], object]) -> dict[str, float]:
    """Call with a storage; returns the values of `COLUMNS`."""
    before = _cpu_seconds()
    with open_storage(address) as inner:
        storage = CountingStorage(inner)
        call(storage)
    return {**storage.counts, "CPU": _cpu_seconds() - before}


def _cpu_seconds() -> float:
    usages = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def requests(call: Callable[[], object]) -> str:
    """Call; returns how many files a reader requested, and their bytes."""
    sizes: list[int] = []
    reader_class: Any = FileReader
    read = reader_class.read

    def counted(reader: Any, path: str, *options: Any, **named: Any) -> bytes:
        data = read(reader, path, *options, **named)
        sizes.append(len(data))
        return data

    reader_class.read = counted
    try:
        call()
    finally:
        reader_class.read = read
    return f"{len(sizes)} requests, {sum(sizes):,} bytes"


def measure(folder: Path, corpus: Path, count: int) -> None:
    """Write a hub, and print what is measured in it."""
    words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "hub", "-f", folder / "key"]
    subprocess.run(words, check=True)
    key, address = SshKey(str(folder / "key")), str(folder / "hub")
    before = _cpu_seconds()
    with open_storage(address, create=True, durable=False) as storage:
        publisher = write_hub(storage, key, corpus, count)
    print(f"## {count:,} skills, written with {_cpu_seconds() - before:.0f} s of CPU", flush=True)
    source = folder / SKILL
    source.mkdir()
    text = f"---\nname: {SKILL}\ndescription: Is measured. Use it for figures.\n---\nMeasure.\n"
    (source / "SKILL.md").write_text(text)

    def release(storage: Storage, version: str = "1.0.0") -> None:
        draft = read_draft(str(source), publisher, version)
        publish(open_ledger(storage), [draft], key)
        build(storage, key, pages=True)

    def forbid(storage: Storage) -> None:
        ledger = open_ledger(storage)
        tree = ledger.releases(f"{publisher}/{SKILL}")["1.1.0"].tree
        revoke(ledger, tree, "sends files away", key)
        ledger.releases_of(tree)
        build(storage, key, pages=True)

    results = {"release of a new skill": measured(address, release)}
    hub = Hub(NAME, address, key.public)

    def install() -> None:
        caches = str(folder / "state"), str(folder / "cache")
        source = hubs.Hubs([hub], *caches).requested(f"{publisher}/{SKILL}", base="/")
        assert source is not None
        with source.fetch():
            pass

    cold = requests(install)
    (source / "SKILL.md").write_text(text + "More.\n")
    results["release of a new version"] = measured(address, lambda one: release(one, "1.1.0"))
    results["revocation"] = measured(address, forbid)
    for title, values in results.items():
        row = ", ".join(
            f"{column} {values.get(column, 0):,.2f}".removesuffix(".00") for column in COLUMNS
        )
        print(f"{title}: {row}", flush=True)
    print(f"cold install: {cold}")
    limit = hubs.MAX_LISTED_SKILLS
    if count > limit:
        print(f"`search --hub` refuses hubs above {limit:,} skills; without this limit:")
        hubs.MAX_LISTED_SKILLS = 10 * count
    print(f"search --hub: {requests(lambda: hubs.listed_skills(HubClient(hub)))}")
    hubs.MAX_LISTED_SKILLS = limit


def main() -> None:
    """Measure hubs of each size."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--corpus", type=Path, required=True)
    parser.add_argument("sizes", type=int, nargs="*", default=[2_000, 20_000])
    options = parser.parse_args()
    print(f"{os.cpu_count()} processors; load {os.getloadavg()[0]:.1f}")
    for count in options.sizes:
        with tempfile.TemporaryDirectory(prefix="hub-growth-") as folder:
            measure(Path(folder), options.corpus, count)


if __name__ == "__main__":
    main()
