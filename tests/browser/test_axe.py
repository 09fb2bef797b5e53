"""axe-core finds nothing serious on any page, light and dark; screenshots and assets are known."""

from __future__ import annotations

import pytest

import assets
import screens
from screens_demo import Demo
from sizes import sized

pytestmark = pytest.mark.timeout(300)
_RUN = """
async ([only, without]) => {
  const options = { resultTypes: ["violations"], rules: {} };
  if (only.length) options.runOnly = { type: "rule", values: only };
  for (const rule of without) options.rules[rule] = { enabled: false };
  const found = await axe.run(document, options);
  return found.violations
    .filter((one) => one.impact === "serious" || one.impact === "critical")
    .map((one) => `${one.id}: ${one.nodes.length} × ${one.nodes[0].html.slice(0, 160)} `
      + `${(one.nodes[0].any[0] || {}).message || ""}`);
}
"""
COLOURS = ["color-contrast", "link-in-text-block"]
"""All that light and dark can change; the rule about contrast takes as long as all others."""


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    made = Demo(str(tmp_path_factory.mktemp("demo")))
    yield made
    made.close()


@pytest.fixture(scope="module")
def axe():
    return assets.read(assets.modules(), assets.AXE).decode()


@pytest.mark.parametrize("zh", sized([False], [False, True]))
def test_no_page_has_a_serious_violation(chromium, demo, axe, zh):
    wrong, seen, look = [], 0, screens.Look(zh=zh)
    for shot, page, complaints in screens.walk(
        chromium, demo, screens.SHOTS, look, bypass_csp=True
    ):
        seen += 1
        wrong += complaints
        page.evaluate(axe)
        # Light colours are those of the English pages.
        found = page.evaluate(_RUN, [[], COLOURS if zh else []])
        page.emulate_media(color_scheme="dark")
        found += page.evaluate(_RUN, [COLOURS, []])
        page.emulate_media(color_scheme="light")
        wrong += [f"page `{shot.name}{look.ending}`: {one}" for one in found]
    assert seen == len(screens.SHOTS)
    assert not wrong, "\n".join(wrong)


def test_the_pictures_of_the_documentation_are_those_of_the_script():
    assert screens.wrong_names() == []


def test_every_page_has_a_name_of_its_own():
    names = [shot.name for shot in screens.SHOTS]
    assert len(set(names)) == len(names)
    assert not any(name.endswith(("-dark", "-zh")) for name in names)


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
