"""The index for large libraries where nothing is installed: SQLite's full-text search.

One table per field, since `bm25()` counts the words of all columns together. It also weighs a rare
term otherwise than the other engines and knows no weights of terms; both are made good by a factor
per term. Texts are kept beside the tables, compressed: a row can only be taken out of a table that
keeps no text by saying again what was put in. (`detail=column` would be smaller, and `bm25()`
would be 0.)
"""

from __future__ import annotations

import math
import os
import re
import sqlite3
import zlib
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Any

from satchel.detect.index.base import EACH, FIELDS, allowed_only
from satchel.detect.index.database import Database, packed_key, sound, whole_key
from satchel.detect.index.memory import rarity

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from satchel.detect.index.base import Row, Stamp

_WORK = 20_000
"""Postings that one field may cost, about 40 ms; beyond it the commonest terms are left out."""
_FEWEST = 6
"""Terms that are always looked for."""
_MOST = 400
"""SQLite joins at most 500 selects."""
_LEAST = 1e-6
"""What SQLite takes for the weight of a term that more than half of the rows have."""
_LONGEST = 400_000
"""Characters of a query: SQLite takes a million."""
_OPTIMIZE = 1_000
"""Rows after which the tables are put in order."""

_SCHEMA = (
    "CREATE TABLE rows(num INTEGER PRIMARY KEY, key BLOB UNIQUE, mtime, ctime, size, texts)",
    *(
        f"CREATE VIRTUAL TABLE f_{field} USING fts5(t,content='',tokenize=ascii)"
        for field in FIELDS
    ),
    *(f"CREATE VIRTUAL TABLE v_{field} USING fts5vocab(f_{field},row)" for field in FIELDS),
)
# ruff: disable[S608] - names of fields are ours; values are bound
_CHECKS = (
    "SELECT num, key, mtime, ctime, size, texts FROM rows LIMIT 1",
    *(f"SELECT rowid FROM f_{field} LIMIT 1" for field in FIELDS),
)

# The tokenizer `ascii` parts at ASCII signs and lowers ASCII capitals, and leaves all else alone:
# whatever it would change is written beyond ASCII.
_odd = re.compile("[^a-z0-9 \x80-\U0010ffff]").search
_ODD = {code: 0xE000 + code for code in range(128) if _odd(chr(code))}


class Fts5Index:
    """BM25 per field by SQLite."""

    engine = "fts5"

    def __init__(self, folder: str) -> None:
        """Open what `folder` keeps. A damaged file reads as empty; the next update replaces it.

        Raises:
            OSError: the folder cannot be made.
        """
        os.makedirs(folder, mode=0o700, exist_ok=True)
        self._database = Database(os.path.join(folder, "index.db"), _SCHEMA, _CHECKS)
        self._counted: tuple[tuple[int, ...], int] = ((), 0)

    @property
    def damage(self) -> str:
        """Why the file could last not be read."""
        return self._database.damage

    def stamps(self, keys: Sequence[str] | None = None) -> Mapping[str, Stamp]:
        """What is indexed, by key; of these keys alone when some are given."""
        return self._database.stamps("SELECT key, mtime, ctime, size FROM rows WHERE 1", keys)

    def update(
        self,
        rows: Iterable[Row],
        gone: Iterable[str] = (),
        progress: Callable[[int], None] | None = None,
    ) -> None:
        """Add or replace rows and drop others; searches see all of it or nothing of it.

        Raises:
            TimeoutError: another process is writing.
            OSError: it cannot be written.
        """
        taken = 0
        with self._database.writing() as (writer, _):
            for key in gone:
                _drop(writer, key)
            for taken, row in enumerate(rows, 1):
                _drop(writer, row.key)
                _insert(writer, row)
                if progress is not None and taken % 500 == 0:
                    progress(taken)
            for field in FIELDS if taken > _OPTIMIZE else ():
                writer.execute(f"INSERT INTO f_{field}(f_{field}) VALUES('optimize')")
        if progress is not None:
            progress(taken)

    def search(
        self,
        terms: Sequence[tuple[str, float]],
        limit: int,
        allowed: Collection[str] | None = None,
    ) -> dict[str, dict[str, float]]:
        """BM25 per field: field -> key -> score, of the best `limit` per field."""
        return self.search_legs(terms, EACH, limit, allowed)

    def search_legs(
        self,
        terms: Sequence[tuple[str, float]],
        legs: Mapping[str, Mapping[str, float]],
        limit: int,
        allowed: Collection[str] | None = None,
    ) -> dict[str, dict[str, float]]:
        """Several fields added up: leg -> key -> score, of the best `limit` per leg."""
        found: dict[str, dict[str, float]] = {leg: {} for leg in legs}
        count = self.count()
        for leg, fields in legs.items() if count and limit > 0 else ():
            chosen: list[tuple[str, float, str]] = []
            for field, share in fields.items():
                for factor, phrase in self._choose(field, terms, count, _MOST // len(fields)):
                    chosen.append((f"f_{field}", share * factor, phrase))
            if chosen:
                found[leg] = allowed_only(partial(self._best, chosen), limit, allowed)
        return found

    def having(self, terms: Sequence[str]) -> dict[str, dict[str, int]]:
        """In how many rows each of some terms is: field -> term -> rows."""
        spelt = {_spelt(term): term for term in terms if term}
        return {
            field: {spelt[name]: rows for name, rows in self._having(field, list(spelt)).items()}
            for field in FIELDS
        }

    def count(self) -> int:
        """How many keys are indexed; counted anew after a change."""
        version = self._database.version()
        if version != self._counted[0]:
            rows = self._database.ask("SELECT count(*) FROM rows")
            self._counted = (version, sum(number for (number,) in rows))
        return self._counted[1] if version else 0

    def version(self) -> tuple[int, ...]:
        """Another value after every change, whoever made it."""
        return self._database.version() if self._database.is_sound() else ()

    def is_sound(self) -> bool:
        """Whether there is a file that can be read."""
        return self._database.is_sound()

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    def _best(
        self, chosen: Sequence[tuple[str, float, str]], most: int, keys: list[str] | None
    ) -> dict[str, float]:
        """The best of some terms added up: key -> score; of these keys alone when some are given.

        Args:
            chosen: Table, factor and phrase of each term.
            most: How many keys.
            keys: Who may be among them.
        """
        few = ""
        if keys is not None:
            numbers = self._database.numbers(keys)
            if not numbers:
                return {}
            # The sign keeps SQLite from asking for each number apart.
            few = f" AND +rowid IN ({','.join(map(str, numbers))})"
            if len(few) * len(chosen) > _LONGEST:
                few = ""
        selects = [
            f"SELECT rowid, bm25({table}) * ? FROM {table} WHERE {table} MATCH ?{few}"
            for table, _, _ in chosen
        ]
        values: list[Any] = [value for _, factor, phrase in chosen for value in (factor, phrase)]
        # Joined with nothing, because `bm25` does not work where a lone select is folded in.
        query = (
            "SELECT key, x FROM rows JOIN (SELECT r, sum(s) x FROM (SELECT 0 r, 0.0 s WHERE 0"
            f" UNION ALL {' UNION ALL '.join(selects)}) GROUP BY r ORDER BY x DESC, r LIMIT ?)"
            " ON num = r ORDER BY x DESC, key"
        )
        rows = self._database.ask(query, (*values, most if few or keys is None else -1))
        found = {whole_key(data): score for data, score in rows}
        if keys is not None and not few:
            allowed = set(keys)
            best = [pair for pair in found.items() if pair[0] in allowed]
            return dict(best[:most])
        return found

    def _having(self, field: str, names: Sequence[str]) -> dict[str, int]:
        """In how many rows a field has some terms, as the tokenizer spells them."""
        having: dict[str, int] = {}
        for at in range(0, len(names), 500):
            part = names[at : at + 500]
            marks = ",".join("?" * len(part))
            query = f"SELECT term, doc FROM v_{field} WHERE term IN ({marks})"
            having.update(self._database.ask(query, part))
        return having

    def _choose(
        self, field: str, terms: Sequence[tuple[str, float]], count: int, most: int
    ) -> list[tuple[float, str]]:
        """The factor and the phrase of each term that the field has, the weightiest first."""
        spelt = {_spelt(term): weight for term, weight in terms if term}
        having = self._having(field, list(spelt))
        ranked = sorted(having, key=lambda term: (-spelt[term] * rarity(count, having[term]), term))
        chosen: list[tuple[float, str]] = []
        work = 0
        for term in ranked[:most]:
            n = having[term]
            if len(chosen) >= _FEWEST and work + n > _WORK:
                continue
            work += n
            theirs = math.log((count - n + 0.5) / (n + 0.5))
            factor = -spelt[term] * rarity(count, n) / (theirs if theirs > 0 else _LEAST)
            chosen.append((factor, f'"{term}"'))
        return chosen


def has_fts5() -> bool:
    """Whether this Python's SQLite can search full texts."""
    with closing(sqlite3.connect(":memory:")) as connection:
        try:
            connection.execute("CREATE VIRTUAL TABLE t USING fts5(x)")
        except sqlite3.Error:
            return False
    return True


def _insert(writer: sqlite3.Connection, row: Row) -> None:
    texts = [_spelt(text) for text in row.fields]
    packed = zlib.compress("\n".join(texts).encode(), 1)
    added = writer.execute(
        "INSERT INTO rows(key, mtime, ctime, size, texts) VALUES(?,?,?,?,?)",
        (packed_key(row.key), *row.stamp, packed),
    )
    for field, text in zip(FIELDS, texts, strict=True):
        writer.execute(f"INSERT INTO f_{field}(rowid, t) VALUES(?,?)", (added.lastrowid, text))


def _drop(writer: sqlite3.Connection, key: str) -> None:
    data = packed_key(key)
    row = writer.execute("SELECT num, texts FROM rows WHERE key = ?", (data,)).fetchone()
    if row is None:
        return
    number, packed = row
    try:
        texts = zlib.decompress(packed).decode().split("\n")
    except (zlib.error, ValueError, TypeError) as exc:
        raise sqlite3.DatabaseError("a kept text is damaged") from exc
    for field, text in zip(FIELDS, texts, strict=True):
        query = f"INSERT INTO f_{field}(f_{field}, rowid, t) VALUES('delete',?,?)"
        writer.execute(query, (number, text))
    writer.execute("DELETE FROM rows WHERE num = ?", (number,))


def _spelt(text: str) -> str:
    """As the tokenizer leaves it alone."""
    text = sound(text)
    return text.translate(_ODD) if _odd(text) else text


# ruff: enable[S608]
