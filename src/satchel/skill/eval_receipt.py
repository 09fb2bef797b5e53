"""Receipts of evaluations: `evals/receipts/MODEL.json`, written by `satchel eval`.

A receipt names the digests of the skill and of its cases. It is out of date when one of them is
another now.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, NamedTuple

from satchel._fs import open_beneath, read_small
from satchel.errors import SatchelError
from satchel.i18n import say
from satchel.skill.eval_file import FOLDER
from satchel.skill.file_tree import digest_of

if TYPE_CHECKING:
    from collections.abc import Mapping

RECEIPTS = f"{FOLDER}/receipts"
FORMAT_VERSION = 1
_MAX_FILE_BYTES = 64 * 1024
_VERDICTS = ("helps", "no difference seen", "harms", "not enough runs")


class EvalReceipt(NamedTuple):
    """The result of an evaluation with one model."""

    model: str
    verdict: str
    figures: Mapping[str, Any]
    """`rate`, `baseline_rate`, `difference`, `low`, `high` and `pairs`."""
    skill: str
    """The digest of the skill without `evals`."""
    cases: str
    """The digest of the cases."""
    is_stale: bool = False
    """Whether the skill or its cases changed since."""

    def __str__(self) -> str:
        figures = self.figures
        text = say(
            "{verdict}, {rate} % with, {other} % without ({low} to {high}, n = {count}), {model}",
            model=self.model,
            verdict=say(self.verdict),
            rate=round(100 * figures["rate"]),
            other=round(100 * figures["baseline_rate"]),
            low=f"{100 * figures['low']:+.0f}",
            high=f"{100 * figures['high']:+.0f}",
            count=figures["pairs"],
        )
        return f"{say('out of date')}{say(': ')}{text}" if self.is_stale else text

    def to_dict(self) -> dict[str, Any]:
        """The form for `--json`."""
        return {
            "model": self.model,
            "verdict": self.verdict,
            **self.figures,
            "stale": self.is_stale,
        }


def skill_digest(files: Mapping[str, str]) -> str:
    """The digest of a skill without its folder `evals`, from the digests of its files."""
    return digest_of({path: digest for path, digest in files.items() if _part(path) != FOLDER})


def cases_digest(files: Mapping[str, str]) -> str:
    """The digest of the cases of a skill and of their files."""
    return digest_of({path: digest for path, digest in files.items() if _is_case(path)})


def _part(path: str) -> str:
    return path.partition("/")[0]


def _is_case(path: str) -> bool:
    return _part(path) == FOLDER and not path.startswith(f"{RECEIPTS}/")


def read_receipts(folder: str, files: Mapping[str, str]) -> list[EvalReceipt]:
    """Read the receipts of a skill; files that are none are left out.

    Args:
        folder: The skill's folder, which is untrusted.
        files: The digests of its files, as in `TreeDigest.files`.
    """
    receipts: list[EvalReceipt] = []
    for path in sorted(files):
        if not (path.startswith(f"{RECEIPTS}/") and path.endswith(".json")):
            continue
        try:
            descriptor = open_beneath(folder, path)
            try:
                data: Any = json.loads(read_small(descriptor, _MAX_FILE_BYTES))
            finally:
                os.close(descriptor)
            figures = {
                name: float(data["figures"][name])
                for name in ("rate", "baseline_rate", "difference", "low", "high")
            }
            figures["pairs"] = int(data["figures"]["pairs"])
            receipt = EvalReceipt(
                str(data["settings"]["model"])[:100],
                str(data["verdict"]),
                figures,
                str(data["skill"]),
                str(data["cases"]),
            )
        except (SatchelError, OSError, ValueError, KeyError, TypeError, RecursionError):
            continue
        if receipt.verdict in _VERDICTS:
            current = (skill_digest(files), cases_digest(files))
            receipts.append(receipt._replace(is_stale=(receipt.skill, receipt.cases) != current))
    return receipts
