"""Which scripts a model reads, by its vocabulary or by a trial."""

from __future__ import annotations

import numpy as np
import pytest

from satchel.detect.embeddings import open_embedder
from satchel.detect.embeddings.coverage import (
    TWINS,
    CoverageProbe,
    covered_scripts,
)

CHINESE = "把几个 PDF 合并成一个文件"
JAPANESE = "複数のPDFをひとつにまとめる"
KOREAN = "여러 PDF 파일을 하나로 합치기"
RUSSIAN = "Объединить несколько файлов PDF в один"


@pytest.mark.req("C10")
@pytest.mark.parametrize("text", [CHINESE, JAPANESE, KOREAN, RUSSIAN, "ελληνικά", "العربية"])
def test_an_english_model_is_off_for_other_scripts(table, text):
    assert not open_embedder(f"model2vec:{table}").covers(text)


@pytest.mark.parametrize(
    "text",
    [
        "merge the files",
        "merge the pdf files 😀 — “now”",
        "merge the files of the house in the garden, 合并",
        "",
        "12345 !!",
    ],
)
def test_english_with_a_little_of_something_else_is_covered(table, text):
    assert open_embedder(f"model2vec:{table}").covers(text)


def test_words_that_are_all_unknown_are_not_covered(table):
    assert not open_embedder(f"model2vec:{table}").covers("zqx vvvq kkkj wwwz")


def test_single_letters_of_a_script_do_not_make_it_covered():
    english = [f"word{at}" for at in range(5_000)] + [chr(at) for at in range(0x430, 0x450)]
    english += [chr(0x4E00 + at) for at in range(400)]
    assert covered_scripts(english) == {"LATIN"}


def test_byte_level_vocabularies_are_read_as_text():
    visible = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(256) if byte not in visible]
    letters = {byte: chr(byte) for byte in visible} | {
        byte: chr(256 + at) for at, byte in enumerate(hidden)
    }
    words = [f"при{chr(0x430 + at % 32)}{chr(0x430 + at // 32)}" for at in range(1_000)]
    pieces = ["Ġ" + "".join(letters[byte] for byte in word.encode()) for word in words]
    assert "CYRILLIC" in covered_scripts([*pieces, *(f"word{at}" for at in range(2_000))])


def test_a_trial_tells_a_model_that_reads_from_one_that_does_not():
    meaning = np.eye(4, dtype=np.float32)
    known = {
        text: meaning[at] for script in ("LATIN", "CJK") for at, text in enumerate(TWINS[script])
    }
    calls: list[int] = []

    def embed(texts):
        calls.append(len(texts))
        return np.array([known.get(text, meaning[0]) for text in texts])

    trial = CoverageProbe(embed)
    assert trial.reads("CJK")
    assert not trial.reads("HANGUL")
    assert not trial.reads("KLINGON")
    assert trial.reads("CJK")
    assert calls == [8, 8]
