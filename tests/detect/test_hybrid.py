"""The hybrid detector: ranked by fields, in any language, with a verdict and an account."""

from __future__ import annotations

import random

import pytest

from in_memory import skill
from satchel import Satchel
from satchel.detect.hybrid import HybridDetector as Hybrid
from satchel.detect.match_reasons import LowercaseHeaders, QueryTerms, explain
from satchel.detect.ranking import drop_near_duplicates
from satchel.detect.skill_texts import make_header_row
from satchel.detect.tokenizer import GoalText
from satchel.skill import Skill, SkillOrigin
from satchel.testing import make_skill

ENGLISH = (
    skill("contract-review", "Reviews contracts for risky clauses, deadlines and liability."),
    skill("invoice-reader", "Reads invoices and receipts into a table of amounts and dates."),
    skill("release-notes", "Writes release notes from merged pull requests and commit messages."),
    skill("video-subtitles", "Makes subtitles for videos and translates them."),
    skill("database-backup", "Backs up a PostgreSQL database and restores it."),
    skill("garden-planner", "Plans vegetable beds by season, sun and neighbours."),
)
CHINESE = (
    skill("hetong-shencha", "审查合同条款，找出付款、违约和保密方面的风险。"),
    skill("fapiao-shibie", "识别发票和收据，把金额和日期整理成表格。"),
    skill("zhoubao", "根据任务记录撰写每周工作周报。"),
    skill("zimu", "为视频生成字幕，并翻译成其他语言。"),
    skill("caiyuan", "按季节和日照规划菜园的种植。"),
)
JAPANESE = (
    skill("keiyaku", "契約書の条項を確認し、支払いや違約のリスクを指摘します。"),
    skill("ryoushuu", "領収書と請求書を読み取り、金額と日付を表にまとめます。"),
    skill("shuhou", "作業記録から週報を書きます。"),
    skill("jimaku", "動画に字幕を付けて翻訳します。"),
)
KOREAN = (
    skill("gyeyak", "계약서 조항을 검토하여 지급과 위약의 위험을 찾아냅니다."),
    skill("yeongsu", "영수증과 청구서를 읽어 금액과 날짜를 표로 정리합니다."),
    skill("jubo", "작업 기록에서 주간 보고서를 작성합니다."),
    skill("jamak", "동영상에 자막을 달고 번역합니다."),
)
MIXED = ENGLISH + CHINESE + JAPANESE + KOREAN


def detector_of(**given) -> Hybrid:
    # These skills lie nowhere: nothing is read.
    return Hybrid(**given, rows=make_header_row)


GOALS = [
    ("Can you check this contract for risky clauses before I sign?", "contract-review"),
    ("Turn these receipts into a table with dates and amounts", "invoice-reader"),
    ("write the notes for our next release from the commits", "release-notes"),
    ("I need a restore of yesterday's PostgreSQL backup", "database-backup"),
    ("请帮我看看这份合同的违约条款有没有风险", "hetong-shencha"),
    ("把这些发票的金额整理成表格", "fapiao-shibie"),
    ("帮我写这周的工作周报", "zhoubao"),
    ("给这个视频加上中文字幕", "zimu"),
    ("この契約書の条項にリスクがないか確認してください", "keiyaku"),
    ("領収書の金額を表にまとめて", "ryoushuu"),
    ("今週の週報を書いてほしい", "shuhou"),
    ("動画に字幕を付けて", "jimaku"),
    ("이 계약서 조항에 위험이 있는지 검토해 주세요", "gyeyak"),
    ("영수증 금액을 표로 정리해 줘", "yeongsu"),
    ("이번 주 주간 보고서를 작성해 줘", "jubo"),
    ("동영상에 자막을 달아 줘", "jamak"),
]


@pytest.mark.req("C10")
@pytest.mark.parametrize(("goal", "name"), GOALS)
def test_skills_of_four_languages_do_not_disturb_each_other(goal, name):
    answer = detector_of().look(goal, MIXED)
    assert answer.matches
    assert answer.matches[0].name == name


@pytest.mark.parametrize(
    "goal",
    [
        "hello there",
        "thanks, that is all",
        "What is the capital of Norway?",
        "今天天气怎么样",
        "ありがとう",
        "고마워요",
        "",
        "???",
        "🎉",
    ],
)
def test_no_skill_fits_small_talk(goal):
    answer = detector_of().look(goal, MIXED)
    assert answer.matches == []
    assert answer.fit < answer.threshold


def test_near_duplicates_are_collapsed():
    text = "Reviews contracts for risky clauses, deadlines, liability and payment terms."
    skills = (skill("contract-review", text), skill("contracts", text), skill("legal", text))
    answer = detector_of().look("review the liability clauses of a contract", (*skills, *CHINESE))
    assert [match.name for match in answer.matches] == ["contract-review"]
    assert {copy for copy, _ in answer.collapsed} == {"contracts", "legal"}


def test_the_name_alone_comes_first():
    skills = (skill("review", "Anything"), skill("code-review", "review review review"))
    assert detector_of().rank("code-review", skills)[0].name == "code-review"
    assert detector_of().rank("Code Review", skills)[0].name == "code-review"
    answer = detector_of().look("review", skills)
    assert answer.matches[0].name == "review"
    assert answer.fit == 1.0
    assert "called by its name" in answer.matches[0].reason


def test_half_a_word_is_found_after_whole_ones():
    found = detector_of().rank("subtit", ENGLISH)
    assert [match.name for match in found] == ["video-subtitles"]


def test_a_rank_explanation_has_rank_scores_and_rivals():
    detector = detector_of()
    place = detector.place("restore the contract database", ENGLISH, ENGLISH[0])
    assert place.rank == 2
    assert place.of == len(ENGLISH)
    assert place.ahead[0][0].name == "database-backup"
    assert place.fields["head"] > 0
    assert place.missing[:2] == ("restore", "database")
    nowhere = detector.place("restore the database", ENGLISH, ENGLISH[-1])
    assert nowhere.rank == 0
    assert nowhere.match is None


def test_the_same_goal_has_the_same_answer():
    one = detector_of().look(GOALS[0][0], MIXED)
    other = detector_of().look(GOALS[0][0], tuple(reversed(MIXED)))
    assert one.matches == other.matches


def test_the_body_and_the_triggers_are_searched(tmp_path):
    place = tmp_path / "skills"
    make_skill(place, "alpha", "Does one thing well for people.", body="Use the zyzzyva tables.\n")
    make_skill(place, "beta", "Does another thing for people.", triggers=["quokka census"])
    make_skill(place, "gamma", "Does a third thing.", when_to_use="When somebody counts wombats.")
    make_skill(place, "delta", "Does a fourth thing.", tags=["numbat"])
    found = Satchel.for_project(tmp_path, trust="all", builtin=False)
    for word, name in [
        ("zyzzyva", "alpha"),
        ("quokka", "beta"),
        ("wombat", "gamma"),
        ("numbat", "delta"),
    ]:
        assert found.search(word)[0].name == name, word


def test_long_instructions_make_no_runner_up(tmp_path):
    place = tmp_path / "skills"
    make_skill(place, "count-wombats", "Counts wombats in a field by night.")
    body = "When somebody counts wombats in a field, be it by night, read all of this.\n" * 50
    make_skill(place, "guide", "Everything there is to know.", body=body)
    make_skill(place, "feed-wombats", "Feeds wombats by night.")
    found = Satchel.for_project(tmp_path, trust="all", builtin=False)
    answer = found.which("count the wombats in the field by night")
    assert answer.names[0] == "count-wombats"
    assert "guide" not in answer.names
    assert "guide" in [match.name for match in answer.runners_up]


def many(count: int, first: str = "other") -> tuple[Skill, ...]:
    return tuple(
        skill(f"{first}-{at}", f"Handles zebra{at} widgets of the kind {at}.")
        for at in range(count)
    )


@pytest.mark.req("C10")
def test_the_old_text_of_a_changed_skill_counts_no_more_while_the_index_catches_up(
    tmp_path, monkeypatch
):
    """A hundred old texts would also take all places of a leg."""
    kept = (*many(300), skill("pages", "Splits documents and turns pdf pages into large images."))
    before = tuple(skill(f"t{at:03}", "Turns pdf pages into images.", stamp=1) for at in range(100))
    after = tuple(skill(f"t{at:03}", f"Bakes bread, kind {at}.", stamp=2) for at in range(100))
    detector = detector_of(folder=str(tmp_path))
    detector.prepare(kept + before)
    upkeep = detector._sync  # noqa: SLF001
    monkeypatch.setattr(upkeep, "_run_thread", lambda _skills: None)  # it never catches up
    answer = detector.look("turn the pdf pages into images", kept + after)
    assert "401" in answer.notes[0]
    assert "301" in answer.notes[0]
    assert [match.name for match in answer.matches] == ["pages"]
    assert all(match.name[0] != "t" for match in answer.runners_up)
    assert detector.look("bake some bread", kept + after).matches[0].name[0] == "t"


REVIEWS = tuple(
    skill(f"{word.lower()}-review", f"Reviews {word} code for bugs and missing tests.")
    for word in ("Ada", "Bash", "Cobol", "Go", "Rust")
)
NAMED = (
    *REVIEWS,
    skill("next-js", "Builds Next apps with Next routing."),
    skill("vue-js", "Builds Vue apps with Vue routing."),
    skill("user-admin", "Manages users: creates one, resets a password."),
    skill("second-opinion", "Says what somebody else would think."),
    skill("csharp", "Writes C# code."),
    skill("cpp", "Writes C++ code."),
    skill("c-lang", "Writes C code."),
)


@pytest.mark.parametrize(
    ("goal", "name"),
    [
        ("review my Go code", "go-review"),
        ("review my go code", "go-review"),
        ("build a Next app", "next-js"),
        ("list all users", "user-admin"),
        ("I would like a second opinion", "second-opinion"),
        ("write C# code", "csharp"),
        ("write C++ code", "cpp"),
        ("write C code", "c-lang"),
    ],
)
def test_stop_words_may_be_names(goal, name):
    assert detector_of().look(goal, NAMED).matches[0].name == name


def test_a_search_is_in_the_order_of_its_scores():
    some = (
        skill("code", "Writes code, code and more code."),
        skill(
            "code-check", "Reviews a long change of somebody else for bugs, before it is merged."
        ),
        skill("text", "Writes texts."),
    )
    found = detector_of().rank("code bugs", some)
    assert found[0].name == "code-check"
    assert [match.score for match in found] == sorted((m.score for m in found), reverse=True)


def test_one_letter_is_no_half_word():
    assert not detector_of().rank("q", (skill("sql", "Writes queries."),))
    assert detector_of().rank("qu", (skill("sql", "Writes queries."),))


SHIPPED = SkillOrigin("/shipped", "builtin", "shipped")


def test_a_built_in_skill_is_not_selected_for_its_verb_alone():
    some = (
        skill("write-a-skill", "Write or improve a SKILL.md. 写技能", origin=SHIPPED),
        skill("review-a-skill", "Review a skill before it is trusted.", origin=SHIPPED),
    )
    detector = detector_of()
    for goal in ("write an api", "write a letter to my landlord", "review my change"):
        answer = detector.look(goal, some)
        assert not answer.matches
        assert answer.fit == 0
        both = (*some, skill("api", "Writes an API."))
        assert all(match.name == "api" for match in detector.look(goal, both).matches)
    for goal in ("write a skill for invoices", "帮我写技能", "write-a-skill"):
        assert detector.look(goal, some).matches[0].name == "write-a-skill"
    # Who searches finds it all the same.
    assert detector.rank("write", some)[0].name == "write-a-skill"


def is_twin(one, other, goal=()):
    return drop_near_duplicates([one, other], goal)[1] == [(1, 0)]


def test_skills_that_the_request_distinguishes_are_no_copies():
    text = (
        "Sends a message to {} with a title, a text, a link and an attachment when somebody asks "
        "for it, and waits until the other side has read, answered or refused every part of it"
    )
    one, other = skill("send-a", text.format("Discord")), skill("send-b", text.format("Telegram"))
    assert is_twin(one, other)
    assert is_twin(one, other, {"messag"})
    assert not is_twin(one, other, {"messag", "telegram"})


def test_short_descriptions_are_copies_only_under_one_name():
    assert not is_twin(skill("a", "Helps with it."), skill("b", "Helps with it."))
    assert is_twin(skill("a", "Helps with it."), skill("a", "Helps with it."))


@pytest.mark.parametrize("seed", range(10))
def test_in_a_changed_library_a_name_leads_to_the_skill_of_now(seed):
    chance, detector = random.Random(seed), detector_of()
    names = [f"Name {number}" for number in range(20)]
    skills = [skill(chance.choice(names), id=f"s{number}") for number in range(100)]
    for turn in range(1, 9):
        library = tuple(Skill(one.head, one.origin) for one in skills)  # as after another look
        for name in sorted({one.name for one in library})[:4]:
            found, new = (one.look(name, library).matches[0] for one in (detector, detector_of()))
            assert found.skill == new.skill
        at = chance.randrange(len(skills))
        match chance.choice(["text", "name", "gone", "new", "elsewhere"]):
            case "text":
                skills[at] = skill(skills[at].name, f"Text {turn}.", skills[at].id, stamp=turn)
            case "name":
                skills[at] = skill(chance.choice(names), id=skills[at].id)
            case "gone":
                del skills[at]
            case "new":
                skills.insert(at, skill(chance.choice(names), id=f"n{turn}"))
            case _:
                skills[at] = skills[at]._replace(origin=SHIPPED)


# --- evidence -----------------------------------------------------------------------------


def evidence(one, goal: str, **parts: float) -> tuple[str, ...]:
    texts = LowercaseHeaders().texts_of(one)
    return explain(one, texts, QueryTerms(GoalText(goal).terms), parts)[1]


@pytest.mark.parametrize(
    ("text", "goal", "words"),
    [
        ("Reviews contracts.", "review this contract", ["reviews", "contracts"]),
        ("Previews only.", "review this", []),
        ("Lists libraries.", "a library", ["libraries"]),
        ("审查合同条款", "合同", ["合同"]),
        ("नोटबुकहरू बनाउन", "बनाउन नोटबुकहरू", ["बनाउन", "नोटबुकहरू"]),
        ("Ｐｄｆ forms", "pdf", ["pdf"]),
    ],
)
def test_evidence_has_the_spelling_of_the_skill(text, goal, words):
    assert list(evidence(skill("x", text), goal)) == [f"description: {word}" for word in words]


def test_evidence_names_a_word_once_with_its_first_field():
    one = skill("pdf-forms", "Fills in PDF forms.", when_to_use="A form is empty.")
    told = ("name: pdf", "name: forms", "description: fills", "when_to_use: empty")
    assert evidence(one, "fill the empty PDF form") == told


def test_names_of_one_kind_of_file_are_alike():
    skills = tuple(
        skill(name, description)
        for name, description in {
            "merit-review": "Analyzes a filing for securities. Use when a filing is reviewed.",
            "tables": "Reads and writes xlsx. Use when a workbook is opened.",
            "decks": "Makes pptx. Use when an audience waits.",
            "letters": "Writes docx. Use when a letter is asked for.",
            "comma": "Cleans csv. Use when columns are crooked.",
        }.items()
    )
    detector = Hybrid(rows=make_header_row)
    detector.prepare(skills)
    for words, name in {
        "analyse excel file": "tables",
        "spreadsheet": "tables",
        "powerpoint": "decks",
        "slides": "decks",
        "word": "letters",
        "csv": "comma",
        "filing": "merit-review",
    }.items():
        assert detector.rank(words, skills, 2)[0].name == name, words
    assert "`xlsx`" in str(detector.rank("excel", skills, 1)[0].reason)
    assert detector.look("excel", skills).names[0] == "tables"
    assert detector.rank("the file", skills, 1)[:1] == []
