"""Drawings and pictures match their scripts and are readable."""

from __future__ import annotations

import glob
import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ET

import pytest

import drawings

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def test_the_drawings_are_fresh(capsys):
    assert drawings.main(["--check"]) == 0, capsys.readouterr().err


def test_a_drawing_stays_inside_and_fetches_nothing():
    for path, svg in drawings.draw_all():
        tree = ET.fromstring(svg)
        assert "http" not in svg.replace("http://www.w3.org/2000/svg", ""), path
        if "drawing-" not in path:
            continue
        assert tree.attrib["aria-label"], path
        assert "prefers-color-scheme: dark" in svg
        _, _, width, height = map(float, tree.attrib["viewBox"].split())
        for rect in tree.iter("{http://www.w3.org/2000/svg}rect"):
            right = float(rect.attrib["x"]) + float(rect.attrib["width"])
            low = float(rect.attrib["y"]) + float(rect.attrib["height"])
            assert right <= width, path
            assert low <= height, path


def test_every_picture_is_on_a_page():
    """A picture without a page is not checked by any reader."""
    pages = [os.path.join(ROOT, "README.md")]
    pages += glob.glob(os.path.join(ROOT, "docs", "**", "*.md"), recursive=True)
    shown = {"mark.svg", "site.css", "copy.js"}  # the theme shows these
    for page in pages:
        with open(page, encoding="utf-8") as file:
            shown |= set(re.findall(r"assets/([\w.-]+)", file.read()))
    there = os.listdir(os.path.join(ROOT, "docs", "assets"))
    assert {name for name in there if not name.startswith("screen-")} - shown == set()


@pytest.mark.timeout(120)  # runs every command that a picture shows
def test_the_pictures_are_fresh():
    words = [sys.executable, os.path.join(ROOT, "scripts", "pictures.py"), "--check"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
