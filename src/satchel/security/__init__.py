"""IS IT SAFE? Nobody can promise that; a scan says what was looked for and what was found.

rules/       every rule as data: what, why, fix, and the patterns it looks for
rules.py     reads them, once
scan.py      a tree of files -> a Report
report.py    Finding, Inventory, Report: what a scan says
allow.py     findings that somebody accepted, with a reason and a last day
regions.py   Markdown -> prose, commands, code, hidden comments
patterns.py  text rules, and whether a text does a thing or talks about it
python.py    Python by its syntax tree; flows.py: which secret goes where
unseen.py    characters that people do not see
secrets.py   credentials that were left in a skill
files.py     archives, programs, padding, files that are not what they are called
yara.py      YARA rules, when the extra `scan` is installed
sarif.py     a report as SARIF, for code scanning services
"""

from __future__ import annotations

from satchel.security.allow import Allowance, read_allowances
from satchel.security.report import Finding, Inventory, Report
from satchel.security.rules import RULES, Rule
from satchel.security.scan import scan_tree

__all__ = [
    "RULES",
    "Allowance",
    "Finding",
    "Inventory",
    "Report",
    "Rule",
    "read_allowances",
    "scan_tree",
]
