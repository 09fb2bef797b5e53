"""The figures on the front pages match the stored benchmark results."""

from __future__ import annotations

import json
import os
import re
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
README, INDEX, ZH = "README.md", "docs/index.md", "docs/index.zh.md"
COMPARE, FAR, BENCHMARKS = "docs/compare.md", "docs/how-far-it-goes.md", "docs/benchmarks/index.md"


def kept(name):
    path = os.path.join(ROOT, "benchmarks", "results", f"{name}.json")
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def page(name):
    """A page as one line: words may wrap anywhere."""
    with open(os.path.join(ROOT, name), encoding="utf-8") as file:
        return re.sub(r"\s+", " ", file.read()).replace("**", "")


def discovery() -> Iterator[tuple[str, str]]:
    rows = kept("discovery")["rows"]
    ours = next(row for row in rows if row["name"] == "satchel")
    others = [row for row in rows if row["version"] and not row["name"].startswith("openskills")]
    ratios = sorted(
        sorted(a / b for a, b in zip(row["cpu_runs"], ours["cpu_runs"], strict=False))[1]
        for row in others
    )
    assert len(others) == 9
    low, high = f"{ratios[0]:.0f}", f"{ratios[-1]:.0f}"
    for name in (README, INDEX):
        yield name, f"{low} to {high} times"
    for name in (README, INDEX, COMPARE):
        yield name, f"{ours['cpu']:.2f} s"
    yield ZH, f"{low} 到 {high} 倍"
    yield ZH, f"{ours['cpu']:.2f} 秒"


def sight() -> Iterator[tuple[str, str]]:
    found = []
    for name in ("end_to_end", "end_to_end-words"):
        rows = {row["name"]: row for row in kept(name)["rows"]}
        found.append(rows["satchel, list and shortlist"])
    of, with_model, by_words = found[0]["of"], *(round(row["hits"]) for row in found)
    yield README, f"{with_model} of {of} tasks ({by_words} without any model)"
    yield INDEX, f"{with_model} of {of} tasks"
    yield ZH, f"{of} 个任务中，有 {with_model} 个"
    yield FAR, f"{of} tasks, a suitable skill was in the prompt for {by_words} tasks"
    yield FAR, f"it was there for {with_model} tasks"
    yield COMPARE, f"{with_model} with a small model, {by_words} by words"
    yield BENCHMARKS, f"serves {by_words} of {of}"


def installs() -> Iterator[tuple[str, str]]:
    packages = kept("startup")["packages"]
    for name in (README, INDEX, ZH, FAR, BENCHMARKS):
        yield name, f"{sum(packages.values()):.1f} MB"
    yield README, f"{len(packages)} packages"
    net = kept("startup")["commands"]["from satchel import Satchel - bare"]["value"]
    yield README, f"takes {net:.0f} ms"


def crashes() -> Iterator[tuple[str, str]]:
    kills = kept("crashes")["kills"]["result"]
    assert not kills["harm"]
    goals = kept("goal-crashes")["engines"]["dbos"]["kills"]
    assert (goals["lost"], goals["rerun"]) == (0, 0)
    yield README, f"{kills['kills']:,} kills"
    yield INDEX, f"0 of {kills['kills']:,} kills"
    yield INDEX, f"{goals['goals']} of {goals['goals']} goals"
    yield INDEX, f"killed {goals['kills']} times"


def scans() -> Iterator[tuple[str, str]]:
    rows = {(row["scanner"], row["set"], row["part"]): row for row in kept("scanner")["rows"]}
    bad = rows["satchel", "MalSkills", "all"]["recall"]
    assert rows["satchel", "real skills", "all"]["false_positives"]["blocked"] == 0
    yield COMPARE, f"{bad['blocked']} of {bad['of']}, and"
    for scanner in ("satchel", "cisco"):
        unseen = rows[scanner, "MalSkills", "authors n-z (not read)"]
        for share in (unseen["recall"], unseen["false_positives"]):
            yield COMPARE, f"{share['blocked']} of {share['of']}"


def sizes() -> Iterator[tuple[str, str]]:
    size = {name: one["value"] for name, one in kept("growth")["sizes"]["100000"].items()}
    yield FAR, f"memory = {size['memory']:.0f} #"
    yield FAR, f"first_look = {size['cold'] / 1000:.1f} #"
    yield FAR, f"next_process = {size['warm'] / 1000:.3f} #"
    speed = {
        count: [one["query ms"][kind]["detector"]["p50"] for kind in ("short", "long")]
        for count, one in kept("retrieval-speed")["sizes"].items()
    }
    short, long = speed["69568"]
    yield FAR, f"takes {short:.1f} ms for a short request, and {long:.1f} ms for a long one"
    yield COMPARE, f"{short:.1f} ms with reasons"
    short, long = speed["1000"]
    yield (
        FAR,
        f"takes {short:.1f} ms for a request of a few words, and {long:.1f} ms for a long request",
    )
    plain = kept("growth")["sizes"]["1000"]["search"]["value"]
    yield FAR, f"A search with reasons takes {plain:.1f} ms in plain Python"
    yield FAR, f"| Search | not needed | {plain:.0f} ms |"
    short, long = speed["1000000"]
    yield FAR, f"short, long = {short:.2f}e-3, {long:.1f}e-3"


def servers() -> Iterator[tuple[str, str]]:
    served = kept("mcp-server")["ms"]
    yield FAR, f"get = {served['skills/get']['p50']:.1f}e-3"
    yield FAR, f"page = {served['skills/list']['p50']:.1f}e-3"
    overhead = kept("goal-overhead")["overhead"]
    rates = {(row["engine"], row["shape"]): row["ours"]["value"] for row in overhead}
    yield FAR, f"steps_per_second = {rates['postgres', 'many']:.0f}"
    yield FAR, f"round({rates['sqlite', 'many']:.0f} / per_goal"
    agents = kept("prompt-cache")["agents"]["anthropic"]
    yield COMPARE, f"{100 * agents['satchel']['share']:.1f} %"
    anew = agents["the same, most used first"]["share"]
    yield COMPARE, f"most used first {100 * anew:.1f} %"
    passed = {
        server: sum(checks.get("success", 0) for checks in scenarios.values())
        for server, scenarios in kept("mcp-conformance")["servers"].items()
    }
    yield COMPARE, f"{passed['satchel']} of {passed['satchel']}"
    yield COMPARE, f"{passed['fastmcp 4.1.2']} passed"


@pytest.mark.parametrize("figures", [discovery, sight, installs, crashes, scans, sizes, servers])
def test_pages_show_the_stored_figures(figures):
    assert [(name, words) for name, words in figures() if words not in page(name)] == []
