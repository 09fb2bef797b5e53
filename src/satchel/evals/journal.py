"""The journal of an evaluation: an append-only file with every finished run and grade.

Its folder is named after everything that the results depend on, so that an evaluation that was
killed goes on where it was, and one of another content starts from nothing. A line that a killed
process left unfinished is ignored.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from hashlib import sha256
from typing import TYPE_CHECKING, Any, NamedTuple

from satchel._fs import locked
from satchel.errors import Refused, SettingsError
from satchel.i18n import say

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType
    from typing import Self

    from satchel.settings import Settings

_LOCK_TIMEOUT_S = 2.0
_KEY_LENGTH = 24


class PairKey(NamedTuple):
    """A case and the number of its repeat: the inputs of pydantic-evals."""

    case: str
    repeat: int

    def key(self, part: str) -> str:
        """The key of a record in the journal."""
        return f"{self.case}#{self.repeat}/{part}"


class EvalJournal:
    """The records of one evaluation by their keys; use it with `with`."""

    def __init__(self, settings: Settings, identity: Mapping[str, Any]) -> None:
        """Find the journal.

        Args:
            settings: Name the state folder.
            identity: JSON values of everything that the results depend on.

        Raises:
            SettingsError: there is no state folder.
        """
        if not settings.paths.state:
            raise SettingsError(say("There is no home folder"), say("Set `HOME` or `SATCHEL_HOME`"))
        text = json.dumps(identity, sort_keys=True, ensure_ascii=False)
        self.key = sha256(text.encode("utf-8", "replace")).hexdigest()[:_KEY_LENGTH]
        self.folder = os.path.join(settings.paths.state, "evals", self.key)
        self._path = os.path.join(self.folder, "journal.jsonl")
        self._records: dict[str, dict[str, Any]] = {}
        self._lock: Any = None
        self._descriptor = -1

    def __enter__(self) -> Self:
        os.makedirs(self.folder, mode=0o700, exist_ok=True)
        self._lock = locked(os.path.join(self.folder, "lock"), timeout=_LOCK_TIMEOUT_S)
        try:
            self._lock.__enter__()
        except TimeoutError as exc:
            raise Refused(
                say("This evaluation is running in another process"), say("Wait until it ends")
            ) from exc
        self._records = self._read()
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
        self._descriptor = os.open(self._path, flags, 0o600)
        os.write(self._descriptor, b"\n")  # ends a line that a killed process began
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        os.close(self._descriptor)
        self._lock.__exit__(kind, error, trace)

    def _read(self) -> dict[str, dict[str, Any]]:
        records: dict[str, dict[str, Any]] = {}
        try:
            with open(self._path, encoding="utf-8", errors="replace") as file:
                lines = file.read().split("\n")
        except FileNotFoundError:
            return records
        for line in lines:
            with suppress(ValueError, KeyError, TypeError):
                record: dict[str, Any] = json.loads(line)
                records.setdefault(str(record["key"]), record)
        return records

    def find(self, key: str) -> dict[str, Any] | None:
        """The record of a key, if that work is finished."""
        return self._records.get(key)

    def append(self, key: str, record: Mapping[str, Any]) -> dict[str, Any]:
        """Keep finished work: the line is on disk when this returns."""
        row = {"key": key, **record}
        line = json.dumps(row, ensure_ascii=False).encode("utf-8", "replace") + b"\n"
        os.write(self._descriptor, line)
        os.fsync(self._descriptor)
        self._records[key] = row
        return row

    def transcript_path(self, key: str) -> str:
        """Where the transcript of a run belongs."""
        name = "".join(char if char.isalnum() or char in "-_." else "-" for char in key)
        folder = os.path.join(self.folder, "transcripts")
        os.makedirs(folder, mode=0o700, exist_ok=True)
        return os.path.join(folder, f"{name[:100]}-{sha256(key.encode()).hexdigest()[:8]}.json")
