"""What is kept of loaded skills: the latest, within a bound."""

from __future__ import annotations

from satchel.tools.loaded import LoadedSkills


def test_memory_for_loaded_skills_is_bounded(desk):
    for number in range(300):
        desk.skill(f"s{number:03d}")
    look = desk.library.snapshot()
    kept = LoadedSkills(desk.library.seals)
    for one in look.skills:
        kept.load(one, look, fresh=True)
    folders = kept.folders()
    assert len(folders) == 256
    assert folders[0].endswith("/s299")
