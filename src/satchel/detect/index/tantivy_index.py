"""Word index on tantivy (extra `search`), for up to a million skills.

tantivy stores a number and the terms of each skill. The number is a hash of the key; the file
`rows` beside the index maps it to key and stamp, because reading a stored text costs microseconds
per hit and a number nothing.

An update commits to tantivy first and then writes `rows`. A process that is killed in between
leaves older stamps, so those skills are indexed again. When the folder is damaged, or `rows` is
newer than the commit, the index counts as empty until the next update rebuilds it: a search never
fails because of it.
"""

from __future__ import annotations

import os
import shutil
import threading
from functools import partial
from hashlib import blake2b
from itertools import chain, islice
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from satchel._optional import require
from satchel.detect.index import FIELDS, read_state, search_allowed, write_state

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from satchel.detect.index import IndexRow, Stamp

_MAX_SMALL_UPDATE_ROWS = 512
_SMALL_HEAP_BYTES = 15_000_000
"""tantivy's minimum."""
_LARGE_HEAP_BYTES = 1_000_000_000
"""Fits a million short skills in one segment; each further segment slows every search. Only used
memory is allocated."""
_TOKENIZER_NAME = "satchel_spaces"
_MAGIC = b"satchel-rows-2\n"
_hit_score = itemgetter(0)


class _TantivyRows(NamedTuple):
    """The content of the file `rows`."""

    commit: int
    """tantivy's commit that it belongs to."""
    fields: frozenset[str]
    """Fields with a text: few skills have `when`, and each term lookup costs time."""
    stamps: dict[str, Stamp]
    """By key."""
    keys: dict[int, str]
    """By number, in the order of `stamps`."""


_NO_ROWS = _TantivyRows(-1, frozenset(), {}, {})


class _TantivyView(NamedTuple):
    """An opened commit."""

    searcher: Any
    document_count: int
    schema: Any
    rows: _TantivyRows
    version: tuple[int, ...]
    """Process, inode and time of both files: another version, another commit."""


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
        self._meta_path = os.path.join(self._folder, "meta.json")
        self._rows_path = os.path.join(folder, "rows")
        self._lock = threading.Lock()
        self._view: _TantivyView | None = None
        self._damaged_version: tuple[int, ...] | None = None

    def stamps(self) -> Mapping[str, Stamp]:
        """Return the stamps of indexed skills by key."""
        view = self._current_view()
        return view.rows.stamps if view is not None else {}

    def update(
        self,
        rows: Iterable[IndexRow],
        gone: Iterable[str] = (),
        progress: Callable[[int], None] | None = None,
    ) -> None:
        """Add, replace and remove rows atomically for searches.

        A damaged index is removed first, so callers hold a lock of their own (`IndexSync`).

        Raises:
            TimeoutError: another process is writer.
            OSError: it cannot be written.
        """
        remaining_rows = iter(rows)
        first_rows = list(islice(remaining_rows, _MAX_SMALL_UPDATE_ROWS + 1))
        is_small = len(first_rows) <= _MAX_SMALL_UPDATE_ROWS
        heap_bytes = _SMALL_HEAP_BYTES if is_small else _LARGE_HEAP_BYTES
        with _IndexWriter(self._open_for_writing(), heap_bytes, self._tantivy.Document) as writer:
            view = self._current_view()  # no other writer from here on
            old_rows = view.rows if view is not None else _NO_ROWS
            # A killed update may have left rows that `rows` does not list.
            is_behind = view is not None and old_rows.commit < _last_commit(self._meta_path)
            stamps, keys = dict(old_rows.stamps), dict(old_rows.keys)
            dropped = [key for key in gone if stamps.pop(key, None) is not None]
            for number in map(_document_number, dropped):
                writer.drop(number)
                del keys[number]
            processed_count = 0
            for processed_count, row in enumerate(chain(first_rows, remaining_rows), 1):
                number = _document_number(row.key)
                if is_behind or row.key in stamps:
                    writer.drop(number)
                writer.add(number, row)
                stamps[row.key] = row.stamp
                keys[number] = row.key
                if progress is not None and processed_count % 500 == 0:
                    progress(processed_count)
            commit = writer.commit()
            fields = old_rows.fields.union(writer.used_fields)
            write_state(self._rows_path, _MAGIC, (commit, tuple(fields), stamps, list(keys), []))
            saved_rows = _TantivyRows(commit, fields, stamps, keys)
            self._view = self._make_view(saved_rows, self._read_version())
        if progress is not None:
            progress(processed_count)

    def search_signals(
        self,
        terms: Sequence[tuple[str, float]],
        signals: Mapping[str, Mapping[str, float]],
        limit: int,
        allowed: Collection[str] | None = None,
    ) -> dict[str, dict[str, float]]:
        """Return the scores of the best `limit` keys per signal."""
        view = self._current_view()
        if view is None or not terms or limit < 1:
            return {signal: {} for signal in signals}
        encodable_terms = [(_encodable(term), weight) for term, weight in terms]
        try:
            return {
                signal: self._score_best(view, fields, encodable_terms, limit, None)
                if allowed is None
                else search_allowed(
                    partial(self._score_best, view, fields, encodable_terms), limit, allowed
                )
                for signal, fields in signals.items()
            }
        except BaseException as exc:  # noqa: BLE001 - `_reason_or_raise` raises what is not about the index
            _reason_or_raise(exc)
            self._mark_damaged(view.version)
            return {signal: {} for signal in signals}

    def count(self) -> int:
        """Return the number of indexed keys."""
        view = self._view or self._current_view()
        return view.document_count if view is not None else 0

    def version(self) -> tuple[int, ...]:
        """Return a value that differs after every change by any process."""
        view = self._current_view()
        return view.version if view is not None else ()

    def _score_best(
        self,
        view: _TantivyView,
        fields: Mapping[str, float],
        terms: Sequence[tuple[str, float]],
        limit: int,
        keys: list[str] | None,
    ) -> dict[str, float]:
        """Return the scores of the best keys over some fields, optionally of given keys only."""
        query = self._tantivy.Query
        term_query, boost_query, schema = query.term_query, query.boost_query, view.schema
        should = self._tantivy.Occur.Should
        parts = [
            (should, boost_query(term_query(schema, field, term, "freq"), share * weight))
            if share * weight != 1.0
            else (should, term_query(schema, field, term, "freq"))
            for field, share in fields.items()
            if field in view.rows.fields
            for term, weight in terms
        ]
        hit_limit = min(limit, view.document_count)
        if not hit_limit or not parts:
            return {}
        goal_query = query.boolean_query(parts)
        if keys is not None:
            key_query = query.term_set_query(schema, "num", [_document_number(key) for key in keys])
            must = self._tantivy.Occur.Must
            goal_query = query.boolean_query(
                [(must, goal_query), (must, query.const_score_query(key_query, 0.0))]
            )
        hits = view.searcher.search(goal_query, hit_limit, count=False).hits
        numbers = view.searcher.fast_field_values("num", [hit[1] for hit in hits])
        keys_by_number = view.rows.keys
        try:
            # In C from end to end: this is as much work as the search of a small library.
            return dict(
                zip(map(keys_by_number.__getitem__, numbers), map(_hit_score, hits), strict=True)
            )
        except KeyError:  # `rows` is older than the commit
            pairs = zip(numbers, hits, strict=True)
            return {
                keys_by_number[number]: hit[0] for number, hit in pairs if number in keys_by_number
            }

    def _current_view(self) -> _TantivyView | None:
        """Return the newest usable commit; None without one."""
        try:
            version = self._read_version()
        except OSError:
            return None
        view = self._view
        if view is not None and view.version == version:
            return view
        if version == self._damaged_version:
            return None
        with self._lock:
            try:
                rows = _read_rows(self._rows_path)
                if not 0 <= rows.commit <= _last_commit(self._meta_path):
                    self._mark_damaged(version)  # its two files do not belong together
                    return None
                self._view = self._make_view(rows, version)
            except BaseException as exc:  # noqa: BLE001 - the same
                _reason_or_raise(exc)
                self._mark_damaged(version)
                return None
            return self._view

    def _make_view(self, rows: _TantivyRows, version: tuple[int, ...]) -> _TantivyView:
        index = self._open()
        searcher = index.searcher()
        return _TantivyView(searcher, int(searcher.num_docs), index.schema, rows, version)

    def _read_version(self) -> tuple[int, ...]:
        meta, rows = os.stat(self._meta_path), os.stat(self._rows_path)
        times = (meta.st_mtime_ns, meta.st_size, rows.st_mtime_ns, rows.st_size)
        return os.getpid(), meta.st_ino, rows.st_ino, *times

    def _open_for_writing(self) -> Any:
        """Return the index for writing: an empty one without a usable one."""
        if self._current_view() is None:
            self._view = None
            if os.path.lexists(self._rows_path):
                os.unlink(self._rows_path)
            shutil.rmtree(self._folder, ignore_errors=True)
            os.makedirs(self._folder, mode=0o700, exist_ok=True)
        try:
            return self._open()
        except BaseException as exc:
            raise OSError(f"tantivy: {_reason_or_raise(exc)}") from exc

    def _mark_damaged(self, version: tuple[int, ...]) -> None:
        self._damaged_version = version
        self._view = None

    def _open(self) -> Any:
        """Open or create the index. It is reloaded only explicitly."""
        tantivy = self._tantivy
        builder = tantivy.SchemaBuilder()
        # Not an unsigned one: deleting by the term of such a field finds nothing (0.27).
        builder.add_integer_field("num", indexed=True, fast=True)
        for field in FIELDS:
            builder.add_text_field(field, tokenizer_name=_TOKENIZER_NAME, index_option="freq")
        index = tantivy.Index(builder.build(), self._folder)
        spaces = tantivy.TextAnalyzerBuilder(tantivy.Tokenizer.whitespace()).build()
        index.register_tokenizer(_TOKENIZER_NAME, spaces)
        index.config_reader("manual")
        return index


class _IndexWriter:
    """A tantivy writer for one update, which is committed or discarded."""

    def __init__(self, index: Any, heap_bytes: int, document: Any) -> None:
        self._index = index
        self._heap_bytes = heap_bytes
        self._document = document
        self._writer: Any = None
        self.used_fields: set[str] = set()

    def __enter__(self) -> Self:
        try:
            # One thread writes one segment.
            self._writer = self._index.writer(self._heap_bytes, 1)
            # A process killed during a commit leaves a file whose name the next one needs.
            self._writer.garbage_collect_files()
        except ValueError as exc:
            if "LockBusy" in str(exc):
                raise TimeoutError("another process is writing the index") from exc
            raise OSError(f"tantivy: {exc}") from exc
        return self

    def __exit__(self, kind: object, exc: BaseException | None, trace: object) -> None:
        writer, self._writer = self._writer, None
        try:
            # Ends the writer and releases its lock, now; merges are waited for, they are short.
            writer.wait_merging_threads()
        except BaseException as close_error:
            if exc is None:
                raise OSError(f"tantivy: {_reason_or_raise(close_error)}") from close_error
        if exc is not None and not isinstance(exc, (OSError, TypeError)):
            raise OSError(f"tantivy: {_reason_or_raise(exc)}") from exc

    def add(self, number: int, row: IndexRow) -> None:
        document = self._document()
        document.add_integer("num", number)
        for field, text in zip(FIELDS, row.fields, strict=True):
            if text:
                document.add_text(field, _encodable(text))
                self.used_fields.add(field)
        self._writer.add_document(document)

    def drop(self, number: int) -> None:
        self._writer.delete_documents_by_term("num", number)

    def commit(self) -> int:
        return int(self._writer.commit())


def _read_rows(path: str) -> _TantivyRows:
    """Read the file `rows`; the commit is -1 when it is unusable."""
    state = read_state(path, _MAGIC)
    if state is None:
        return _NO_ROWS
    commit, used, stamps, numbers, _ = state
    return _TantivyRows(commit, frozenset(used), stamps, dict(zip(numbers, stamps, strict=True)))


def _document_number(key: str) -> int:
    """Return 63 bits of a hash of the key."""
    data = key.encode("utf-8", "surrogatepass")
    return int.from_bytes(blake2b(data, digest_size=8).digest(), "big") >> 1


def _encodable(text: str) -> str:
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def _last_commit(path: str) -> int:
    """Return the commit in `meta.json`."""
    with open(path, "rb") as stream:
        text = stream.read()
    # The last one is the index's own; those before it are of deletions.
    return int(text.rpartition(b'"opstamp":')[2].split(b",")[0].strip(b" \r\n}"))


def _reason_or_raise(exc: BaseException) -> str:
    """Return the reason in one line; re-raise an exception that is not about the index.

    Rust's panic, which a damaged file may cause, is a `BaseException`.
    """
    if isinstance(exc, (KeyboardInterrupt, SystemExit, GeneratorExit, MemoryError)):
        raise exc
    return (str(exc).strip().splitlines() or [type(exc).__name__])[0][:200]
