"""The pictures in the README show what the commands print."""

from __future__ import annotations

import os
import subprocess
import sys
import xml.etree.ElementTree as ET

import pytest

import pictures

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


@pytest.mark.timeout(120)  # runs every command that a picture shows
def test_the_pictures_are_fresh():
    script = os.path.join(ROOT, "scripts", "pictures.py")
    done = subprocess.run(
        [sys.executable, script, "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_a_picture_is_sound_and_aligned():
    text = "\x1b[32m●\x1b[0m  \x1b[1m中文\x1b[0m  <b> & \x1b[2mrest\x1b[0m\n" + "word " * 40
    svg = pictures.draw(pictures.PICTURES[0], text)
    tree = ET.fromstring(svg)
    words = [element for element in tree if element.tag.endswith("text")]
    assert [word.text for word in words][2:6] == ["●", "中文", "<b> &", "rest"]
    chinese = words[3]
    assert float(chinese.attrib["textLength"]) == pytest.approx(4 * pictures.CELL, abs=0.1)
    end = pictures.MARGIN + pictures.COLUMNS * pictures.CELL + 0.1
    assert all(float(word.attrib["x"]) + float(word.attrib["textLength"]) <= end for word in words)
