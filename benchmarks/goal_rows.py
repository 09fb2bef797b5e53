"""Definition, sample sizes and printing of one goal of the speed table."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from corpora import ensure, ensure_synthetic, raw_grouped, real
from measure import table

if TYPE_CHECKING:
    from pathlib import Path

    from sampling import Figure


class Row(NamedTuple):
    """One goal."""

    what: str
    goal: str
    figure: Figure | None
    unit: str
    met: bool | None
    """None: there is no goal for this row, or it could not be measured."""
    note: str = ""


class Plan(NamedTuple):
    """How much is measured."""

    workdir: Path
    source: Path
    sizes: tuple[int, ...]
    middle: int
    catalogue: tuple[int, ...]
    rounds: int
    starts: int
    peers: str
    wheel: Path | None
    quick: bool

    def synthetic(self, count: int) -> str:
        """The folder of a synthetic corpus, written on first use."""
        out = self.workdir / "corpora" / f"synthetic-{count}"
        ensure_synthetic(out, count)
        return str(out / "skills")

    def actual(self, kind: str) -> str | None:
        """The folder of a real corpus, or None where it is not to be had."""
        if not (self.source / "skills.jsonl.xz").exists():
            return None
        count = self.middle if self.quick else 0
        out = self.workdir / "corpora" / f"{kind}-{count or 'all'}"
        writer = raw_grouped if kind == "raw-grouped" else real
        ensure(out, lambda skills: writer(skills, count, self.source))
        return str(out / "skills")


def most(what: str, limit: float, figure: Figure, unit: str, note: str = "") -> Row:
    """A row whose figure may be so much at most."""
    met = figure.value <= limit if figure.rounds else None
    return Row(what, f"≤ {limit:g} {unit}", figure, unit, met, note)


def shown(what: str, figure: Figure, unit: str, note: str = "") -> Row:
    """A row that helps to read the others and has no goal of its own."""
    return Row(what, "", figure, unit, None, note)


def missing(what: str, goal: str, reason: str) -> Row:
    """A goal that could not be measured, and why."""
    return Row(what, goal, None, "", None, reason)


def figure_text(row: Row) -> str:
    """The median with its unit, in as many digits as it deserves."""
    if row.figure is None:
        return "not measured"
    value = row.figure.value
    digits = 0 if abs(value) >= 100 or (not row.unit and value == int(value)) else 2
    digits = 4 if abs(value) < 0.1 and value else digits
    return f"{value:,.{digits}f} {row.unit}".strip()


def spread_text(row: Row) -> str:
    """The lowest and the highest round."""
    if row.figure is None or row.figure.rounds < 2:
        return ""
    digits = 0 if row.figure.value >= 100 else 2 if row.figure.value >= 0.1 else 4
    return f"{row.figure.low:,.{digits}f}–{row.figure.high:,.{digits}f}"


def printed(rows: list[Row]) -> str:
    """The table people read."""
    verdicts = {True: "met", False: "NOT MET", None: ""}
    lines = [
        [row.what, row.goal, figure_text(row), spread_text(row), verdicts[row.met]] for row in rows
    ]
    return table([["", "goal", "median", "lowest–highest", ""], *lines])
