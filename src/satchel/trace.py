"""Records what happens to skills, and OpenTelemetry spans.

A `Trace` keeps recent events in memory and writes those of `WRITTEN_KINDS` as JSON lines to the
state folder. Listeners get every event. When OpenTelemetry is installed, tool calls and selections
are spans too.
"""

from __future__ import annotations

import os
import time
from collections import deque
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast

from satchel._optional import available
from satchel.i18n import pack_messages, unpack_messages

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence

Kind = Literal[
    "discovered", "removed", "changed", "shadowed", "listed", "shortened", "named", "unlisted",
    "offered", "searched", "loaded", "failed", "cleaned", "ran", "packaged", "selected", "repeated",
    "rebuilt", "told", "approved", "refused", "forgotten", "planned",
]  # fmt: skip

WRITTEN_KINDS: frozenset[str] = frozenset(
    (
        "offered",
        "searched",
        "selected",
        "loaded",
        "failed",
        "cleaned",
        "ran",
        "rebuilt",
        "told",
        "approved",
        "refused",
        "planned",
    )
)
"""Kinds that are written to the file."""
_MAX_FILE_BYTES = 8 * 1024 * 1024
_MAX_EVENTS_IN_MEMORY = 4_096
_tracer: Any = None
"""The tracer of OpenTelemetry; False when its API is not installed, None before the first span."""


class Event(NamedTuple):
    """One recorded event."""

    kind: Kind
    """What happened."""
    skills: Sequence[str]
    """Names of the skills concerned. A large scan has a count in `values` instead."""
    values: dict[str, Any]
    """Details, such as the reason or the number of characters."""
    time: float
    """Seconds since the epoch."""


class Trace:
    """Records what happens to skills: offered, selected, loaded, called. `Satchel.trace` has one.

    Example:
        from satchel import Satchel

        satchel = Satchel.for_project(".")
        events = []
        stop = satchel.trace.listen(events.append)
        satchel.which("Please review my change")
        stop()
        assert any(event.kind == "selected" for event in events)
    """

    def __init__(
        self, folder: str | None = None, project: str = "", *, enabled: bool = True
    ) -> None:
        """Write events below `folder`; None keeps everything in memory.

        Args:
            folder: The state folder.
            project: The project's folder; all projects share one file.
            enabled: False records nothing.
        """
        self.enabled = enabled
        self._path = os.path.join(folder, "trace.jsonl") if folder else None
        self._project = project
        self._listeners: list[Callable[[Event], None]] = []
        self._last_offer = ""
        self.events: deque[Event] = deque(maxlen=_MAX_EVENTS_IN_MEMORY)

    def listen(self, listener: Callable[[Event], None]) -> Callable[[], None]:
        """Call `listener` with each new event; returns a function that removes it.

        Args:
            listener: The function.
        """
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def record(self, kind: Kind, skills: Sequence[str] = (), **values: Any) -> None:
        """Record an event."""
        if not self.enabled:
            return
        event = Event(kind, skills, values, time.time())
        self.events.append(event)
        for listener in list(self._listeners):
            try:
                listener(event)
            except Exception as exc:  # noqa: BLE001 - a listener must not stop the work
                self._listeners.remove(listener)
                self.record("failed", (), what="listener", reason=f"{type(exc).__name__}: {exc}")
        if self._path is not None and kind in WRITTEN_KINDS:
            self._write(event, self._path)

    def _write(self, event: Event, path: str) -> None:
        """Append an event to the file, and start a new file when it is too large."""
        import json

        line = (json.dumps(self._make_row(event)) + "\n").encode()
        try:
            if _append(path, line) > _MAX_FILE_BYTES:
                os.replace(path, f"{path}.1")
                self._last_offer = ""
        except (OSError, ValueError) as exc:
            # A trace that cannot be written must not stop the work; that is an event itself.
            self._path = None
            self.record("failed", (), what="trace", reason=str(exc))

    def _make_row(self, event: Event) -> dict[str, Any]:
        """The JSON values of an event; a catalogue that was offered just before has its digest."""
        row: dict[str, Any] = {
            "t": round(event.time, 3),
            "kind": event.kind,
            "project": self._project,
        }
        if event.kind == "offered":
            digest = str(event.values.get("digest", ""))
            row["digest"] = digest
            if digest != self._last_offer:
                row.update(event.values)
                self._last_offer = digest
        else:
            row["skills"] = list(event.skills)
            row.update(pack_messages(event.values) if event.kind == "failed" else event.values)
        return row

    def file_stamps(self) -> tuple[int, ...]:
        """Sizes and times of the files, which change when any process writes an event."""
        stamps: list[int] = []
        for path in self._paths():
            try:
                info = os.stat(path)
                stamps += (info.st_size, info.st_mtime_ns)
            except OSError:
                stamps += (0, 0)
        return tuple(stamps)

    def history(self) -> Iterator[dict[str, Any]]:
        """The recorded events of this project, newest first, across processes."""
        yield from map(unpack_messages, reversed(list(self._read_rows())))

    def _paths(self) -> tuple[str, ...]:
        """The files, the older one first."""
        return (f"{self._path}.1", self._path) if self._path else ()

    def _read_rows(self) -> Iterator[dict[str, Any]]:
        for path in self._paths():
            with suppress(OSError), open(path, "rb") as stream:
                for line in stream:
                    row = _parse_row(line)
                    if row.get("project") == self._project:
                        yield row


def _parse_row(line: bytes) -> dict[str, Any]:
    """The values of a line; empty for a line that a process left incomplete when it died."""
    import json

    try:
        row: Any = json.loads(line)
    except ValueError:
        return {}
    return cast("dict[str, Any]", row) if isinstance(row, dict) else {}


def _append(path: str, line: bytes) -> int:
    """Append a line to a file; returns the size that the file had before."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_CLOEXEC", 0)
    try:
        descriptor = os.open(path, flags, 0o600)
    except FileNotFoundError:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        descriptor = os.open(path, flags, 0o600)
    try:
        size = os.fstat(descriptor).st_size
        os.write(descriptor, line)  # one write: lines of two processes do not interleave
    finally:
        os.close(descriptor)
    return size


@contextmanager
def span(name: str, **attributes: Any) -> Generator[Callable[[str, Any], None]]:
    """Open an OpenTelemetry span if its API is installed; yields a function to set attributes.

    The attribute `error.type` also marks the span as failed.
    """
    global _tracer  # noqa: PLW0603 - determined once per process
    if _tracer is None:
        api = available("opentelemetry.trace")
        _tracer = api.get_tracer("satchel") if api is not None else False
    if _tracer is False:
        yield lambda _name, _value: None
        return
    with _tracer.start_as_current_span(name, attributes=attributes) as current:

        def set_attribute(name: str, value: Any) -> None:
            current.set_attribute(name, value)
            if name == "error.type" and (api := available("opentelemetry.trace")) is not None:
                current.set_status(api.StatusCode.ERROR)

        yield set_attribute
