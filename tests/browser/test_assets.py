"""The htmx asset is verified by its digest."""

from __future__ import annotations

import assets


def test_htmx_is_the_file_that_we_know():
    with open(assets.TARGET, "rb") as file:
        assert file.read() == assets.read(assets.modules(), assets.HTMX)


def test_another_file_is_refused_with_the_next_step(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(assets, "TARGET", str(tmp_path / "htmx.min.js"))
    assert assets.main([str(tmp_path)]) == 1
    assert "hint: Run `npm ci" in capsys.readouterr().err
    file = tmp_path.joinpath(*assets.HTMX)
    file.parent.mkdir(parents=True)
    file.write_text("evil()")
    assert assets.main([str(tmp_path)]) == 1
    assert "digest" in capsys.readouterr().err
    assert not (tmp_path / "htmx.min.js").exists()
