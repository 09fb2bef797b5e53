"""The figures on the front pages match the stored benchmark results."""

from __future__ import annotations

import json
import os
import re

import pytest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def kept(name):
    path = os.path.join(ROOT, "benchmarks", "results", f"{name}.json")
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def page(name):
    """A page as one line: words may wrap anywhere."""
    with open(os.path.join(ROOT, name), encoding="utf-8") as file:
        return re.sub(r"\s+", " ", file.read()).replace("**", "")


def discovery():
    rows = kept("discovery")["rows"]
    ours = next(row for row in rows if row["name"] == "satchel")
    others = [row for row in rows if row["version"] and not row["name"].startswith("openskills")]
    ratios = sorted(
        sorted(a / b for a, b in zip(row["cpu_runs"], ours["cpu_runs"], strict=False))[1]
        for row in others
    )
    assert len(others) == 9
    return f"{ours['cpu']:.2f}", f"{ratios[0]:.0f} to {ratios[-1]:.0f} times"


def sight(name):
    rows = {row["name"]: row for row in kept(name)["rows"]}
    row = rows["satchel, list and shortlist"]
    return round(row["hits"]), row["of"]


def size(count, key):
    return kept("growth")["sizes"][str(count)][key]["value"]


FRONT = ("README.md", "docs/index.md", "docs/zh.md", "docs/compare.md")


@pytest.mark.parametrize("name", FRONT)
def test_how_fast_skills_are_found(name):
    seconds, times = discovery()
    text = page(name).replace(" 到 ", " to ").replace(" 倍", " times").replace(" 秒", " s")
    assert f"{seconds} s" in text
    assert times in text or name == "docs/compare.md"


def test_how_many_tasks_see_a_right_skill():
    with_model, of = sight("end_to_end")
    by_words, _ = sight("end_to_end-words")
    assert f"{with_model} of {of} tasks ({by_words} without any model)" in page("README.md")
    assert f"{with_model} of {of} tasks" in page("docs/index.md")
    assert f"{of} 个里的 {with_model} 个任务" in page("docs/zh.md")
    far = page("docs/how-far-it-goes.md")
    assert f"{by_words} of {of} tasks" in far
    assert f"{with_model} with a small model" in far
    assert f"{with_model} with a small model, {by_words} by words" in page("docs/compare.md")
    assert f"serves {by_words} of {of}" in page("docs/benchmarks/index.md")


def test_what_an_install_weighs():
    packages = kept("startup")["packages"]
    weight = f"{sum(packages.values()):.1f} MB"
    for name in (
        "README.md",
        "docs/index.md",
        "docs/zh.md",
        "docs/how-far-it-goes.md",
        "docs/benchmarks/index.md",
    ):
        assert weight in page(name), name
    assert f"{len(packages)} packages" in page("README.md")
    net = kept("startup")["commands"]["from satchel import Satchel - bare"]["value"]
    assert f"takes {net:.0f} ms" in page("README.md")


def test_what_survived():
    kills = kept("crashes")["kills"]["result"]
    assert not kills["harm"]
    goals = kept("goal-crashes")["engines"]["dbos"]["kills"]
    assert (goals["lost"], goals["rerun"]) == (0, 0)
    assert f"{kills['kills']:,} kills" in page("README.md")
    text = page("docs/index.md")
    assert f"0 of {kills['kills']:,} kills" in text
    assert f"{goals['goals']} of {goals['goals']} goals" in text
    assert f"killed {goals['kills']} times" in text


def test_what_the_scan_blocks():
    rows = {(row["scanner"], row["set"], row["part"]): row for row in kept("scanner")["rows"]}
    beside = page("docs/compare.md")
    bad = rows["satchel", "MalSkills", "all"]["recall"]
    assert rows["satchel", "real skills", "all"]["false_positives"]["blocked"] == 0
    assert f"{bad['blocked']} of {bad['of']} against" in beside
    for scanner in ("satchel", "cisco"):
        unseen = rows[scanner, "MalSkills", "authors n-z (not read)"]
        for share in (unseen["recall"], unseen["false_positives"]):
            assert f"{share['blocked']} of {share['of']}" in beside


def test_memory_and_time_by_size():
    text = page("docs/how-far-it-goes.md")
    assert f"memory = {size(100_000, 'memory'):.0f} #" in text
    assert f"first_look = {size(100_000, 'cold') / 1000:.1f} #" in text
    assert f"next_process = {size(100_000, 'warm') / 1000:.3f} #" in text


def test_searches_and_what_they_cost():
    sizes = kept("retrieval-speed")["sizes"]
    short, long = (
        sizes["69568"]["query ms"][kind]["detector"]["p50"] for kind in ("short", "long")
    )
    far = page("docs/how-far-it-goes.md")
    assert f"a short request in {short:.1f} ms, a long one in {long:.1f} ms" in far
    assert f"{short:.1f} ms with reasons" in page("docs/compare.md")
    short, long = (
        sizes["1000000"]["query ms"][kind]["detector"]["p50"] for kind in ("short", "long")
    )
    assert f"short, long = {short:.2f}e-3, {long:.1f}e-3" in far


def test_the_company_and_its_goals():
    text = page("docs/how-far-it-goes.md")
    served = kept("mcp-server")["ms"]
    assert f"get = {served['skills/get']['p50']:.1f}e-3" in text
    assert f"page = {served['skills/list']['p50']:.1f}e-3" in text
    rates = {
        (row["engine"], row["shape"]): row["ours"]["value"]
        for row in kept("goal-overhead")["overhead"]
    }
    assert f"steps_per_second = {rates['postgres', 'many']:.0f}" in text
    assert f"round({rates['sqlite', 'many']:.0f} / per_goal" in text


def test_the_prompt_cache_and_the_checks_of_mcp():
    agents = kept("prompt-cache")["agents"]["anthropic"]
    ours = agents["satchel"]["share"]
    anew = agents["the same, most used first"]["share"]
    beside = page("docs/compare.md")
    assert f"{100 * ours:.1f} %" in beside
    assert f"most used first {100 * anew:.1f} %" in beside
    passed = {
        server: sum(checks.get("success", 0) for checks in scenarios.values())
        for server, scenarios in kept("mcp-conformance")["servers"].items()
    }
    assert f"{passed['satchel']} of {passed['satchel']}" in beside
    assert f"{passed['fastmcp 4.1.2']} passed" in beside
