"""Writes the skill corpora of the benchmarks to disk.

Every corpus is a folder with `skills/` (what a library is pointed at) and `truth.json` beside it
(what is in there, so that a fast wrong answer is seen as wrong). `truth.json` is written last:
a corpus without it is unfinished and is written anew.

    python benchmarks/corpora.py synthetic --count 10000 OUT
    python benchmarks/corpora.py raw OUT          # real frontmatters, exactly as written
    python benchmarks/corpora.py raw-grouped OUT  # the same, no folder renamed
    python benchmarks/corpora.py real OUT         # real names and descriptions
    python benchmarks/corpora.py broken --count 1100 OUT

Corpora are never committed: they are large, and the real ones are other people's words.
"""

from __future__ import annotations

import argparse
import json
import lzma
import random
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import broken

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

REAL = Path(__file__).resolve().parents[2] / "shared" / "corpus"
"""Where the real skills are kept, beside the checkout; absent on most machines."""

MAX_REAL_BYTES = 8192
"""Real files are cut here: discovery reads heads, and 40,000 long bodies only fill the disk."""

UNPRINTABLE = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff\ud800-\udfff]")

VOCABULARY = (
    "review code quality parse excel report deploy service cluster query database schema test "
    "generate image audio convert when user asks analyse security risk budget plan write docs"
)

BODY = "# Guide\n\n" + "Step: do the thing with care, check it, and say what was done.\n" * 63


class Row(NamedTuple):
    """One folder of a corpus, and what a correct reader gets out of it."""

    folder: str
    name: str
    description: str | None
    """None if unknown (the file is broken, or PyYAML rejects it)."""
    kind: str = "healthy"


def synthetic(skills: Path, count: int, seed: int) -> Iterator[Row]:
    """Write skills that are all alike: the same fields, 150-400 characters, 4 KB of body."""
    chance = random.Random(seed)
    for number in range(count):
        name = f"skill-{number:06d}"
        description = _sentence(chance)
        _write(skills / name, _skill_text(name, description).encode())
        yield Row(name, name, description)


def raw(skills: Path, count: int, source: Path) -> Iterator[Row]:
    """Write the real frontmatters byte for byte, with a body up to the size the file had."""
    taken: set[str] = set()
    for row in _rows(source / "raw-frontmatter.jsonl.xz", count):
        folder = _unique(str(row["dir_name"]), str(row["id"]), taken)
        text = str(row["raw"])
        head = text.encode("utf-8", "surrogatepass")
        if not head.endswith(b"\n"):
            head += b"\n"
        _write(skills / folder, _padded(head, int(row["bytes"])))
        name, description = _by_yaml(text)
        yield Row(folder, name or folder, description)


def raw_grouped(skills: Path, count: int, source: Path) -> Iterator[Row]:
    """The same with the authors' folder names; duplicates go to another group.

    `raw` renames folders with a duplicate name, so that name and folder differ. Here `name` equals
    the
    folder wherever it did originally.
    """
    seen: dict[str, int] = {}
    for row in _rows(source / "raw-frontmatter.jsonl.xz", count):
        plain = str(row["dir_name"]).replace("/", "-").replace("\0", "").strip(". ") or "unnamed"
        group = seen.get(plain.casefold(), 0)
        seen[plain.casefold()] = group + 1
        folder = f"group-{group:04d}/{plain}"
        text = str(row["raw"])
        head = text.encode("utf-8", "surrogatepass")
        if not head.endswith(b"\n"):
            head += b"\n"
        _write(skills / folder, _padded(head, int(row["bytes"])))
        name, description = _by_yaml(text)
        yield Row(folder, name or plain, description)


def real(skills: Path, count: int, source: Path) -> Iterator[Row]:
    """Write real names, descriptions and openings; the frontmatter itself is written by us."""
    taken: set[str] = set()
    for row in _rows(source / "skills.jsonl.xz", count):
        path = f"{row['source_repo']}/{row['path']}"
        folder = _unique(str(row["dir_name"]), str(row["id"]), taken)
        name, description = str(row["name"]), str(row["description"])
        lines = [f"name: {_quoted(name)}", f"description: {_quoted(description)}"]
        if row.get("license"):
            lines.append(f"license: {_quoted(str(row['license']))}")
        lines.append(f"metadata:\n  path: {_quoted(path)}")
        head = "---\n" + "\n".join(lines) + "\n---\n\n" + str(row["body_head"]) + "\n"
        _write(skills / folder, _padded(head.encode("utf-8", "surrogatepass"), int(row["bytes"])))
        yield Row(folder, name, description)


def with_broken(
    skills: Path, count: int, seed: int, share: float, kinds: tuple[str, ...]
) -> Iterator[Row]:
    """Write the synthetic corpus and break a share of it, each kind in its turn."""
    rows = list(synthetic(skills, count, seed))
    total = max(1, round(count * share))
    step = count // total
    for turn in range(total):
        place, kind = turn * step + step // 2, kinds[turn % len(kinds)]
        row = rows[place]
        shutil.rmtree(skills / row.folder)
        assert row.description is not None
        wanted = broken.write(kind, skills / row.folder, row.name, row.description)
        rows[place] = row._replace(kind=kind, description=wanted)
    yield from rows


def ensure(out: Path, write: Callable[[Path], Iterator[Row]]) -> list[Row]:
    """Write a corpus into `out` unless it is already there, and return its truth."""
    truth = out / "truth.json"
    if truth.exists():
        return [Row(*row) for row in json.loads(truth.read_text("utf-8"))]
    shutil.rmtree(out / "skills", ignore_errors=True)
    (out / "skills").mkdir(parents=True)
    rows = list(write(out / "skills"))
    truth.write_text(json.dumps(rows), "utf-8")
    return rows


def ensure_synthetic(out: Path, count: int, seed: int = 7) -> list[Row]:
    """Write the corpus that most figures are about."""
    return ensure(out, lambda skills: synthetic(skills, count, seed))


def _sentence(chance: random.Random) -> str:
    length = chance.randint(150, 399)
    known = VOCABULARY.split()
    words = " ".join(chance.choice(known) for _ in range(90))
    return words[:length].strip() + "."


def _skill_text(name: str, description: str) -> str:
    return (
        f"---\nname: {name}\ndescription: {description}\nlicense: MIT\n"
        f'metadata:\n  author: someone\n  version: "1.0"\n---\n\n{BODY}'
    )


def _quoted(text: str) -> str:
    """A JSON string, which is a YAML string too: whatever is in a description survives the way."""
    # Escapes only characters that YAML rejects: its C loader refuses escaped emoji.
    return json.dumps(text, ensure_ascii=UNPRINTABLE.search(text) is not None)


def _write(folder: Path, content: bytes) -> None:
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_bytes(content)


def _padded(head: bytes, size: int) -> bytes:
    missing = min(size, MAX_REAL_BYTES) - len(head)
    if missing <= 0:
        return head
    filler = BODY.encode()
    return head + (filler * (missing // len(filler) + 1))[:missing]


def _unique(wanted: str, key: str, taken: set[str]) -> str:
    """The folder's own name for the first who has it; later ones carry the key of their path."""
    plain = wanted.replace("/", "-").replace("\0", "").strip(". ") or "unnamed"
    folder = plain if plain.casefold() not in taken else f"{plain[:180]}--{key}"
    taken.add(folder.casefold())
    return folder


def _rows(path: Path, count: int) -> Iterator[dict[str, Any]]:
    if not path.exists():
        raise SystemExit(f"error: No corpus at `{path}`\n\nhint: Pass its folder with `--source`")
    with lzma.open(path, "rt", encoding="utf-8") as lines:
        for number, line in enumerate(lines):
            if count and number >= count:
                return
            yield json.loads(line)


def _by_yaml(text: str) -> tuple[str | None, str | None]:
    """What PyYAML makes of a frontmatter: the truth wherever it has an opinion."""
    import yaml

    lines = text.lstrip("\ufeff").replace("\r\n", "\n").split("\n")
    body = lines[1:]
    closing = next((i for i, line in enumerate(body) if line.rstrip() == "---"), len(body))
    try:
        data = yaml.load("\n".join(body[:closing]), Loader=yaml.CSafeLoader)
    except (yaml.YAMLError, ValueError, RecursionError, TypeError):
        return None, None
    if not isinstance(data, dict):
        return None, None
    name, description = data.get("name"), data.get("description")  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]
    return (
        name if isinstance(name, str) else None,
        description if isinstance(description, str) else None,
    )


def main() -> None:
    """Write one corpus where the command line says."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("kind", choices=["synthetic", "raw", "raw-grouped", "real", "broken"])
    parser.add_argument("out", type=Path, help="folder that gets `skills/` and `truth.json`")
    parser.add_argument("--count", type=int, default=0, help="how many (0: all there are)")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--source", type=Path, default=REAL, help="folder of the real corpus")
    parser.add_argument("--share", type=float, default=0.01, help="broken share")
    options = parser.parse_args()
    count = options.count or (0 if options.kind in ("raw", "raw-grouped", "real") else 10_000)
    writers: dict[str, Callable[[Path], Iterator[Row]]] = {
        "synthetic": lambda skills: synthetic(skills, count, options.seed),
        "raw": lambda skills: raw(skills, count, options.source),
        "raw-grouped": lambda skills: raw_grouped(skills, count, options.source),
        "real": lambda skills: real(skills, count, options.source),
        "broken": lambda skills: with_broken(
            skills, count, options.seed, options.share, tuple(broken.KINDS)
        ),
    }
    rows = ensure(options.out, writers[options.kind])
    print(f"{len(rows)} skills in {options.out / 'skills'}")


if __name__ == "__main__":
    main()
