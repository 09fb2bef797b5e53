"""The loops without a framework do what every adapter promises."""

from __future__ import annotations

import pytest

from framework_chat import converse


@pytest.mark.timeout(90)
def test_the_loop_on_the_anthropic_sdk_gets_through_the_conversation(tmp_path):
    server = converse("anthropic_loop.py", tmp_path, marks_errors=True)
    assert {request.provider for request in server.requests} == {"anthropic"}


@pytest.mark.timeout(90)
def test_the_loop_on_the_openai_sdk_gets_through_the_conversation(tmp_path):
    server = converse("openai_loop.py", tmp_path)
    assert {request.provider for request in server.requests} == {"openai"}
