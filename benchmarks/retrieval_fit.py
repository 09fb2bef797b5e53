"""Fits signal weights and the fit model by cross-validation.

    python -m benchmarks.retrieval_fit --data DIR [--vectors none]

Weights are drawn by chance, then again around the mean of the best dozen, whose mean is taken. Each
set in turn is left out: its figures come from weights that never saw it. What is shipped is chosen
on all sets the same way, but for `toollens_test`: its documents are records of an interface strung
together, nothing like a description. Nothing is fitted on it. For the verdict a logistic function
is fitted on requests with and without their right skill, among all skills of a set and among 30
drawn by chance, each set weighing the same. Nothing here is part of the package; the constants it
prints stand in `detect/ranking.py`.
"""

from __future__ import annotations

import argparse
import random
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE)]

import numpy  # noqa: E402, ICN001 - `np` is the untyped one
from labelled import find_sets, load_set, small_library  # noqa: E402
from minilm import Remembering, model_folder, open_model  # noqa: E402

from satchel.detect.hybrid import HybridDetector  # noqa: E402
from satchel.detect.ranking import (  # noqa: E402
    EMBEDDING_SIGNAL_WEIGHTS,
    WORD_SIGNAL_WEIGHTS,
    FitFeatures,
    combine,
)
from satchel.detect.semantic import Semantic  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Sequence

    from labelled import LabelledSet


np: Any = numpy  # its types are only half known to the checker
DRAWS = 350
CLOSER = 120
CONCENTRATION = 40
UNSEEN = frozenset(("toollens_test",))
"""Sets that nothing is fitted on."""
BEST = 12
TOP = 10
MOST = 300
"""Requests of one set that are used: enough, and no set outweighs the others."""
SMALL = 30
LOSS = 0.05


def stretched(given: LabelledSet, detector: HybridDetector, signals: Sequence[str]) -> list[Any]:
    """For each request: its candidates' legs, stretched to 0..1, and which of them are right."""
    made: list[Any] = []
    for request in _some(given):
        found = detector.ranking(request.text, given.skills)
        keys = sorted({key for signal in found.signals.values() for key in signal.scores})
        matrix = np.zeros((len(keys), len(signals)), np.float32)
        for column, name in enumerate(signals):
            signal = found.signals.get(name)
            if signal is None or not signal.scores:
                continue
            low, high = signal.low, max(signal.scores.values())
            if high > low:
                for row, key in enumerate(keys):
                    matrix[row, column] = (signal.scores.get(key, low) - low) / (high - low)
        right = np.array([key in request.right for key in keys], bool)
        made.append((matrix, right, len(request.right)))
    return made


def judge(made: Sequence[Any], weights: Any) -> tuple[float, float]:
    """Hit@1 and Recall@10 in percent."""
    hits = recalls = 0.0
    for matrix, right, wanted in made:
        if not len(right):
            continue
        order = np.argsort(-(matrix @ weights), kind="stable")[:TOP]
        hits += bool(right[order[0]])
        recalls += right[order].sum() / wanted
    return 100 * hits / len(made), 100 * recalls / len(made)


def choose(data: dict[str, list[Any]], signals: Sequence[str]) -> None:
    """Print what cross-validation says, and the weights of all sets that are not to stay unseen."""
    seen = [name for name in data if name not in UNSEEN]
    dice = np.random.default_rng(0)
    wide = dice.dirichlet(np.full(len(signals), 1.0), DRAWS)
    scores = {name: _scores(data[name], wide) for name in seen}

    def best(names: Sequence[str]) -> Any:
        first = _mean_of_best(wide, [scores[name] for name in names])
        near = np.random.default_rng(1).dirichlet(CONCENTRATION * first, CLOSER)
        near = np.vstack([first, near])
        return _mean_of_best(near, [_scores(data[name], near) for name in names])

    for name in seen:
        weights = best([other for other in seen if other != name] or seen)
        hit, recall = judge(data[name], weights)
        print(f"  {name}, chosen without it: {hit:.1f} / {recall:.1f}  {_shown(signals, weights)}")
    weights = best(seen)
    for name, made in data.items():
        hit, recall = judge(made, weights)
        print(f"  {name}, chosen with {', '.join(seen)}: {hit:.1f} / {recall:.1f}")
    print(f"  weights: {_shown(signals, weights)}")


def _scores(made: Sequence[Any], drawn: Any) -> Any:
    """Hit@1 and Recall@10 alike; less the mean, so that an easy set does not count more."""
    scores = np.array([sum(judge(made, one)) / 2 for one in drawn])
    return scores - scores.mean()


def _mean_of_best(drawn: Any, scores: Sequence[Any]) -> Any:
    return drawn[np.argsort(-np.mean(scores, axis=0))[:BEST]].mean(0)


class Verdicts(NamedTuple):
    """What was seen with and without the right skill."""

    signs: Any
    fits: Any
    """Whether the right one was there."""
    found: Any
    """Whether it was among the first three: a silence would lose it."""
    small: Any
    """Whether the library was drawn by chance."""


def verdicts(given: LabelledSet, detector: HybridDetector, fresh: Any) -> Verdicts:
    """Ask with and without the right skill, among all and among a few."""
    dice = random.Random(2)
    rows: list[tuple[FitFeatures, bool, bool, bool]] = []
    for number, request in enumerate(_some(given)):
        ranked = detector.ranking(request.text, given.skills)
        hit = not request.right.isdisjoint(one.key for one in ranked.ranked[:3])
        rows.append((detector.features(ranked), True, hit, False))
        others = combine(ranked.signals, ranked.weights, request.right).best()
        without = detector.features(ranked._replace(ranked=others))
        rows.append((without, False, False, False))
        if number % 2:
            continue
        others = small_library(given, request.right, SMALL, dice)
        one = next(skill for skill in given.skills if skill.path in request.right)
        for library, fit in ((others, False), ((*others[1:], one), True)):
            alone = fresh()
            alone.prepare(library)
            ranked = alone.ranking(request.text, library)
            hit = fit and one.path in {that.key for that in ranked.ranked[:3]}
            rows.append((alone.features(ranked), fit, hit, True))
    signs, fits, found, small = zip(*rows, strict=True)
    return Verdicts(np.array(signs), np.array(fits), np.array(found), np.array(small))


def logistic(signs: Any, fits: Any, weight: Any) -> Any:
    """Weights and bias by Newton's method, with a little ridge."""
    wide: Any = np.hstack([np.ones((len(signs), 1)), signs])
    found: Any = np.zeros(wide.shape[1])
    ridge = np.eye(wide.shape[1]) * 1.0
    for _ in range(30):
        chance: Any = 1 / (1 + np.exp(-np.clip(wide @ found, -30, 30)))
        slope: Any = wide.T @ (weight * (chance - fits)) + ridge @ found
        curve: Any = (wide * (weight * chance * (1 - chance))[:, None]).T @ wide + ridge
        found -= np.linalg.solve(curve, slope)
    return found


def calibrate(data: dict[str, Verdicts], used: Sequence[str]) -> None:
    """Print the verdict's weights, and what they come to on a set that was left out."""
    columns = [FitFeatures._fields.index(name) for name in used]
    seen = [name for name in data if name not in UNSEEN]

    def fit(names: Sequence[str]) -> Any:
        parts = [data[name] for name in names]
        signs = np.concatenate([part.signs[:, columns] for part in parts])
        fits = np.concatenate([part.fits for part in parts])
        even = np.concatenate([np.full(len(part.fits), 1e3 / len(part.fits)) for part in parts])
        weights = logistic(signs, fits, even)
        # Shifted until the wanted share of all requests loses its skill, each set counting alike.
        scores: list[float] = []
        shares: list[float] = []
        for part in parts:
            lost = part.signs[part.found][:, columns] @ weights[1:] + weights[0]
            scores += list(lost)
            shares += [1 / part.fits.sum() / len(parts)] * len(lost)
        order = np.argsort(scores)
        at = int(np.searchsorted(np.cumsum(np.array(shares)[order]), LOSS))
        weights[0] -= scores[order[at]]
        return weights

    for name, part in data.items():
        weights = fit([other for other in seen if other != name] or seen)
        above = part.signs[:, columns] @ weights[1:] + weights[0] >= 0
        for small, words in ((False, "the whole set"), (True, f"{SMALL} drawn")):
            here = part.small == small
            named = above[here & ~part.fits].mean()
            lost = (~above[here & part.found]).sum() / max(1, (here & part.fits).sum())
            said = f"named {100 * named:.1f} %, lost {100 * lost:.1f} points"
            print(f"  {name}, left out, {words}: {said}")
    weights = fit(seen)
    shown = {"bias": round(float(weights[0]), 3)}
    shown |= {name: round(float(value), 3) for name, value in zip(used, weights[1:], strict=True)}
    print(f"  weights: {shown}")


def _some(given: LabelledSet) -> list[Any]:
    requests = list(given.requests)
    random.Random(0).shuffle(requests)
    return requests[:MOST]


def _shown(signals: Sequence[str], weights: Any) -> dict[str, float]:
    return {name: round(float(value), 3) for name, value in zip(signals, weights, strict=True)}


def main(argv: Sequence[str] | None = None) -> int:
    """Fit and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--sets", nargs="*")
    parser.add_argument("--vectors", default="auto")
    given = parser.parse_args(argv)
    embedder: Remembering | None = None
    if given.vectors != "none":
        spec = given.vectors if given.vectors != "auto" else model_folder()
        embedder = Remembering(open_model(spec)) if spec else None
    weights = EMBEDDING_SIGNAL_WEIGHTS if embedder else WORD_SIGNAL_WEIGHTS
    data: dict[str, list[Any]] = {}
    signs: dict[str, Verdicts] = {}
    for folder in find_sets(given.data):
        if given.sets and folder.name not in given.sets:
            continue
        labelled = load_set(folder)
        detector = HybridDetector(rows=labelled.rows, semantic=embedder and Semantic(embedder))
        if embedder and not embedder.covers(labelled.requests[0].text):
            print(f"  {folder.name} is left out: the model does not cover its language")
            continue
        detector.prepare(labelled.skills)
        data[folder.name] = stretched(labelled, detector, list(weights))

        def fresh(labelled: LabelledSet = labelled) -> HybridDetector:
            return HybridDetector(rows=labelled.rows, semantic=embedder and Semantic(embedder))

        signs[folder.name] = verdicts(labelled, detector, fresh)
        print(f"  {folder.name} read", file=sys.stderr, flush=True)
    print("Fusion")
    choose(data, list(weights))
    print("No skill fits")
    used = ["term_coverage", "log_matched_terms", "score_gap"]
    calibrate(signs, [*used, "goal_cosine", "best_clause_cosine"] if embedder else used)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
