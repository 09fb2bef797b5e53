"""The index for a million skills: tantivy, which the extra `search` brings.

tantivy knows a skill by a number and its terms alone. Which key and stamp a number stands for is in
an SQLite file beside it: a stored text costs microseconds to fetch, a number nothing. Numbers are
not used twice.

An update writes the rows first, for the turn that is to come, and then commits to tantivy. Which
turn it is follows from tantivy's commit, so whoever is killed between the two leaves a state that
is still whole: the old one or the new one. When the two sides do not fit together otherwise, or
anything else is wrong with the folder, the index counts as empty until the next update makes it
anew: a search never fails for it.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import threading
from contextlib import suppress
from functools import partial
from itertools import chain, islice
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Self

from satchel._optional import require
from satchel.detect.index.base import EACH, FIELDS, allowed_only
from satchel.detect.index.database import Database, packed_key, sound, whole_key

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from satchel.detect.index.base import Row, Stamp

_FEW = 512
_SMALL_HEAP = 15_000_000
"""The least that tantivy takes."""
_LARGE_HEAP = 1_000_000_000
"""Room for a million short skills in one segment: each further one makes every search slower.
Only what is used of it is taken."""
_SPACES = "satchel_spaces"
_OFTEN, _FETCHED_MOST = 2_000, 200_000
"""After how many single keys all of them are fetched, and how many that may be."""
_SCORE = itemgetter(0)
_PATIENCE = 3
"""Updates in a row that may fail before all is made anew."""

_KNOWN = 1 << len(FIELDS)
"""In SQLite's `user_version`: which fields have a text is known, and is in the bits below. One of
an index that was made before has 0."""

_LIVING = 1 << 62
"""When somebody dies who is not dead."""

_SCHEMA = (
    "CREATE TABLE rows(num INTEGER PRIMARY KEY AUTOINCREMENT, key, mtime, ctime, size, born, died)",
    "CREATE INDEX by_key ON rows(key)",
    f"CREATE INDEX dead ON rows(died) WHERE died < {_LIVING}",
    # tantivy's commit and the turn it belongs to; whether rows of the next turn are there already.
    "CREATE TABLE state(done INTEGER, turn INTEGER, pending INTEGER)",
    "INSERT INTO state VALUES(-1, 0, 0)",
)
_CHECKS = (
    "SELECT key, mtime, born, died FROM rows LIMIT 1",
    "SELECT done, turn, pending FROM state",
)


class _View:
    """One commit, opened."""

    def __init__(
        self, searcher: Any, schema: Any, turn: int, mark: tuple[int, ...], fields: frozenset[str]
    ) -> None:
        self.searcher = searcher
        self.docs = int(searcher.num_docs)
        self.fields = fields
        """Where a text may be: few skills say `when`, and to look for each term costs time."""
        self.alive = f"born <= {turn} AND died > {turn}"
        """Which rows are of this commit."""
        self.schema = schema
        self.mark = mark
        """Process, inode and time of `meta.json`: another mark, another commit."""


class TantivyIndex:
    """BM25 per field by tantivy."""

    engine = "tantivy"

    def __init__(self, folder: str) -> None:
        """Open what `folder` keeps. A damaged folder reads as empty.

        Raises:
            MissingExtra: tantivy is not installed.
            OSError: the folder cannot be made.
        """
        self._tantivy: Any = require("tantivy", "search")
        os.makedirs(folder, mode=0o700, exist_ok=True)
        self._folder = os.path.join(folder, "index")
        self._meta = os.path.join(self._folder, "meta.json")
        self._database = Database(os.path.join(folder, "rows.db"), _SCHEMA, _CHECKS)
        self._lock = threading.Lock()
        self._view: _View | None = None
        self._refused: tuple[int, ...] | None = None
        self._failures = 0
        self._keys: dict[int, str] = {}
        self._fetched = 0
        self.damage = ""
        """Why the folder could last not be used."""

    def stamps(self, keys: Sequence[str] | None = None) -> Mapping[str, Stamp]:
        """What is indexed, by key; of these keys alone when some are given."""
        view = self._current()
        if view is None:
            return {}
        query = f"SELECT key, mtime, ctime, size FROM rows WHERE {view.alive}"  # noqa: S608 - a number
        return self._database.stamps(query, keys)

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
        todo = iter(rows)
        first = list(islice(todo, _FEW + 1))
        with self._database.writing() as (table, _):
            turn = self._begin(table)
            heap = _SMALL_HEAP if len(first) <= _FEW else _LARGE_HEAP
            self._failures += 1
            with _Writing(self._open(), heap, self._tantivy.Document) as writing:
                for key in gone:
                    writing.drop(_bury(table, key, turn))
                taken = 0
                for taken, row in enumerate(chain(first, todo), 1):
                    writing.drop(_bury(table, row.key, turn))
                    values = (packed_key(row.key), *row.stamp, turn, _LIVING)
                    added = table.execute("INSERT INTO rows VALUES(NULL,?,?,?,?,?,?)", values)
                    writing.add(added.lastrowid, row)
                    if progress is not None and taken % 500 == 0:
                        progress(taken)
                _note_fields(table, writing.used)
                table.execute("UPDATE state SET pending = 1")
                table.execute("COMMIT")
                _settle(table, writing.commit(), turn)
            self._failures = 0
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
        view = self._current()
        if view is None or not terms or limit < 1:
            return {leg: {} for leg in legs}
        sane = [(sound(term), weight) for term, weight in terms]
        try:
            return {
                leg: self._best(view, fields, sane, limit, None)
                if allowed is None
                else allowed_only(partial(self._best, view, fields, sane), limit, allowed)
                for leg, fields in legs.items()
            }
        except BaseException as exc:  # noqa: BLE001 - `_told` lets go on what is not the index
            self._refuse(view.mark, _told(exc))
            return {leg: {} for leg in legs}

    def having(self, terms: Sequence[str]) -> dict[str, dict[str, int]]:
        """In how many rows each of some terms is: field -> term -> rows, dead ones too."""
        view = self._current()
        found: dict[str, dict[str, int]] = {field: {} for field in FIELDS}
        try:
            for field in view.fields if view is not None else ():
                for term in terms:
                    if view is not None and (rows := view.searcher.doc_freq(field, sound(term))):
                        found[field][term] = int(rows)
        except BaseException as exc:  # noqa: BLE001 - the same
            self.damage = _told(exc)
        return found

    def count(self) -> int:
        """How many keys are indexed."""
        view = self._current()
        return view.docs if view is not None else 0

    def version(self) -> tuple[int, ...]:
        """Another value after every change, whoever made it."""
        view = self._current()
        return (*view.mark, *self._database.identity()) if view is not None else ()

    def is_sound(self) -> bool:
        """Whether there is a commit that can be read."""
        return self._current() is not None

    def close(self) -> None:
        """Let go of the files."""
        with self._lock:
            self._view = None
        self._database.close()

    def _best(
        self,
        view: _View,
        fields: Mapping[str, float],
        terms: Sequence[tuple[str, float]],
        limit: int,
        keys: list[str] | None,
    ) -> dict[str, float]:
        """The best of some fields added up: key -> score; of these keys alone, if any are given."""
        query = self._tantivy.Query
        term_query, boost_query, schema = query.term_query, query.boost_query, view.schema
        should = self._tantivy.Occur.Should
        parts = [
            (should, boost_query(term_query(schema, field, term, "freq"), share * weight))
            if share * weight != 1.0
            else (should, term_query(schema, field, term, "freq"))
            for field, share in fields.items()
            if field in view.fields
            for term, weight in terms
        ]
        most = min(limit, view.docs)
        if not most or not parts:
            return {}
        asked = query.boolean_query(parts)
        if keys is not None:
            few = query.term_set_query(schema, "num", self._database.numbers(keys, view.alive))
            must = self._tantivy.Occur.Must
            asked = query.boolean_query([(must, asked), (must, query.const_score_query(few, 0.0))])
        hits = view.searcher.search(asked, most, count=False).hits
        numbers = view.searcher.fast_field_values("num", [hit[1] for hit in hits])
        return self._keyed(numbers, hits)

    def _keyed(self, numbers: list[int], hits: list[tuple[float, Any]]) -> dict[str, float]:
        """Key -> score; a number that nobody has was dropped a moment ago."""
        keys = self._keys
        try:
            # In C from end to end: this is as much work as the search of a small library.
            return dict(zip(map(keys.__getitem__, numbers), map(_SCORE, hits), strict=True))
        except KeyError:
            self._fetch([number for number in numbers if number not in keys])
        pairs = zip(numbers, hits, strict=True)
        return {keys[number]: hit[0] for number, hit in pairs if number in keys}

    def _fetch(self, numbers: list[int]) -> None:
        """Get keys that are not known yet: these alone, or all when they are asked for a lot."""
        self._fetched += len(numbers)
        rows: list[Any] = []
        if self._fetched > _OFTEN and len(self._keys) < _FETCHED_MOST:
            rows = self._database.ask("SELECT num, key FROM rows LIMIT ?", (_FETCHED_MOST,))
            self._fetched = 0
        known = {number for number, _ in rows}
        some = [number for number in numbers if number not in known]
        for at in range(0, len(some), 500):
            part = some[at : at + 500]
            marks = ",".join("?" * len(part))
            query = f"SELECT num, key FROM rows WHERE num IN ({marks})"  # noqa: S608 - marks
            rows += self._database.ask(query, part)
        self._keys.update((number, whole_key(data)) for number, data in rows)

    def _current(self) -> _View | None:
        """The newest commit; None when there is none that can be used."""
        try:
            mark = self._mark()
        except OSError:
            return None
        view = self._view
        if view is not None and view.mark == mark:
            return view
        if mark == self._refused:
            return None
        with self._lock:
            turn = None
            for _ in range(3):  # somebody may commit between the two looks
                if turn is None:
                    turn = self._turn(self._database.ask("SELECT done, turn, pending FROM state"))
            if turn is None:
                self._refuse(mark, "its two sides do not fit together")
                return None
            if self._database.is_another():
                self._keys = {}  # numbers began anew
            try:
                index = self._open()
                searcher = index.searcher()
                # Asked for last: of a commit that came meanwhile it tells too much, not too little.
                fields = _fields(self._database.ask("PRAGMA user_version"))
                self._view = _View(searcher, index.schema, turn, mark, fields)
            except BaseException as exc:  # noqa: BLE001 - the same
                self._refuse(mark, _told(exc))
                return None
            return self._view

    def _mark(self) -> tuple[int, ...]:
        info = os.stat(self._meta)
        return os.getpid(), info.st_ino, info.st_mtime_ns, info.st_size

    def _turn(self, state: list[tuple[int, int, int]]) -> int | None:
        """The turn that tantivy's commit belongs to; None when it belongs to none."""
        commit = _last_commit(self._folder)
        for done, turn, pending in state if commit is not None else ():
            if commit == done:
                return turn
            if pending:
                return turn + 1
        return None

    def _begin(self, table: sqlite3.Connection) -> int:
        """Finish or take back what an earlier update left, and return the turn to come."""
        turn = None
        try:
            # What fails again and again is damaged where no look at it shows.
            if self._mark() != self._refused and self._failures < _PATIENCE:
                self._open()
                turn = self._turn(table.execute("SELECT done, turn, pending FROM state").fetchall())
        except BaseException as exc:  # noqa: BLE001 - the same
            self.damage = _told(exc)
        if turn is None:
            turn = 0
            table.execute("DELETE FROM rows")  # numbers go on
            table.execute(f"PRAGMA user_version = {_KNOWN}")
            self._failures = 0
            self._view = None
            shutil.rmtree(self._folder, ignore_errors=True)
            os.makedirs(self._folder, mode=0o700, exist_ok=True)
            self._open()
        elif table.execute("SELECT pending FROM state").fetchone()[0]:
            table.execute("DELETE FROM rows WHERE born > ?", (turn,))
            again = f"UPDATE rows SET died = {_LIVING} WHERE died > ? AND died < {_LIVING}"  # noqa: S608 - a number
            table.execute(again, (turn,))
        # Dead since the update before this one: nobody searches that commit any more.
        table.execute(f"DELETE FROM rows WHERE died < {_LIVING} AND died <= ?", (turn,))  # noqa: S608 - a number
        state = (_last_commit(self._folder), turn)
        table.execute("UPDATE state SET done = ?, turn = ?, pending = 0", state)
        return turn + 1

    def _refuse(self, mark: tuple[int, ...], reason: str) -> None:
        self.damage = reason
        self._refused = mark
        self._view = None

    def _open(self) -> Any:
        """The index, made if there is none. It looks for new commits only when told."""
        tantivy = self._tantivy
        builder = tantivy.SchemaBuilder()
        # Not an unsigned one: deleting by the term of such a field finds nothing (0.27).
        builder.add_integer_field("num", indexed=True, fast=True)
        for field in FIELDS:
            builder.add_text_field(field, tokenizer_name=_SPACES, index_option="freq")
        index = tantivy.Index(builder.build(), self._folder)
        spaces = tantivy.TextAnalyzerBuilder(tantivy.Tokenizer.whitespace()).build()
        index.register_tokenizer(_SPACES, spaces)
        index.config_reader("manual")
        return index


class _Writing:
    """tantivy's writer for one update: committed, or as if it had not been."""

    def __init__(self, index: Any, heap: int, document: Any) -> None:
        self._index = index
        self._heap = heap
        self._document = document
        self._writer: Any = None
        self.used: set[str] = set()
        """Fields that had a text."""

    def __enter__(self) -> Self:
        try:
            # One thread writes one segment.
            self._writer = self._index.writer(self._heap, 1)
            # Whoever was killed while committing left a file whose name the next commit needs.
            self._writer.garbage_collect_files()
        except ValueError as exc:
            if "LockBusy" in str(exc):
                raise TimeoutError("another process is writing the index") from exc
            raise OSError(f"tantivy: {exc}") from exc
        return self

    def __exit__(self, kind: object, exc: BaseException | None, trace: object) -> None:
        writer, self._writer = self._writer, None
        try:
            # Ends the writer and lets go of its lock, now; merges are waited for, they are short.
            writer.wait_merging_threads()
        except BaseException as second:
            if exc is None:
                raise OSError(f"tantivy: {_told(second)}") from second
        if exc is not None and not isinstance(exc, (OSError, TypeError)):
            raise OSError(f"tantivy: {_told(exc)}") from exc

    def add(self, number: int | None, row: Row) -> None:
        document = self._document()
        document.add_integer("num", number)
        for field, text in zip(FIELDS, row.fields, strict=True):
            if text:
                document.add_text(field, sound(text))
                self.used.add(field)
        self._writer.add_document(document)

    def drop(self, number: int | None) -> None:
        if number is not None:
            self._writer.delete_documents_by_term("num", number)

    def commit(self) -> int:
        return int(self._writer.commit())


def _bury(table: sqlite3.Connection, key: str, turn: int) -> int | None:
    """Let the row of a key die in a turn; its number. Whoever is searching may still ask for it."""
    query = f"SELECT num FROM rows WHERE key = ? AND died = {_LIVING}"  # noqa: S608 - a number
    row = table.execute(query, (packed_key(key),)).fetchone()
    if row is None:
        return None
    table.execute("UPDATE rows SET died = ? WHERE num = ?", (turn, row[0]))
    return int(row[0])


def _note_fields(table: sqlite3.Connection, used: set[str]) -> None:
    """Note which fields have a text, where all that had one before are known."""
    before = int(table.execute("PRAGMA user_version").fetchone()[0])
    now = before | sum(1 << at for at, field in enumerate(FIELDS) if field in used)
    if before & _KNOWN and now != before:
        table.execute(f"PRAGMA user_version = {now}")


def _fields(answer: list[tuple[int]]) -> frozenset[str]:
    """The fields that may have a text."""
    noted = answer[0][0] if answer else 0
    if not noted & _KNOWN:
        return frozenset(FIELDS)
    return frozenset(field for at, field in enumerate(FIELDS) if noted & 1 << at)


def _settle(table: sqlite3.Connection, commit: int, turn: int) -> None:
    """Note that a turn has come. When somebody is in the way it stays pending, which is as good."""
    with suppress(sqlite3.OperationalError):
        query = "UPDATE state SET done = ?, turn = ?, pending = 0"
        table.execute(query, (commit, turn))


def _last_commit(folder: str) -> int | None:
    """The commit that `meta.json` is of; None when there is none."""
    try:
        with open(os.path.join(folder, "meta.json"), "rb") as stream:
            text = stream.read()
        # The last one is the index's own; those before it are of deletions.
        return int(text.rpartition(b'"opstamp":')[2].split(b",")[0].strip(b" \r\n}"))
    except (OSError, ValueError):
        return None


def _told(exc: BaseException) -> str:
    """The reason in one line; what is not an error of the index goes on.

    Rust's panic, which a damaged file may cause, is a `BaseException`.
    """
    if isinstance(exc, (KeyboardInterrupt, SystemExit, GeneratorExit, MemoryError)):
        raise exc
    return (str(exc).strip().splitlines() or [type(exc).__name__])[0][:200]
