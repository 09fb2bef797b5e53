"""Trimming of conversations, on messages of pydantic-ai alone."""

from __future__ import annotations

from pydantic_ai.messages import (
    BinaryContent,
    ModelRequest,
    ModelResponse,
    RetryFeedbackPart,
    RetryInfo,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)

from satchel import Satchel
from satchel.agent.history_trimmer import (
    CHOSEN,
    IMAGE_CHARS,
    HistoryTrimmer,
    history_chars,
    sync_session,
)


def turn(question, answer, result="", tool="Skill"):
    found = [ModelRequest(parts=[UserPromptPart(question)])]
    if result:
        call = ToolCallPart(tool, {"name": "x"}, tool_call_id="c1")
        back = ToolReturnPart(tool, result, tool_call_id="c1")
        found += [ModelResponse(parts=[call]), ModelRequest(parts=[back])]
    return [*found, ModelResponse(parts=[TextPart(answer)])]


def test_pictures_files_thoughts_and_retries_take_room():
    picture = BinaryContent(b"x" * 9, media_type="image/png")
    file = BinaryContent(b"x" * 700, media_type="application/pdf")
    retry = RetryFeedbackPart("No output.", retry=RetryInfo(cause="no_output"))
    assert history_chars([ModelRequest(parts=[UserPromptPart(["ab", picture])])]) == 2 + IMAGE_CHARS
    assert history_chars([ModelRequest(parts=[UserPromptPart([file])])]) == 700
    assert (
        history_chars([ModelRequest(parts=[ToolReturnPart("Shot", picture, "c1")])]) >= IMAGE_CHARS
    )
    assert (
        history_chars([ModelResponse(parts=[ThinkingPart("hm" * 50, signature="s" * 10)])]) == 110
    )
    assert history_chars([ModelRequest(parts=[retry])]) >= len("No output.")


def test_what_must_stay_is_not_shortened_again_in_every_request():
    """Each time costs the provider's cache, so the next time is a quarter of the limit away."""
    shortener = HistoryTrimmer(4_000)
    messages = turn("q" * 6_000, "x", "r" * 900, tool="Get")[:3]
    touched = []
    for number in range(8):
        call = ToolCallPart("Get", {}, tool_call_id=f"d{number}")
        back = ToolReturnPart("Get", "r" * 450, tool_call_id=f"d{number}")
        messages += [ModelResponse(parts=[call]), ModelRequest(parts=[back])]
        kept = shortener.trim(messages)
        touched.append(kept is not messages)
        messages = list(kept)
    assert touched == [True, False, False, True, False, False, True, False]


def test_text_beside_a_tool_result_is_no_evidence_of_a_loaded_skill(project):
    session = Satchel.for_project(project, trust="all", builtin=False, packaged=False).session()
    text = f"{CHOSEN}\n\n{session.call('Skill', {'name': 'code-review'}).text}"
    chosen = ModelRequest(parts=[UserPromptPart(text)])
    assert sync_session(session, [chosen]) == []
    beside = [ToolReturnPart("Fetch", "x", tool_call_id="c1"), UserPromptPart(text)]
    assert sync_session(session, [ModelRequest(parts=beside)]) == ["code-review"]
