"""Bars as SVG: drawn to scale, told in words, and nothing in them can do anything."""

from __future__ import annotations

import re
from xml.etree import ElementTree as ET

import pytest

from satchel.ui.views.charts import Column, Series, Svg, day_bars, share_bar

HOSTILE = '"><script>alert(1)</script>&'
SVG = "{http://www.w3.org/2000/svg}"


def _read(svg):
    return ET.fromstring(svg.replace("<svg", '<svg xmlns="http://www.w3.org/2000/svg"', 1))


def _chart(*values, **more):
    columns = [Column(f"1-{at}", f"2026-01-{at:02}", one) for at, one in enumerate(values, 1)]
    kinds = [Series("loaded", "loaded"), Series("failed", "failed")]
    return day_bars(columns, kinds, "use", "By day", "loaded 3, failed 1", **more)


def test_a_chart_has_a_title_and_is_told_in_words():
    top = _read(_chart((3, 1)))
    assert top.get("role") == "img"
    named = top.get("aria-labelledby").split()
    told = {one.get("id"): one.text for one in top if one.get("id")}
    assert [told[name] for name in named] == ["By day", "loaded 3, failed 1"]
    assert "2026-01-01 — loaded: 3, failed: 1" in [one.text for one in top.iter(f"{SVG}title")]


def test_bars_are_as_tall_as_their_numbers():
    top = _read(_chart((40, 0), (10, 10), (0, 0)))
    heights = [
        float(one.attrib["height"])
        for one in top.iter(f"{SVG}rect")
        if "series" in one.attrib["class"]
    ]
    assert len(heights) == 3, "nothing is drawn for a zero"
    tall, low, upper = heights
    assert tall == pytest.approx(4 * low, abs=0.2)
    assert upper == pytest.approx(low - 1, abs=0.2), "a gap parts what lies on each other"


@pytest.mark.parametrize(("most", "top"), [(0, 2), (1, 2), (3, 4), (7, 8), (41, 50), (999, 1_000)])
def test_the_scale_ends_at_a_round_number(most, top):
    texts = [one.text for one in _read(_chart((most, 0))).iter(f"{SVG}text")]
    assert f"{top:,}" in texts


def test_a_chart_without_days_is_drawn_too():
    assert _read(_chart()).get("class") == "bars"


def test_what_is_written_into_a_chart_is_text():
    column = Column(HOSTILE, HOSTILE, (1,))
    made = day_bars([column], [Series(HOSTILE, HOSTILE)], HOSTILE, HOSTILE, HOSTILE)
    bar = share_bar([(HOSTILE, 1)], 2, HOSTILE)
    for svg in (made, bar):
        _read(svg)
        assert "<script" not in svg
        assert not re.search(r"\sstyle=|\son\w+=", svg)


def test_a_template_takes_a_drawing_as_it_is():
    assert isinstance(share_bar([], 0, "nothing"), Svg)
    assert Svg("<svg/>").__html__() == "<svg/>"


def test_shares_lie_after_each_other():
    rects = list(_read(share_bar([("loaded", 1), ("failed", 3)], 4, "told")).iter(f"{SVG}rect"))
    assert [float(one.attrib["x"]) for one in rects] == [0, 45]
    assert [float(one.attrib["width"]) for one in rects] == [44, 134]
