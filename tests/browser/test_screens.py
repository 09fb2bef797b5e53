"""The screenshots of the documentation exist and are made by the script."""

from __future__ import annotations

import screens


def test_the_pictures_of_the_documentation_are_those_of_the_script():
    assert screens.wrong_names() == []


def test_every_page_has_a_name_of_its_own():
    names = [shot.name for shot in screens.SHOTS]
    assert len(set(names)) == len(names)
    assert not any(name.endswith(("-dark", "-zh")) for name in names)
