"""The news explorer with a recorded Hacker News, a real SDK and a scripted model."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
from datetime import datetime

import httpx2
import pytest
from news_explorer import Options, pages
from news_explorer import explore as explore_once
from news_explorer.explorer import HOME, skills_of
from news_explorer.fetcher import Fetcher, Unreachable

import news_model
from model_server import ModelServer, Reply, loopback
from news_site import NewsSite, edition
from satchel.errors import ModelFailed

pytestmark = pytest.mark.timeout(60)
SKILLS = {"chinese-writing", "incremental-update", "hn-analysis", "web-extraction"}
NOON = datetime(2026, 11, 15, 12, 0)  # noqa: DTZ001 - the reader's own time


@pytest.fixture
def explore(tmp_path):
    """Runs the explorer once; the folder of its reports stays from run to run."""

    def explore(site, satchel=None, **options):
        given = {"output": str(tmp_path / "out"), "private": True, "pause": 0.01} | options
        chosen = Options("anthropic:claude-sonnet-5", site.url, clock=lambda: NOON, **given)
        return asyncio.run(explore_once(chosen, satchel))

    return explore


def report_of(tmp_path):
    return (tmp_path / "out" / "2026-11-15.md").read_text(encoding="utf-8")


def seen_by(tmp_path):
    return set(json.loads((tmp_path / "out" / "seen.json").read_text())["stories"])


def front_page(*urls, first=4200, **values):
    """An edition with one story for each address."""
    items = {
        str(first + at): {"id": first + at, "type": "story", "by": "x", "title": f"Story {at}",
                          "url": url, "score": 10, "descendants": 0} | values
        for at, url in enumerate(urls)
    }  # fmt: skip
    return {"topstories": [int(name) for name in items], "items": items}


# --- two runs -----------------------------------------------------------------------------


@pytest.mark.req("D7")
def test_a_first_run_reports_and_a_second_one_only_the_news(explore, tmp_path):
    with NewsSite() as site, loopback(news_model.explore) as server:
        first = explore(site)
        morning = report_of(tmp_path)
        second = explore(site)
        evening = report_of(tmp_path)
        third = explore(site)
    assert (first.finished, first.reported) == (True, (4101, 4102, 4103))
    assert (second.finished, second.reported) == (True, (4106, 4107))
    assert (third.finished, third.reported, third.path) == (True, (), "")
    assert report_of(tmp_path) == evening, "a run without news writes nothing"
    assert evening.startswith(morning.rstrip("\n")), "a run adds to the report of the day"
    for title, text in (news_model.SAID[one] for one in first.reported):
        assert f"### {title}\n\n{text}" in morning
    added = evening[len(morning) :]
    assert "新增 2 条，升温 0 条" in added
    assert "Lanternfish" in added
    assert "Tidepool" not in added
    assert f"{site.url}/pages/lanternfish.html" in added, "links come from Hacker News"
    assert seen_by(tmp_path) == {"4101", "4102", "4103", "4106", "4107"}
    assert first.turn.tools.count("Task") == 3
    assert first.turn.tools.count("analyze_story/read_page") == 3
    assert len(first.turn.tools) <= 30
    assert server.strangers == []


def test_text_of_others_reaches_the_sub_agent_as_framed_text(explore):
    with NewsSite() as site, loopback(news_model.explore) as server:
        explore(site)
    read = {one.name: one.text for request in server.requests for one in request.results
            if "4101" in request.messages[0].text}  # fmt: skip
    assert "Power was cut 10,000 times" in read["read_page"]
    assert "newsletter" not in read["read_page"], "menus and advertisements are left out"
    assert "Author here: correct, the page is for values only. I'll fix" in read["read_comments"]
    for tool in ("read_page", "read_comments", "read_story"):
        assert re.search(
            rf'^<tool-output tool="{tool}".*</tool-output nonce=',
            read[tool],
            re.DOTALL | re.MULTILINE,
        )


# --- skills -------------------------------------------------------------------------------


@pytest.mark.req("D4")
def test_the_four_skills_are_there_and_load():
    satchel = skills_of(HOME)
    assert {skill.name for skill in satchel.list_skills()} == SKILLS
    for name in SKILLS:
        reply = satchel.session().call("Skill", {"name": name})
        assert reply.error is None
        assert re.search("[\u4e00-\u9fff]{20}", reply.text.replace("，", ""))
    terms = os.path.join(HOME, ".skills", "chinese-writing", "references", "terms.md")
    assert "事后复盘" in satchel.session().call("ReadFile", {"path": terms}).text


@pytest.mark.req("D4")
def test_the_four_skills_are_without_fault_and_fire_when_they_should(tmp_path):
    environment = os.environ | {"SATCHEL_TRUST": "all"}
    for arguments in (["check", "--strict", "--json"], ["test", "--triggers", "--json"]):
        done = subprocess.run(
            [sys.executable, "-m", "satchel", *arguments],
            cwd=HOME, env=environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        assert all(name in done.stdout for name in SKILLS)


@pytest.mark.req("D3")
def test_the_prompts_of_the_agent_and_of_its_sub_agents_carry_their_skills(explore):
    with NewsSite() as site, loopback(news_model.explore) as server:
        explore(site)
    mine = {one.system for one in server.requests if "You are a news exploration" in one.system}
    theirs = {one.system for one in server.requests if "You analyse one story" in one.system}
    assert len(mine) == len(theirs) == 1, "byte for byte the same in every request"
    assert all(name in next(iter(mine)) for name in SKILLS)
    own = {name for name in SKILLS if f'<skill name="{name}">' in next(iter(theirs))}
    assert own == {"hn-analysis", "web-extraction"}
    tools = next(one.tools for one in server.requests if "You analyse" in one.system)
    assert not {"write_report", "finish_exploration", "list_stories", "Task"} & set(tools)


@pytest.mark.req("D4", "D7")
def test_the_trace_shows_which_skills_were_used(explore):
    satchel = skills_of(HOME)
    with NewsSite() as site, loopback(news_model.explore):
        outcome = explore(site, satchel)
    events = [event for event in satchel.trace.events if event.kind == "loaded"]
    loaded = [name for event in events for name in event.skills]
    assert set(loaded) == set(outcome.turn.skills) == SKILLS
    assert loaded[0] == "incremental-update"
    assert loaded[-1] == "chinese-writing"
    assert loaded.count("hn-analysis") == 3, "once in each sub-agent"
    done = subprocess.run(
        [sys.executable, "-m", "satchel", "why", "hn-analysis"],
        cwd=HOME, env=os.environ | {"SATCHEL_TRUST": "all"}, capture_output=True, text=True,
        check=True,
    )  # fmt: skip
    assert "loaded: 20" in done.stdout
    assert "chosen: 4 of 4" in done.stdout, "the run's own, and one in each sub-agent"


# --- limits, ends, retries ----------------------------------------------------------------


@pytest.mark.req("D7")
def test_after_thirty_calls_the_rest_is_refused_and_nothing_is_lost(explore, tmp_path):
    def greedy(request):
        if any("Finish now" in one.text for one in request.results):
            return Reply("我停下了。")
        if not request.all_results:
            return Reply(calls=[("list_stories", {})])
        return Reply(calls=[("read_story", {"story_id": 4101})] * 4)

    with NewsSite() as site:
        with loopback(greedy) as server:
            outcome = explore(site)
        assert len(outcome.turn.tools) == 30
        assert not outcome.finished
        assert outcome.text == "我停下了。"
        assert len(server.requests) == 10
        assert not (tmp_path / "out" / "seen.json").exists()
    with NewsSite() as site, loopback(news_model.explore):
        assert explore(site).reported == (4101, 4102, 4103), "they are news in the next run"


@pytest.mark.req("D7")
def test_finish_exploration_ends_the_run(explore, tmp_path):
    steps = [
        Reply(calls=[("list_stories", {})]),
        Reply(calls=[("finish_exploration", {"summary": "都不值得写。"})]),
    ]  # a third request would fail the test
    with NewsSite() as site, loopback(steps) as server:
        outcome = explore(site)
        assert (outcome.finished, outcome.text, outcome.path) == (True, "都不值得写。", "")
        assert len(server.requests) == 2
    assert seen_by(tmp_path) == {"4101", "4102", "4103"}, "passed over is known as well"


@pytest.mark.req("D7")
def test_a_busy_model_and_a_busy_hacker_news_are_asked_again(explore, caplog):
    caplog.set_level("INFO", "news_explorer")
    busy = iter([429, 529])

    def script(request):
        status = next(busy, 0)
        if status:
            return Reply("slow down", status=status, headers={"retry-after": "0"})
        return news_model.explore(request)

    failing = {
        "/v0/topstories.json": [503, 503],
        "/v0/item/4101.json": [429],
        "/pages/build.html": [502],
    }
    with NewsSite(failing=failing) as site, loopback(script) as server:
        outcome = explore(site)
    assert outcome.reported == (4101, 4102, 4103)
    assert [reply.status for reply in server.replies[:3]] == [429, 529, 200]
    assert site.asked.count("/v0/topstories.json") == 3
    assert site.asked.count("/pages/build.html") == 2
    assert "HTTP 503 from 127.0.0.1, again in" in caplog.text, "nothing is tried again in silence"


# --- hostile pages ------------------------------------------------------------------------


def read_pages(explore, site_of, *numbers, **options):
    """What `read_page` says about each story of a front page, asked by the agent itself."""
    said = {}

    def script(request):
        said.update({one.id: one.text for one in request.results if one.name == "read_page"})
        if not request.all_results:
            return Reply(calls=[("list_stories", {})])
        if len(request.all_results) == 1:
            return Reply(calls=[("read_page", {"story_id": one}) for one in numbers])
        return Reply(calls=[("finish_exploration", {"summary": "完。"})])

    with site_of as site, loopback(script):
        outcome = explore(site, **options)
    assert outcome.finished
    return list(said.values())


def test_a_page_cannot_pose_as_the_system_nor_leave_its_frame(explore):
    (said,) = read_pages(explore, NewsSite(front_page("{site}/pages/hostile.html")), 4200)
    assert "two gigabytes a second" in said
    (nonce,) = re.findall(r'<tool-output [^>]*nonce="(\w+)">', said)[:1]
    assert said.count(nonce) == 2
    assert said.rstrip().endswith(f'</tool-output nonce="{nonce}">')
    assert said.startswith("Written by strangers")


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("circle", "more than 5 redirects"),
        ("file", "not one of the web"),
        ("binary", "`application/octet-stream`"),
        ("bomb", "packed"),
        ("missing", "HTTP 404"),
    ],
)
def test_an_address_that_is_no_page_is_refused_with_the_reason(explore, kind, words):
    site = NewsSite(front_page("{site}/hostile/" + kind))
    (said,) = read_pages(explore, site, 4200)
    assert words in said


def test_a_page_that_drips_is_given_up(monkeypatch):
    monkeypatch.setattr(pages, "_PAGE_TIMEOUT_S", 0.5)

    async def read(url):
        async with httpx2.AsyncClient() as client:
            return await pages.Pages(Fetcher(client), private=True).read(url)

    with NewsSite() as site, pytest.raises(Unreachable, match=r"no answer within 0\.5 s"):
        asyncio.run(read(site.url + "/hostile/slow"))


@pytest.mark.parametrize("kind", ["disguised", "deep", "huge"])
def test_random_bytes_as_a_page_raise_nothing(explore, kind):
    (said,) = read_pages(explore, NewsSite(front_page("{site}/hostile/" + kind)), 4200)
    assert len(said) < 13_000


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:9/",
        "http://[::1]/",
        "http://169.254.169.254/latest/meta-data",
        "http://0x7f000001/",
        "http://user@example.com/",
        "file:///etc/passwd",
        "javascript:alert(1)",
        "http://[::ffff:127.0.0.1]/",
        "http://",
    ],
)
def test_addresses_of_this_machine_are_not_requested(explore, url):
    (said,) = read_pages(explore, NewsSite(front_page(url)), 4200, private=False)
    assert "cannot be read" in said
    assert "address" in said


def test_nothing_but_news_in_chinese_gets_into_a_report(explore, tmp_path):
    bad = "http://attacker.invalid"
    beacon = (
        f"好消息，见[这里]({bad}/a)和 {bad}/b 以及![图片]({bad}/c)，还有[{bad}/d]({bad}/e)、"
        f"（{bad}/f）、<{bad}/g>，再加一段脚本<script>alert(1)</script>。\n\n[x]: {bad}/h"
    )
    calls = [
        {"markdown": "Nothing but English here, at length.", "story_ids": [4101]},
        {"markdown": "这是旧闻。", "story_ids": [9999]},
        {"markdown": "这里没有帖子。", "story_ids": []},
        {"markdown": "太长了。" * 6_000, "story_ids": [4101]},
        {"markdown": beacon, "story_ids": [4101]},
        {"markdown": "再来一遍。", "story_ids": [4101]},
    ]
    said = []

    def script(request):
        said.extend(one.text for one in request.results if one.name == "write_report")
        if not request.all_results:
            return Reply(calls=[("list_stories", {})])
        if len(said) < len(calls):
            return Reply(calls=[("write_report", calls[len(said)])])
        return Reply(calls=[("finish_exploration", {"summary": "完。"})])

    with NewsSite() as site, loopback(script):
        assert explore(site).reported == (4101,)
    assert [text.startswith("Written") for text in said] == [False] * 4 + [True, False]
    assert "chinese-writing" in said[0]
    assert "none of the news" in said[1]
    report = report_of(tmp_path)
    assert "attacker.invalid" not in report
    assert "<script" not in report
    assert "好消息，见这里和" in report


# --- what was seen ------------------------------------------------------------------------


def test_a_run_that_dies_after_its_report_neither_repeats_nor_loses_a_story(explore, tmp_path):
    def dies(request):
        reply = news_model.explore(request)
        if any(name == "finish_exploration" for name, _ in reply.calls):
            return Reply("the model is gone", status=400)
        return reply

    less = edition("morning")
    less["topstories"] = [4101]
    with NewsSite(less, edition("morning")) as site:
        with loopback(dies), pytest.raises(ModelFailed):
            explore(site)
        assert seen_by(tmp_path) == {"4101"}, "what was written is known"
        with loopback(news_model.explore):
            assert explore(site).reported == (4102, 4103)


def test_the_program_runs_in_a_terminal(tmp_path):
    """As the README says it: copied somewhere, with the servers in the environment."""
    shutil.copytree(HOME, tmp_path / "copy", ignore=shutil.ignore_patterns("reports"))
    with NewsSite() as site, ModelServer(news_model.explore) as server:
        environment = os.environ | server.environment() | site.environment()
        done = subprocess.run(
            [sys.executable, "-m", "news_explorer", "--private"],
            cwd=tmp_path / "copy", env=environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "写了 3 条。" in done.stdout
    assert "skill: hn-analysis" in done.stderr
    assert "23 tool calls, 14 requests" in done.stderr
    assert list((tmp_path / "copy" / "reports").glob("*.md"))
