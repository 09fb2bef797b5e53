"""The vectors of skills: made once, found again, rebuilt when lost."""

from __future__ import annotations

import glob

import numpy as np
import pytest

from satchel.detect.embeddings import store as store_module
from satchel.detect.embeddings.store import VectorStore
from satchel.errors import ModelFailed

PDF, REVIEW, DINNER = (f"/skills/{name}/SKILL.md" for name in ("pdf", "review", "dinner"))
SKILLS = {
    PDF: ("pdf", "merge and split pdf files"),
    REVIEW: ("review", "review code of a pull request"),
    DINNER: ("dinner", "plan a week of dinners"),
}


class Letters:
    """An embedder that counts letters and records what it was asked."""

    hurrying = None

    def __init__(self, name: str = "letters-1", dimensions: int = 64) -> None:
        self.id = name
        self.dimensions = dimensions
        self.asked: list[str] = []
        self.broken: Exception | None = None

    def embed(self, texts):
        if self.broken is not None:
            raise self.broken
        self.asked += texts
        made = np.zeros((len(texts), self.dimensions), np.float32)
        for row, text in enumerate(texts):
            for at in range(len(text) - 1):
                made[row, (ord(text[at]) * 31 + ord(text[at + 1])) % self.dimensions] += 1
            made[row] -= made[row].mean()
        return made / np.maximum(np.linalg.norm(made, axis=1, keepdims=True), 1e-9)


@pytest.fixture
def letters():
    return Letters()


def opened(folder, letters: Letters) -> VectorStore:
    return VectorStore(str(folder) if folder else None, letters)


def queries(*texts: str):
    return Letters().embed(texts)


def many(count: int) -> dict[str, tuple[str, str]]:
    return {
        f"/skills/{at}/SKILL.md": (f"s{at}", f"skill number {at * 7919 % 10007} does {at}")
        for at in range(count)
    }


def files(folder, ending: str) -> list[str]:
    return glob.glob(f"{folder}/*/*{ending}")


@pytest.mark.req("C10")
@pytest.mark.parametrize("on_disk", [True, False])
def test_the_nearest_skill_comes_first_by_either_text(tmp_path, letters, on_disk):
    store = opened(tmp_path if on_disk else None, letters)
    store.fill(SKILLS.items())
    for query in ("merge and split pdf files", "pdf"):
        assert store.nearest(queries(query), 1) == [PDF]
    assert store.nearest(queries("pdf", "dinner"), 1) == [PDF, DINNER]
    found, blocks = store.vectors([PDF, "/nowhere/SKILL.md"])
    assert found == [PDF]
    assert np.allclose(blocks[0], letters.embed(SKILLS[PDF]))


def test_a_skill_is_embedded_once_and_again_when_its_texts_change(tmp_path, letters):
    opened(tmp_path, letters).fill(SKILLS.items())
    assert len(letters.asked) == 6
    store = opened(tmp_path, letters)
    assert store.missing([*SKILLS, "/new/SKILL.md"]) == ["/new/SKILL.md"]
    told: list[int] = []
    store.fill({**SKILLS, PDF: ("pdf", "fill in forms")}.items(), progress=told.append)
    assert letters.asked[6:] == ["pdf", "fill in forms"]
    assert told == [3]
    again = opened(tmp_path, letters)
    assert np.allclose(again.vectors([PDF])[1][0, 1], letters.embed(["fill in forms"])[0])
    assert (len(again), sorted(again.stored_keys())) == (3, sorted(SKILLS))
    assert len(files(tmp_path, ".npy")) == 1
    again.fill([(PDF, ("pdff", "ill in forms"))])  # where one text ends counts
    assert letters.asked[-2:] == ["pdff", "ill in forms"]


def test_gone_skills_are_forgotten_and_stay_so(tmp_path, letters):
    store = opened(tmp_path, letters)
    store.fill(SKILLS.items())
    store.fill([], gone=[PDF, "/never/SKILL.md"])
    for one in (store, opened(tmp_path, letters)):
        assert len(one) == 2
        assert one.missing(SKILLS) == [PDF]
        assert PDF not in one.nearest(queries("pdf"), 9)
    store.fill(SKILLS.items())
    assert PDF in opened(tmp_path, letters).nearest(queries("pdf"), 9)
    store.fill([], gone=SKILLS)
    assert len(opened(tmp_path, letters)) == 0


def test_vectors_of_two_models_are_never_mixed(tmp_path, letters):
    store = opened(tmp_path, letters)
    store.fill(SKILLS.items())
    assert opened(tmp_path, Letters("letters-2")).missing(SKILLS) == list(SKILLS)
    # A server has another model under the same name: its vectors have another length.
    assert store.nearest(np.zeros((1, 32), np.float32), 9) == []
    assert store.missing(SKILLS) == list(SKILLS)
    other = opened(tmp_path, Letters(letters.id, 32))
    other.fill(list(SKILLS.items())[:1], rebuild=True)
    assert opened(tmp_path, letters).stored_keys() == [PDF]


def test_only_allowed_skills_are_found(tmp_path, letters):
    store = opened(tmp_path, letters)
    store.fill(many(300).items())
    query = queries("skill number 3754 does 3")
    order = store.nearest(query, 300)
    assert len(order) == 300
    own = set(order[100:200])  # others are nearer
    assert store.nearest(query, 50, own) == order[100:150]
    assert store.nearest(query, 500, own) == order[100:200]
    assert store.nearest(query, 5, ["/nowhere"]) == []


def test_strange_keys_come_back_as_they_were(letters, tmp_path):
    keys = ["/a\nb\0c/SKILL.md", "/\udcff/SKILL.md", "/技能/SKILL.md", ""]
    opened(tmp_path, letters).fill((key, ("name", f"text {at}")) for at, key in enumerate(keys))
    assert sorted(opened(tmp_path, letters).nearest(queries("text"), 9)) == sorted(keys)


# --- faults -------------------------------------------------------------------------------


def _spoil(path: str, how: str) -> None:
    with open(path, "rb") as file:
        data = bytearray(file.read())
    damaged = {
        "empty": b"",
        "short": data[:-100],
        "text": b"# not vectors\n" * 50,
        "zeros": data[:-512] + bytes(512),
        "values": data[:-256] + b"\x7f" * 256,
    }
    with open(path, "wb") as file:
        file.write(damaged[how])


@pytest.mark.parametrize(
    ("file", "how"),
    [(".npy", how) for how in ("empty", "short", "text", "zeros", "values")]
    + [(".json", how) for how in ("empty", "short", "text")],
)
def test_a_damaged_file_is_rebuilt(tmp_path, letters, file, how):
    opened(tmp_path, letters).fill(SKILLS.items())
    (path,) = files(tmp_path, file)
    _spoil(path, how)
    store = opened(tmp_path, letters)
    assert store.nearest(queries("pdf"), 9) == []
    assert store.missing(SKILLS) == list(SKILLS)
    store.fill(SKILLS.items())
    assert opened(tmp_path, letters).nearest(queries("pdf"), 1) == [PDF]


def test_damage_that_shows_only_when_a_vector_is_used_is_rebuilt(tmp_path, letters, monkeypatch):
    monkeypatch.setattr("satchel.detect.embeddings.store._SAMPLED_SKILL_COUNT", 1)
    opened(tmp_path, letters).fill(SKILLS.items())
    _spoil(files(tmp_path, ".npy")[0], "values")
    store = opened(tmp_path, letters)
    assert store.missing(SKILLS) == []
    assert store.vectors(SKILLS)[0] == []
    assert store.missing(SKILLS) == list(SKILLS)


def test_vectors_made_before_a_failure_are_kept(tmp_path, letters):
    def stop(_done: int) -> None:
        letters.broken = ModelFailed("the server is away")

    with pytest.raises(ModelFailed):
        opened(tmp_path, letters).fill(many(600).items(), progress=stop)
    assert len(opened(tmp_path, letters)) == store_module.MAX_BATCH_SKILLS


def test_two_processes_may_write_at_once(tmp_path, letters):
    one, other = opened(tmp_path, letters), opened(tmp_path, letters)
    skills = list(many(40).items())
    one.fill(skills[:20])
    other.fill(skills[20:])
    one.fill([(skills[1][0], ("name", "from one"))])
    other.fill([(skills[21][0], ("name", "from the other"))])
    again = opened(tmp_path, letters)
    assert len(again) == 40
    for key, text in ((skills[1][0], "from one"), (skills[21][0], "from the other")):
        assert np.allclose(again.vectors([key])[1][0, 1], letters.embed([text])[0])
