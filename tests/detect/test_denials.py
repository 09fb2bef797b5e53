"""Who says what does not work forbids nothing, and who forbids is heard."""

from __future__ import annotations

import pytest

from listening import COMMON as SKILLS
from listening import DETECTOR, heard


@pytest.mark.req("C3")
@pytest.mark.parametrize(
    "goal",
    [
        "This app does not run with docker. Fix the Docker image.",
        "We do not use sql yet, add sql queries",
        "The site can't load search results",
        "npm does not load react components",
        "users cannot use search on the site",
        "python does not load sql drivers",
        "docker should not be used as root, how do I build Docker images",
        "sql is forbidden by the linter",
        "if you don't use docker, the build fails",
        "不能使用 docker 了，帮我修复",
        "我们不用 docker",
        "pdf 技能不触发",
        "the app doesn't use sql",
        "my code does not use git",
        "We don't use docker here.",
        "It won't run python",
        "I can't use docker here",
        "I cannot run python, help",
        "the build is not using docker",
        "The tests never run with docker",
        "他们不使用 docker",
        "Why does it not work with docker?",
        "The claude agent is not loading the pdf skill",
        "The pdf skill is not loaded",
        "My docker container does not start, it can't run python",
        "Since we do not use docker, install it natively",
        "I do not have docker installed",
        "I'm not using docker",
        "The tests don't use docker",
        "my tests do not run with docker. fix them",
        "Our users don't use search",
        "Nobody should use docker",
        "The pdf skill does not load",
        "The pdf skill does not trigger, why?",
        "why does the agent not use the pdf skill",
        "The agent does not use the pdf skill",
        "Claude won't use the pdf skill",
        "docker 不能用了，帮我修复",
        "docker 不能用",
        "pdf 技能不能用",
        "pdf 技能不加载",
        "程序不能运行 docker",
    ],
)
def test_a_report_of_what_does_not_work_rules_nothing_out(goal):
    assert heard(goal) == ""
    assert DETECTOR.heard(goal, SKILLS).rest is None  # it is searched with as it is


@pytest.mark.req("C3")
@pytest.mark.parametrize(
    ("goal", "names"),
    [
        ("don't use docker", "-docker"),
        ("Please don't use docker", "-docker"),
        ("Build it, but don't use docker", "-docker"),
        ("you must not use docker", "-docker"),
        ("You should never use docker for this", "-docker"),
        ("I want you to not use docker", "-docker"),
        ("I don't want to use docker", "-docker"),
        ("I do not want you to use docker", "-docker"),
        ("I'd rather not use docker", "-docker"),
        ("I would rather you didn't use docker", "-docker"),
        ("I'd prefer not to use docker", "-docker"),
        ("let's not use docker", "-docker"),
        ("we should not use docker", "-docker"),
        ("We don't want to use docker", "-docker"),
        ("You can't use docker", "-docker"),
        ("You cannot use docker here", "-docker"),
        ("docker must not be used", "-docker"),
        ("the docker skill is forbidden", "-docker"),
        ("the docker skill should not be used", "-docker"),
        ("make sure not to use docker", "-docker"),
        ("Do it and do not use docker", "-docker"),
        ("never use docker", "-docker"),
        ("The agent must not use the docker skill", "-docker"),
        ("千万别用 docker", "-docker"),
        ("我不想用 docker", "-docker"),
        ("请不要使用 docker", "-docker"),
        ("不用 docker", "-docker"),
        ("docker 不要用", "-docker"),
        ("不能用 docker", "-docker"),
        ("我不要用 docker", "-docker"),
        ("no uses el skill pdf", "-pdf"),
        ("w/o docker", "-docker"),
        ("build it w/o docker", "-docker"),
        ("use docker? no!", "-docker"),
        ("You do not have to use docker", "-docker"),
        ("it is not necessary to use docker", "-docker"),
        ("Don't ever use docker!", "-docker"),
        ("for this task do not use docker", "-docker"),
        ("In these cases do not use docker", "-docker"),
        ("Fix the bug. Don't use docker.", "-docker"),
        ("Fix the bug, don't use docker.", "-docker"),
        ("Fix the bug without docker", "-docker"),
        ("The script must not use python", "-python"),
        ("do not run the pdf skill", "-pdf"),
        ("we do not use the pdf skill", "-pdf"),
        ("use docker? No, use git", "-docker"),
        ("不用 pdf 技能", "-pdf"),
        ("我们不用 pdf 技能", "-pdf"),
        ("pdf技能不用", "-pdf"),
        ("别用 docker 技能", "-docker"),
        ("这次不用 docker", "-docker"),
        ("你不能用 docker", "-docker"),
    ],
)
def test_an_order_not_to_use_a_skill_is_heard(goal, names):
    assert heard(goal) == names
    assert (
        DETECTOR.heard(goal, SKILLS)
        .notes[0]
        .endswith("is left out: the request says not to use it")
    )


@pytest.mark.parametrize(
    ("goal", "rest"),
    [
        ("I'd rather not use docker", ""),
        ("Fix it. You can't use docker", "Fix it."),
        ("Fix it, please don't use docker", "Fix it,"),
        ("do not use docker; fix it", "; fix it"),
        ("千万别用 docker", ""),
        ("pdfスキルを使わないで", ""),
        ("pdfスキルを使って表をまとめて", "表をまとめて"),
        ("pdf 스킬을 사용하지 마세요", ""),
        ("pdf 스킬을 사용해서 번역해", "번역해"),
    ],
)
def test_what_is_left_is_not_cut_inside_words(goal, rest):
    assert DETECTOR.heard(goal, SKILLS).rest == rest
