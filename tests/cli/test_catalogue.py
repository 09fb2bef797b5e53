"""The command `catalogue`."""

from __future__ import annotations

import json


def test_the_block_is_data_and_the_account_is_for_people(terminal):
    run = terminal.run("catalogue")
    reply = json.loads(terminal.run("catalogue", "--json").out)
    assert run.out.rstrip("\n") == reply["text"].rstrip("\n")
    assert "\n4 skills, all listed in full; " in run.err
    assert reply["account"]["total"] == 4
    assert reply["digest"]


def test_every_form(terminal):
    assert "did you mean `satchel catalogue`?" in terminal.run("catalog").err
    forms = {
        form: terminal.run("catalogue", "--form", form).out for form in ("xml", "markdown", "json")
    }
    assert len(set(forms.values())) == 3
    json.loads(forms["json"])
