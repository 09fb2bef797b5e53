"""A news agent: skills in `.skills/`, written in traditional Chinese, and a small loader API."""

from __future__ import annotations

import pytest

from seeds.conftest import skill

ABOUT = {
    "chinese-writing": "中文報告寫作。寫報告前使用。",
    "incremental-update": "增量更新流程。更新既有報告時使用。",
    "hn-analysis": "HN 分析技巧。分析討論串時使用。",
    "web-extraction": "網頁內容提取。讀取連結前使用。",
}
FILES = {
    f".skills/{name}/SKILL.md": skill(name, about, f"# {name} 指南\n")
    for name, about in ABOUT.items()
}


@pytest.fixture
def news(project):
    project.write(FILES)
    return project


def run_skill(satchel, name: str) -> str:
    """The tool as its author writes it, on the public API."""
    content = satchel.get_skill_content(name)
    if content is None:
        available = ", ".join(one.name for one in satchel.list_skills()) or "none"
        return f"Error: Unknown skill '{name}'. Available: {available}"
    return f'<skill-loaded name="{name}">\n{content}\n</skill-loaded>'


@pytest.mark.req("D1")
def test_the_loader_of_the_agent_is_three_lines(news):
    satchel = news.open()
    assert all(about in satchel.get_descriptions() for about in ABOUT.values())
    assert run_skill(satchel, "hn-analysis").startswith('<skill-loaded name="hn-analysis">\n# hn-')
    assert run_skill(satchel, "hn") == (
        "Error: Unknown skill 'hn'. Available: "
        "chinese-writing, hn-analysis, incremental-update, web-extraction"
    )


@pytest.mark.req("D2", "D3", "D6")
def test_a_skill_comes_through_a_tool_result_and_the_prompts_stay(news):
    session = news.open().session()
    before = session.prompt
    reply = session.call("Skill", {"skill": "chinese-writing"})
    assert reply.text.startswith('<skill-loaded name="chinese-writing"')
    assert "# chinese-writing 指南" in reply.text
    assert "指南" not in session.prompt
    assert session.prompt == before
    assert ABOUT["web-extraction"] in session.child().prompt
    missing = session.call("Skill", {"skill": "reddit"})
    assert (missing.error.code, "web-extraction" in missing.text) == ("NOT_FOUND", True)


@pytest.mark.req("C3")
@pytest.mark.parametrize("words", ["幫我寫中文報告", "使用 chinese-writing 技能"])
def test_a_request_in_chinese_finds_the_skill(news, words):
    assert news.open().which(words).matches[0].skill.name == "chinese-writing"


@pytest.mark.req("A9", "D5")
def test_a_broken_skill_is_skipped_and_a_missing_folder_is_empty(news, project, tmp_path, caplog):
    news.write({".skills/hn-analysis/SKILL.md": "# 沒有 frontmatter\n"})
    assert len(news.open().list_skills()) == 3
    assert ".skills/hn-analysis" in caplog.text
    empty = tmp_path / "empty"
    empty.mkdir()
    satchel = type(news.open()).for_project(empty, create_missing=True)
    assert (satchel.list_skills(), satchel.session().prompt) == ([], "")
    assert (empty / ".agents/skills").is_dir()


@pytest.mark.req("D2")
def test_after_one_yes_the_commands_work(news):
    shown = news.say_yes("list")
    assert all(name in shown for name in ABOUT)
    assert "# web-extraction 指南" in news.run("show", "web-extraction", "--as-model").out
    assert "chinese-writing" in news.run("search", "幫我寫中文報告").out
