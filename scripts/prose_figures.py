"""Measures sentences of the documentation that readers stumble over.

    python scripts/prose_figures.py [--list] [docs]

Counted in prose, which is text outside code, tables, headings and lists: sentences of more than 30
words, sentences without a verb, and sentences that begin with "who". Verbs are found by a list, so
a sentence whose only verb is missing from it is counted wrongly; add the verb.
"""

from __future__ import annotations

import argparse
import re
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_WORDS = 30
LEFT_OUT = ("decisions", "zh", "benchmarks", "reference", "skills")
"""Folders that are not in the navigation, not English, or generated."""
_VERBS = tomllib.loads(Path(__file__).with_name("verbs.toml").read_text(encoding="utf-8"))
BASES, FORMS = frozenset(_VERBS["bases"].split()), frozenset(_VERBS["forms"].split())


class ProseFigures(NamedTuple):
    """Counts over all pages."""

    sentences: int
    long: int
    without_verb: int
    begins_with_who: int


def pages(docs: Path) -> Iterator[Path]:
    """English pages that people write."""
    for path in sorted(docs.rglob("*.md")):
        name = path.relative_to(docs).as_posix()
        if not name.startswith(LEFT_OUT) and not name.endswith("zh.md"):
            yield path


def sentences(text: str) -> Iterator[str]:
    """The sentences of the paragraphs of a page."""
    text = re.sub(r"\A---\n.*?\n---\n", "", text, flags=re.DOTALL)
    text = re.sub(r"^( *)(```|~~~).*?^\1\2.*?$", "\n", text, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"<!--.*?-->|<(style|script|svg).*?</\1>", "\n", text, flags=re.DOTALL)
    for paragraph in re.split(r"\n\s*\n", text):
        lines = paragraph.strip().splitlines()
        if not lines or re.match(
            r"#|\||[-*+] |\d+\. |!!!|\?\?\?|===|<|!\[|:|\[\^", lines[0].strip()
        ):
            continue
        plain = re.sub(r"`[^`]*`", "code", " ".join(line.strip() for line in lines))
        plain = re.sub(r"!?\[([^\]]*)\]\([^)]*\)(\{[^}]*\})?", r"\1", plain)
        plain = re.sub(r"[*_]{1,2}(\S[^*_]*)[*_]{1,2}", r"\1", plain)
        yield from re.split(r"(?<=[.!?])[\"')]?\s+(?=[A-Z\"(]|code)", plain)


def words(sentence: str) -> list[str]:
    """Its words in lower case."""
    return re.findall(r"[a-z][a-z'-]*", sentence.lower().replace("’", "'"))


def is_verb(word: str) -> bool:
    """Whether a word is in the lists, in any form."""
    if word in BASES or word in FORMS:
        return True
    for ending, instead in (
        ("ies", "y"), ("ied", "y"), ("es", ""), ("s", ""), ("ed", ""), ("ed", "e"), ("d", ""),
        ("ing", ""), ("ing", "e"),
    ):  # fmt: skip
        stem = word.removesuffix(ending)
        if stem != word and (
            stem + instead in BASES or (stem[:-1] in BASES and stem[-1:] == stem[-2:-1])
        ):
            return True
    return False


def faults(sentence: str) -> Iterator[str]:
    """The names of the patterns that it has."""
    parts = words(sentence)
    if len(parts) > MAX_WORDS:
        yield "long"
    introduces = sentence.endswith(":")
    if len(parts) > 1 and not introduces and not any(is_verb(word) for word in parts):
        yield "without_verb"
    if parts[:1] in (["who"], ["whoever"]) and not sentence.endswith("?"):
        yield "begins_with_who"


def measure(docs: Path) -> tuple[ProseFigures, list[tuple[Path, str, str]]]:
    """Count all patterns; returns also each place."""
    count = 0
    places: list[tuple[Path, str, str]] = []
    for path in pages(docs):
        for sentence in sentences(path.read_text(encoding="utf-8")):
            count += 1
            places += [(path, fault, sentence) for fault in faults(sentence)]
    totals = (sum(fault == name for _, fault, _ in places) for name in ProseFigures._fields[1:])
    return ProseFigures(count, *totals), places


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description="Measures sentences that readers stumble over.")
    parser.add_argument("docs", nargs="?", type=Path, default=Path("docs"))
    parser.add_argument("--list", action="store_true", help="print the sentences")
    options = parser.parse_args()
    figures, places = measure(options.docs)
    if options.list:
        for path, fault, sentence in places:
            print(f"{path}: {fault}: {sentence}")
    for name, value in figures._asdict().items():
        print(f"{name:16} {value:6,}")


if __name__ == "__main__":
    main()
