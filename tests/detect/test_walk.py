"""The walk of a request from `Satchel.which` to the `Detection`, counted at run time.

A stop is a call of a function of the package that is handed the request, or a text made from it.
Terms are no text any more: each is a word by itself.
"""

from __future__ import annotations

import os
import sys
from typing import NamedTuple

import pytest

import satchel as package
from satchel import Satchel
from satchel.detect import hybrid, mentions, tokenizer

SOURCE = os.path.dirname(package.__file__)
MARKS = ("invoices", "totals")
"""Words at the beginning and at the end of every request: a text that has both is the request."""
MAX_STOPS = 15
MAX_FILES = 6
REQUESTS = {
    "plain": "Merge the invoices of last month into one table with a row of totals",
    "named": "Merge the invoices with the pdf-forms skill and add a row of totals",
    "excluded": "Merge invoices, but don't use pdf-forms, and add a row of totals",
    "unknown": "Merge invoices with the pdf-from skill, use skill terrafrom too, and add totals",
    "chinese": "把 invoices 合并成一个表格，不要用 pdf-forms，最后一行写上 totals",
    "long": f"Merge the invoices. {'Each line of this log is noise. ' * 20} Add a row of totals",
}


class Stop(NamedTuple):
    file: str
    function: str


@pytest.fixture(scope="module")
def satchel(tmp_path_factory):
    """A project with an index."""
    root = tmp_path_factory.mktemp("walk")
    texts = {
        "pdf-forms": "Fill in PDF forms and merge invoices into one file",
        "spreadsheets": "Merge tables and add a row of totals",
        "mail": "Answer letters of customers",
    }
    texts |= {f"other-{number}": f"Does the thing number {number}" for number in range(40)}
    for name, text in texts.items():
        folder = root / "project" / ".agents" / "skills" / name
        folder.mkdir(parents=True)
        (folder / "SKILL.md").write_text(f"---\nname: {name}\ndescription: {text}\n---\nDo it.\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SATCHEL_HOME", str(root / "home"))
        found = Satchel.for_project(root / "project")
        found.detector.prepare(found.library.snapshot().for_model)
        yield found


def is_request(value: object) -> bool:
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    if isinstance(value, str):
        return all(mark in value for mark in MARKS)
    return isinstance(value, tuple) and any(is_request(one) for one in value[:9])


def walk(satchel: Satchel, request: str) -> list[Stop]:
    stops: list[Stop] = []

    def profile(frame, event, _):
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(SOURCE):
            names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
            handed = [frame.f_locals[name] for name in names if name not in ("self", "cls")]
            if any(map(is_request, handed)):
                stops.append(Stop(os.path.relpath(code.co_filename, SOURCE), code.co_qualname))

    sys.setprofile(profile)
    try:
        satchel.which(request, record=False)
    finally:
        sys.setprofile(None)
    return stops


@pytest.mark.parametrize("request_", REQUESTS.values(), ids=REQUESTS)
def test_a_request_walks_straight_to_the_detection(satchel, request_):
    satchel.which(request_, record=False)  # tables and lookups are made by the first request
    stops = walk(satchel, request_)
    files = [stop.file for stop in stops]
    visits = [file for at, file in enumerate(files) if at == 0 or files[at - 1] != file]
    assert 5 < len(stops) <= MAX_STOPS, stops
    assert len(set(visits)) <= MAX_FILES, visits
    assert len(visits) == len(set(visits)), f"a file is entered twice: {stops}"


@pytest.mark.parametrize("request_", REQUESTS.values(), ids=REQUESTS)
def test_a_request_is_parsed_and_tokenised_once(satchel, request_):
    names = [stop.function for stop in walk(satchel, request_)]
    assert names.count(mentions.parse_mentions.__qualname__) <= 1
    assert names.count(mentions.normalise.__qualname__) <= 1
    assert names.count(tokenizer.split_pieces.__qualname__) <= 1
    assert names.count(tokenizer.GoalText.__new__.__qualname__) <= 1


def test_skills_that_are_not_offered_are_found_by_the_same_parse(satchel, monkeypatch):
    skills = satchel.library.snapshot().for_model
    hidden = skills[:1]
    calls = []
    fold = mentions.normalise
    monkeypatch.setattr(mentions, "normalise", lambda text: calls.append(text) or fold(text))
    request = f"Use the {hidden[0].name} skill on the invoices"
    answer = satchel.detector.look(request, skills[1:], hidden=lambda: hidden)
    assert answer.unavailable == hidden
    assert calls.count(request) == 1


def test_reasons_are_made_when_they_are_read(satchel, monkeypatch):
    made = []

    def explain(skill, *rest, **more):
        made.append(skill.name)
        return before(skill, *rest, **more)

    before = hybrid.explain
    monkeypatch.setattr(hybrid, "explain", explain)
    answer = satchel.which(REQUESTS["plain"], record=False)
    assert answer.matches
    assert answer.runners_up
    assert made == []
    first = answer.matches[0]
    assert "totals" in first.reason
    assert "description: totals" in first.evidence
    assert first.replace(score=2.0).reason == first.reason
    assert made == [first.name]
