"""Launch plans of the scripts of real skills: how many have one, and why the others have none.

Example:
    python benchmarks/scripts.py
    python benchmarks/scripts.py --skills FOLDER --out FILE

A script is a file below a folder `scripts`, at any depth, with the ending of Python, a shell or
JavaScript (also TypeScript), or with a shebang. Nothing is run and nothing is installed: whether
the packages of a plan can be installed is not measured. The plan of a Python script depends on the
Python that runs this, because of `requires-python`.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import tarfile
import tempfile
from collections import Counter
from typing import TYPE_CHECKING, Any

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path[:0] = [os.path.join(ROOT, "benchmarks"), os.path.join(ROOT, "src")]

from script_tables import script_plans, script_refusals  # noqa: E402 - found through the line above

from satchel.errors import SatchelError  # noqa: E402 - the same
from satchel.runners.scripts import plan_script  # noqa: E402 - the same

if TYPE_CHECKING:
    from collections.abc import Iterator

REAL = os.path.join(os.path.dirname(ROOT), "shared", "corpus", "skills-sample.tar.xz")
LANGUAGES = {
    "Python": (".py",),
    "shell": (".sh", ".bash"),
    "JavaScript": (".js", ".mjs", ".cjs", ".ts", ".mts", ".cts"),
}
_SHEBANGS = {
    "Python": re.compile(rb"#!.*\b(?:python[\d.]*|uv)\b"),
    "shell": re.compile(rb"#!.*\b(?:ba|da|z|k)?sh\b"),
    "JavaScript": re.compile(rb"#!.*\b(?:node|tsx|bun|deno)\b"),
}


def skills_in(folder: str) -> Iterator[str]:
    """The folders with a SKILL.md, without those that lie in another skill."""
    for here, folders, names in os.walk(folder):
        if any(name.lower() == "skill.md" for name in names):
            folders.clear()
            yield here


def scripts_of(skill: str) -> Iterator[tuple[str, str]]:
    """The scripts of a skill: path below it, and language."""
    for here, folders, names in os.walk(skill):
        folders.sort()
        inside = os.path.relpath(here, skill).split(os.sep)
        for name in sorted(names) if "scripts" in inside else ():
            path = os.path.join(here, name)
            language = _language(path)
            if language:
                yield "/".join((*inside, name)), language


def _language(path: str) -> str:
    if os.path.islink(path) or path.endswith(".d.ts"):
        return ""
    with open(path, "rb") as file:
        head = file.readline(200)
    if head.startswith(b"#!"):
        named = (name for name, shebang in _SHEBANGS.items() if shebang.match(head))
        return next(named, "other")
    ending = os.path.splitext(path)[1].lower()
    return next((name for name, endings in LANGUAGES.items() if ending in endings), "")


def survey(folder: str) -> dict[str, Any]:
    """The counts for all skills below a folder."""
    skills = with_scripts = 0
    sources: dict[str, Counter[str]] = {}
    refusals: Counter[str] = Counter()
    for skill in skills_in(folder):
        skills += 1
        scripts = list(scripts_of(skill))
        with_scripts += bool(scripts)
        for path, language in scripts:
            try:
                source = str(plan_script(skill, path).source)
            except SatchelError as exc:
                source = "refused"
                refusals[re.sub(r"`[^`]*`", "`…`", exc.message.split("\n")[0].rstrip(":"))] += 1
            sources.setdefault(language, Counter())[source] += 1
    return {
        "skills": skills,
        "with_scripts": with_scripts,
        "python": "{}.{}".format(*sys.version_info),
        "languages": {
            name: dict(sources[name]) for name in (*LANGUAGES, "other") if name in sources
        },
        "reasons": dict(refusals.most_common()),
    }


def main() -> None:
    """Count, print the tables, and keep the figures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--skills", help="a folder with skills; the real ones beside the checkout")
    parser.add_argument("--out", help="where the figures are written as JSON")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.skills
        if not folder:
            folder = temporary
            with tarfile.open(REAL) as archive:
                archive.extractall(folder, filter="data")
        figures = survey(folder)
    for table in (script_plans(figures), script_refusals(figures)):
        print("\n".join("\t".join(row) for row in table), end="\n\n")
    if options.out:
        with open(options.out, "w", encoding="utf-8") as file:
            file.write(json.dumps(figures, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
