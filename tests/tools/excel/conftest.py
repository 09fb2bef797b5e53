"""A project with workbooks, and the Excel tools over it."""

from __future__ import annotations

import os
import re

import pytest
from openpyxl import Workbook

from satchel.tools.excel import skill
from satchel.tools.packaged import PackageTool
from satchel.tools.toolset import Toolset


class Desk:
    """A project, and calls of its tools."""

    def __init__(self, desk):
        from satchel.settings import load_settings

        home = os.path.join(desk.project, "home")
        settings = load_settings(desk.project, env={"HOME": home})
        tools = [PackageTool(skill, tool, settings) for tool in skill.tools]
        self.project = desk.project
        self.tools = Toolset(tools, desk.library, settings)
        self.failures = {tool.name: {one.id for one in tool.failures} for tool in skill.tools}

    def call(self, name, **arguments):
        """Call a tool; every failure must be declared and have the standard form."""
        reply = self.tools.call(name, arguments)
        if reply.error is not None:
            assert reply.text == reply.error.message
            assert re.fullmatch(r"[^:]+(: .+)? — .+", reply.text), reply.text
            assert reply.data.get("failure", "wrong-arguments") in self.failures[name]
        assert len(reply.text) <= 8_000
        return reply

    def failed(self, name, **arguments):
        """Which of the announced failures a call has."""
        reply = self.call(name, **arguments)
        assert reply.error is not None, reply.text
        return reply.data.get("failure", "wrong-arguments")

    def path(self, name):
        full = os.path.join(self.project, name)
        os.makedirs(os.path.dirname(full), exist_ok=True)
        return full

    def book(self, name="book.xlsx", **sheets):
        """Write a workbook: each sheet a list of rows."""
        book = Workbook()
        del book["Sheet"]
        for title, rows in sheets.items():
            sheet = book.create_sheet(title)
            for row in rows:
                sheet.append(row)
        book.save(self.path(name))
        return name

    def bytes(self, name, data):
        with open(self.path(name), "wb") as file:
            file.write(data)
        return name


@pytest.fixture
def excel(desk):
    return Desk(desk)


@pytest.fixture
def chinese(desk, monkeypatch):
    monkeypatch.setenv("SATCHEL_LANG", "zh")
    return Desk(desk)
