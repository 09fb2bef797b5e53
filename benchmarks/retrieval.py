"""Retrieval quality: hit rates, and correct rejections when no skill fits.

    python -m benchmarks.retrieval --data DIR
    python -m benchmarks.retrieval --data DIR --sets toole --vectors none --out FILE

DIR holds one folder per set, as `labelled.py` says. Every row of a table comes from the same run:

    BM25       name and description as one text, nothing else
    model      the cosine of the request with name and description
    words      Satchel without a model
    Satchel    Satchel with the model

`--vectors` is an ONNX folder or the address of an endpoint; without it all-MiniLM-L6-v2 is fetched
and converted (`minilm.py`). `none` leaves the model out.

*No skill fits* is asked twice: with the right skills taken out of the whole set, where near
neighbours stay and many of them would do; and among 30 skills drawn by chance, as on a laptop.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE)]

from interval import wilson  # noqa: E402
from labelled import find_sets, load_set, small_library  # noqa: E402
from measure import machine, table  # noqa: E402
from minilm import Remembering, model_folder, open_model  # noqa: E402

from satchel.detect.hybrid import HybridDetector  # noqa: E402
from satchel.detect.index import IndexRow, file_stamp  # noqa: E402
from satchel.detect.index.memory import MemoryIndex  # noqa: E402
from satchel.detect.ranking import (  # noqa: E402
    FIT_THRESHOLD,
    combine,
    fit_probability,
)
from satchel.detect.semantic import Semantic  # noqa: E402
from satchel.detect.skill_texts import embedding_texts  # noqa: E402
from satchel.detect.tokenizer import GoalText, extract_terms  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from labelled import LabelledSet

    from satchel.detect.base import Detection
    from satchel.detect.embeddings import Embedder
    from satchel.skill import Skill

TOP = 10
CHOSEN = 3
SMALL = 30
GOALS = {
    "skillrouter75": (76, 70),
    "toole": (55, 82),
    "sealtools": (84, 88),
    "ultratool_en": (50, 77),
    "ultratool_zh": (50, 74),
}
"""Hit@1 and Recall@10 that were set before the work began."""


class Figures(NamedTuple):
    """How well one way ranked one set."""

    hit: float
    recall: float


def measure(given: LabelledSet, rank: Callable[[str], Sequence[str]]) -> Figures:
    """Hit@1 and Recall@10 of a ranking."""
    hits, recalls = 0, 0.0
    for request in given.requests:
        found = rank(request.text)[:TOP]
        hits += bool(found) and found[0] in request.right
        recalls += len(request.right.intersection(found)) / len(request.right)
    total = len(given.requests)
    return Figures(hits / total, recalls / total)


def plain_bm25(given: LabelledSet) -> Callable[[str], Sequence[str]]:
    """One field, one BM25."""
    index = MemoryIndex()
    empty = ("",) * 4
    index.update(
        IndexRow(
            skill.path,
            file_stamp(skill),
            (" ".join(extract_terms(f"{skill.name} {skill.description}")), *empty),
        )
        for skill in given.skills
    )

    def rank(goal: str) -> Sequence[str]:
        scores = index.search_signals(
            list(GoalText(goal).terms.items()), {"name": {"name": 1.0}}, TOP
        )["name"]
        return sorted(scores, key=lambda key: (-scores[key], key))

    return rank


def model_alone(given: LabelledSet, embedder: Embedder) -> Callable[[str], Sequence[str]]:
    """The cosine with name and description."""
    keys = [skill.path for skill in given.skills]
    matrix = embedder.embed([embedding_texts(skill)[1] for skill in given.skills])

    def rank(goal: str) -> Sequence[str]:
        scores: Any = matrix @ embedder.embed([goal[:600]])[0]
        order: list[int] = (-scores).argsort(kind="stable")[:TOP].tolist()
        return [keys[at] for at in order]

    return rank


def ours(given: LabelledSet, detector: HybridDetector) -> Callable[[str], Sequence[str]]:
    """What a search shows."""
    detector.prepare(given.skills)

    def rank(goal: str) -> Sequence[str]:
        return [match.skill.path for match in detector.rank(goal, given.skills, TOP)]

    return rank


def no_skill(given: LabelledSet, detector: HybridDetector, most: int) -> dict[str, float]:
    """How often something is named that should not be, and what the silence costs.

    `lost`: requests whose right skill was among the first three and is not named because the
    verdict was "no skill fits", of all requests.
    """
    detector.prepare(given.skills)
    dice = random.Random(1)
    requests = list(given.requests)
    dice.shuffle(requests)
    requests = requests[:most]
    named = lost = small_named = small_lost = small_had = 0
    for request in requests:
        found = detector.ranking(request.text, given.skills)
        meaning = "about" in found.signals
        first = [one.key for one in found.ranked[:CHOSEN]]
        if request.right.intersection(first):
            lost += fit_probability(detector.features(found), has_vectors=meaning) < FIT_THRESHOLD
        others = combine(found.signals, found.weights, request.right).best()
        found = found._replace(ranked=others)
        without = fit_probability(detector.features(found), has_vectors=meaning)
        named += without >= FIT_THRESHOLD
    few = requests[: max(1, most // 4)]
    for request in few:
        others = small_library(given, request.right, SMALL, dice)
        small_named += bool(_look(given, detector, request.text, others).matches)
        one = next(skill for skill in given.skills if skill.path in request.right)
        answer = _look(given, detector, request.text, (*others[1:], one))
        ranked = [match.skill.path for match in (*answer.matches, *answer.runners_up)][:CHOSEN]
        small_had += one.path in ranked
        small_lost += one.path in ranked and not answer.matches
    total = len(requests)
    return {
        "named": named / total,
        "lost": lost / total,
        "small_named": small_named / len(few),
        "small_lost": small_lost / len(few),
        "requests": total,
    }


def _look(
    given: LabelledSet, like: HybridDetector, goal: str, skills: tuple[Skill, ...]
) -> Detection:
    """The answer of the same detector over another library."""
    alone = HybridDetector(
        rows=given.rows, semantic=like.semantic and Semantic(like.semantic.embedder)
    )
    alone.prepare(skills)
    return alone.look(goal, skills)


def run(folder: Path, embedder: Remembering | None, most: int) -> dict[str, Any]:
    """Everything about one set."""
    given = load_set(folder)
    words = HybridDetector(rows=given.rows)
    ways: dict[str, Callable[[], Callable[[str], Sequence[str]]]] = {
        "BM25": lambda: plain_bm25(given),
        "words": lambda: ours(given, words),
    }
    both: HybridDetector | None = None
    if embedder is not None and embedder.covers(given.requests[0].text):
        both = HybridDetector(rows=given.rows, semantic=Semantic(embedder))
        kept = both
        ways["model"] = lambda: model_alone(given, embedder)
        ways["Satchel"] = lambda: ours(given, kept)
    row: dict[str, Any] = {
        "set": given.name,
        "skills": len(given.skills),
        "requests": len(given.requests),
        "goal": GOALS.get(given.name),
    }
    for name in ("BM25", "model", "words", "Satchel"):
        if name in ways:
            row[name] = measure(given, ways[name]())._asdict()
            print(f"  {given.name}: {name} {_pair(row[name])}", file=sys.stderr, flush=True)
    if most:
        row["no_skill"] = {"words": no_skill(given, words, most)}
        if both is not None:
            row["no_skill"]["Satchel"] = no_skill(given, both, most)
    return row


def _pair(figures: dict[str, float] | None) -> str:
    if figures is None:
        return "–"
    return f"{100 * figures['hit']:.1f} / {100 * figures['recall']:.1f}"


def tables(rows: Sequence[dict[str, Any]]) -> str:
    """What a person reads."""
    head = [
        "set",
        "skills",
        "requests",
        "BM25",
        "model",
        "words",
        "Satchel",
        "95 % of Hit@1",
        "goal",
    ]
    lines: list[list[str]] = [head]
    for row in rows:
        best = row.get("Satchel") or row["words"]
        low, high = wilson(best["hit"] * row["requests"], row["requests"])
        goal = f"{row['goal'][0]} / {row['goal'][1]}" if row["goal"] else ""
        lines.append(
            [row["set"], f"{row['skills']:,}", f"{row['requests']:,}"]
            + [_pair(row.get(name)) for name in ("BM25", "model", "words", "Satchel")]
            + [f"{100 * low:.1f}–{100 * high:.1f}", goal]
        )
    text = "Hit@1 / Recall@10 in %\n" + table(lines)
    asked = [row for row in rows if "no_skill" in row]
    if asked:
        lines = [
            [
                "set",
                "way",
                "named, right one gone",
                "points lost",
                f"named, {SMALL} drawn",
                "points lost",
            ]
        ]
        for row in asked:
            for way, got in row["no_skill"].items():
                shares = (got["named"], got["lost"], got["small_named"], got["small_lost"])
                lines.append([row["set"], way, *(f"{100 * share:.1f}" for share in shares)])
        text += "\nNo skill fits, in %\n" + table(lines)
    return text


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True, help="folder with one folder per set")
    parser.add_argument("--sets", nargs="*", help="only these")
    parser.add_argument("--vectors", default="auto", help="a model, `auto` or `none`")
    parser.add_argument(
        "--no-skill",
        type=int,
        default=400,
        metavar="N",
        help="requests asked for the verdict; 0 asks none",
    )
    parser.add_argument("--out", type=Path, help="write the figures as JSON")
    given = parser.parse_args(argv)
    folders = [one for one in find_sets(given.data) if not given.sets or one.name in given.sets]
    if not folders:
        print(f"error: There is no labelled set in `{given.data}`", file=sys.stderr)
        return 2
    embedder = None
    if given.vectors != "none":
        spec = given.vectors if given.vectors != "auto" else model_folder()
        embedder = Remembering(open_model(spec)) if spec else None
    rows = [run(folder, embedder, given.no_skill) for folder in folders]
    print(tables(rows))
    if given.out:
        given.out.write_text(
            json.dumps({"machine": machine(), "sets": rows}, indent=1) + "\n", "utf-8"
        )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
