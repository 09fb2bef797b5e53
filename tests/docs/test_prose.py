"""The prose of the documentation gets no harder to read."""

from __future__ import annotations

from pathlib import Path

import prose_figures

DOCS = Path(__file__).parents[2] / "docs"
MAX_LONG = 0.015
"""Share of sentences with more than 30 words; 0.2 had 1.1 %."""
MAX_WITHOUT_VERB = 0.005
MAX_WHO = 0


def test_sentences_are_whole_and_short():
    figures, places = prose_figures.measure(DOCS)
    listing = "\n".join(f"{path}: {fault}: {sentence}" for path, fault, sentence in places)
    assert figures.sentences > 500
    assert figures.long <= MAX_LONG * figures.sentences, listing
    assert figures.without_verb <= MAX_WITHOUT_VERB * figures.sentences, listing
    assert figures.begins_with_who <= MAX_WHO, listing


def test_each_pattern_is_found():
    assert list(prose_figures.faults("Who reads that, waits.")) == ["begins_with_who"]
    assert list(prose_figures.faults("Five minutes, and no server.")) == ["without_verb"]
    assert list(prose_figures.faults("It is " + "very " * 30 + "long.")) == ["long"]
    assert list(prose_figures.faults("Skills are folders.")) == []
