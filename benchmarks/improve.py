"""`satchel improve` on 30 real skills: held-out gain, and losses of the others.

    python benchmarks/improve.py --out benchmarks/results/improve.json

`improve_cases.json` has eight requests for each skill, written from its description in other words;
descriptions and names stay in the corpus. `improve` searches with four of them and is judged by the
other four. Of each neighbour it sees four too, and losses are counted over all eight. The library
has the 30 skills and `--others` real ones without cases.

There is no model here: the proposer is a program that recombines words of the failed requests, so
that the figures are a lower bound of what a model may reach, and say nothing about its wording. The
program also chooses at the end, and always this skill: that step is not measured.
"""

from __future__ import annotations

import argparse
import json
import lzma
import random
import re
import statistics
import sys
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Any

from corpora import REAL
from measure import machine
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import FunctionModel

from satchel import Satchel
from satchel.evals.improvement import DescriptionSearch
from satchel.testing import make_skill

CASES = Path(__file__).with_name("improve_cases.json")


def proposer(seed: int) -> FunctionModel:
    """Appends words that failed requests have and the skill lacks, in random choice."""
    source = random.Random(seed)

    def answer(messages: Any, info: Any) -> ModelResponse:
        text = str(messages[0].parts[-1].content)
        if info.output_tools:
            name = re.search(r"- (.+?): ", text)
            count = len(re.findall(r"(?m)^\d+\. ", text))
            names = {"response": [name[1] if name else ""] * count}
            return ModelResponse([ToolCallPart(info.output_tools[0].name, names)])
        failed = json.loads(text.partition("What fails with it:\n")[2])
        description = text.partition("Its description now:\n")[2].partition("\n")[0]
        words = {word: 0 for row in failed for word in row.get("words_that_the_skill_lacks", ())}
        chosen = (
            source.sample(sorted(words), k=source.randint(1, max(len(words), 1))) if words else []
        )
        phrases = [row["request"] for row in failed if row.get("should_select_this_skill")]
        addition = ", ".join(chosen)
        if phrases and source.random() < 0.5:
            addition = source.choice(phrases).rstrip(".?!").lower()
        return ModelResponse([TextPart(f"{description.rstrip('. ')}. Also for {addition}.")])

    return FunctionModel(answer, model_name="words")


def read_skills(wanted: set[str], others: int) -> list[dict[str, Any]]:
    """The skills of the cases, and others of the corpus."""
    rows: list[dict[str, Any]] = []
    rest: list[dict[str, Any]] = []
    with lzma.open(REAL / "skills.jsonl.xz", "rt", encoding="utf-8") as file:
        for line in file:
            row = json.loads(line)
            (rows if row["id"] in wanted else rest).append(row)
    return rows + random.Random(30).sample(rest, others)


def write_cases(folder: Path, cases: dict[str, list[str]], whole: str = "") -> None:
    """Write the trigger tests: every second request, all of `whole`, all of all with `*`."""
    for name, prompts in cases.items():
        chosen = prompts if whole in (name, "*") else prompts[::2]
        (folder / name / "evals").mkdir(exist_ok=True)
        (folder / name / "evals/triggers.yaml").write_text(json.dumps({"should": chosen}))


def open_project(project: Path) -> Satchel:
    """The library, without other skills."""
    return Satchel.for_project(project, trust="all", builtin=False, packaged=False)


def improve_skill(
    folder: Path, cases: dict[str, list[str]], name: str, seed: int
) -> dict[str, Any]:
    """Improve one skill; `lost` are prompts of neighbours, half of which the search did not see."""
    project = folder.parents[1]
    with closing(open_project(project)) as satchel:
        skill = satchel.get_skill(name)
        assert skill is not None
        write_cases(folder, cases, name)
        result = DescriptionSearch(satchel, skill, proposer(seed)).run()
        write_cases(folder, cases, "*")
        judge = DescriptionSearch(satchel, skill, proposer(seed))
        before, after = judge.original.neighbours, judge.trial(result.proposal).neighbours
    print(name, result.seen, result.held_out, file=sys.stderr)
    return {
        "seen": result.seen,
        "held_out": result.held_out,
        "is_better": result.is_better,
        "requests": result.requests,
        "neighbours": len(before),
        "lost": sum(was and not now for (_, was), (_, now) in zip(before, after, strict=True)),
        "won": sum(now and not was for (_, was), (_, now) in zip(before, after, strict=True)),
    }


def measure(others: int) -> dict[str, Any]:
    """Improve each of the skills in the library of all."""
    by_id: dict[str, list[str]] = json.loads(CASES.read_text(encoding="utf-8"))
    cases: dict[str, list[str]] = {}
    rows: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as project:
        folder = Path(project, ".agents/skills")
        for number, row in enumerate(read_skills(set(by_id), others)):
            name = f"{re.sub(r'[^a-z0-9]+', '-', row['name'].lower())[:40].strip('-')}-{number}"
            text = " ".join((row["description"] or "").split())
            make_skill(folder, name, text[:1_000], body=row["body_head"] or "None.")
            if row["id"] in by_id:
                cases[name] = by_id[row["id"]]
                rows[name] = row["id"]
        results = {
            rows[name]: improve_skill(folder, cases, name, seed) for seed, name in enumerate(cases)
        }
    gains = [row["held_out"].after - row["held_out"].before for row in results.values()]
    offered = [
        row["held_out"].after - row["held_out"].before if row["is_better"] else 0
        for row in results.values()
    ]
    return {
        "others": others,
        "median_gain": 25 * statistics.median(gains),
        "mean_gain": 25 * statistics.mean(gains),
        "median_gain_offered": 25 * statistics.median(offered),
        "mean_gain_offered": 25 * statistics.mean(offered),
        "offered": sum(row["is_better"] for row in results.values()),
        "lost": sum(row["lost"] for row in results.values()),
        "lost_offered": sum(row["lost"] for row in results.values() if row["is_better"]),
        "skills": results,
    }


def main() -> None:
    """Measure, print and keep the figures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--others", type=int, default=30)
    options = parser.parse_args()
    figures = measure(options.others)
    print(
        json.dumps({name: value for name, value in figures.items() if name != "skills"}, indent=1)
    )
    if options.out:
        options.out.write_text(json.dumps({"machine": machine(), **figures}, indent=1) + "\n")


if __name__ == "__main__":
    main()
