"""Builds the site of the documentation: English at its root, Chinese below `zh/`.

    python scripts/docs_site.py [--clean]        # writes site/
    python scripts/docs_site.py --list           # every Chinese page, and whether it is stale
    python scripts/docs_site.py --current PAGE…  # records that a page translates today's English

`NAME.zh.md` is the Chinese version of `NAME.md`. The field `source` of its front matter is the
start of the digest of the English text that was translated. Where the English page has changed
since, the Chinese site says so on the page; a page without a Chinese version appears in English
with a note. Headings of a translation get the anchors of the English ones, so links between pages
work in both languages.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import tomlkit
from markdown.extensions.toc import slugify

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[1]
LABELS = Path(__file__).with_suffix(".toml")
"""Chinese words of the navigation, by the English ones."""
STALE = '!!! warning "本页内容可能已过时"\n\n    英文版在翻译之后有改动，请以[英文版]({link})为准。'
MISSING = '!!! note "本页暂无中文版"\n\n    以下是英文原文。'
_SOURCE = re.compile(r"\A---\n(?:.*\n)*?source: (\w+)\n(?:.*\n)*?---\n")
_HEADING = re.compile(r"(#{1,6}) +(.+?)(?: *\{ *#([\w-]+) *\})?$")


class Translation(NamedTuple):
    """A Chinese page and the English page that it translates, as paths below docs/."""

    path: Path
    source: Path
    stale: bool


def translations(docs: Path) -> list[Translation]:
    """Every Chinese page.

    Raises:
        ValueError: One has no English page, or its front matter has no `source`.
    """
    pages: list[Translation] = []
    for path in sorted(docs.rglob("*.zh.md")):
        source = path.with_name(path.name.replace(".zh.md", ".md"))
        recorded = _SOURCE.match(path.read_text(encoding="utf-8"))
        if not source.exists() or not recorded:
            raise ValueError(f"{path}: no English page beside it, or no `source: DIGEST` on top")
        names = path.relative_to(docs), source.relative_to(docs)
        pages.append(Translation(*names, stale=recorded[1] != digest(source)))
    return pages


def digest(page: Path) -> str:
    """The start of the SHA-256 of a page's text."""
    return hashlib.sha256(page.read_bytes()).hexdigest()[:12]


def headings(text: str) -> Iterator[tuple[int, str, str]]:
    """Line number, level (as `##`) and anchor of each heading outside code blocks."""
    fence, seen = "", set[str]()
    for number, line in enumerate(text.splitlines()):
        mark = re.match(r" *(`{3,}|~{3,})", line)
        if mark:
            fence = "" if fence == mark[1] else fence or mark[1]
        heading = None if fence else _HEADING.match(line)
        if heading:
            words = re.sub(r"`|\*|!?\[([^\]]*)\]\([^)]*\)", r"\1", heading[2])
            name = anchor = heading[3] or slugify(words, "-")
            count = 0
            while anchor in seen:
                count += 1
                anchor = f"{name}_{count}"
            seen.add(anchor)
            yield number, heading[1], anchor


def chinese_page(text: str, source: str, note: str) -> str:
    """A page of the Chinese site: Chinese links, English anchors, a note below the title."""
    lines = text.splitlines()
    ours, theirs = list(headings(text)), list(headings(source))
    if [level for _, level, _ in ours] == [level for _, level, _ in theirs]:
        for (number, _, _), (_, _, anchor) in zip(ours, theirs, strict=True):
            lines[number] = re.sub(r" *\{ *#[\w-]+ *\}$", "", lines[number]) + f" {{ #{anchor} }}"
    if note and ours:
        lines[ours[0][0]] += f"\n\n{note}"
    return re.sub(r"\.zh\.md(?=[)#])", ".md", "\n".join(lines) + "\n")


def write_chinese_docs(docs: Path) -> None:
    """Turn a copy of docs/ into the pages of the Chinese site."""
    pages = translations(docs)
    english = {path.relative_to(docs) for path in docs.rglob("*.md")}
    english -= {page.path for page in pages} | {page.source for page in pages}
    for name in english:
        text = (docs / name).read_text(encoding="utf-8")
        (docs / name).write_text(chinese_page(text, "", MISSING), encoding="utf-8")
    for page in pages:
        text = (docs / page.path).read_text(encoding="utf-8")
        source = (docs / page.source).read_text(encoding="utf-8")
        folder = "" if page.source.stem == "index" else f"{page.source.stem}/"
        address = (page.source.parent / folder).as_posix()
        up = "../" * len(Path(address).parts)
        note = STALE.format(link=f"{up}../{address}/") if page.stale else ""
        (docs / page.source).write_text(chinese_page(text, source, note), encoding="utf-8")
        (docs / page.path).unlink()


def chinese_settings(root: Path) -> dict[str, Any]:
    """zensical.toml for the Chinese site."""
    settings = tomllib.loads((root / "zensical.toml").read_text(encoding="utf-8"))
    labels: dict[str, str] = tomllib.loads(LABELS.read_text(encoding="utf-8"))
    translated = {page.source.as_posix() for page in translations(root / "docs")}

    def in_chinese(entry: Any) -> Any:
        if isinstance(entry, list):
            return [in_chinese(inner) for inner in cast("list[Any]", entry)]
        if isinstance(entry, str):
            return entry
        ((label, target),) = entry.items()
        if isinstance(target, str) and target in translated:
            return target  # the navigation shows the title of the page
        return {labels.get(label, label): in_chinese(target)}

    project = settings["project"]
    project["nav"] = in_chinese(project["nav"])
    project["site_description"] = labels[project["site_description"]]
    project["theme"]["language"] = "zh"
    for palette in project["theme"]["palette"]:
        palette["toggle"]["name"] = labels[palette["toggle"]["name"]]
    for language in project["extra"]["alternate"]:
        language["link"] = "./" if language["lang"] == "zh" else "../"
    # A stale translation may lack a heading that another page links to.
    project["validation"]["invalid_link_anchors"] = False
    return settings


def build(root: Path, *options: str) -> None:
    """Build both sites of the project in `root`; a broken link fails, a stale page is named."""
    command = [sys.executable, "-m", "zensical", "build", "--strict", *options]
    subprocess.run(command, cwd=root, check=True)
    for page in translations(root / "docs"):
        if page.stale:
            print(f"docs/{page.path} is older than docs/{page.source}")
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        shutil.copytree(root / "docs", copy / "docs")
        write_chinese_docs(copy / "docs")
        settings = tomlkit.dumps(chinese_settings(root))
        (copy / "zensical.toml").write_text(settings, encoding="utf-8")
        subprocess.run(command, cwd=copy, check=True)
        shutil.copytree(copy / "site", root / "site" / "zh", dirs_exist_ok=True)


def main() -> None:
    """Build the site, or list or mark translations."""
    parser = argparse.ArgumentParser(description="Builds the documentation in both languages.")
    parser.add_argument("--clean", action="store_true", help="without the cache of earlier builds")
    parser.add_argument("--list", action="store_true", help="print the Chinese pages")
    parser.add_argument("--current", nargs="+", type=Path, metavar="PAGE")
    options = parser.parse_args()
    if options.list:
        for page in translations(ROOT / "docs"):
            print(f"{'stale  ' if page.stale else 'current'}  docs/{page.path}")
    elif options.current:
        for path in options.current:
            source = path.with_name(path.name.replace(".zh.md", ".md"))
            text = path.read_text(encoding="utf-8")
            changed = re.sub(r"(?m)^source: \w+$", f"source: {digest(source)}", text, count=1)
            path.write_text(changed, encoding="utf-8")
    else:
        build(ROOT, *(["--clean"] if options.clean else []))


if __name__ == "__main__":
    main()
