"""Records what happens to skills, and OpenTelemetry spans.

A `Trace` keeps recent events in memory and writes those of the kinds `KEPT` as JSON lines to the
state folder. Listeners get every event. When OpenTelemetry is installed, tool calls and selections
are spans too.
"""

from __future__ import annotations

import os
import time
from collections import deque
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from satchel._optional import available
from satchel.i18n import pack_messages, unpack_messages

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence

Kind = Literal[
    "discovered", "removed", "changed", "shadowed", "listed", "shortened", "named", "unlisted",
    "offered", "searched", "loaded", "failed", "cleaned", "ran", "packaged", "selected", "repeated",
    "rebuilt", "told", "approved", "refused", "forgotten", "planned",
]  # fmt: skip

KEPT: frozenset[str] = frozenset(
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


class Event(NamedTuple):
    """One recorded event."""

    kind: Kind
    skills: Sequence[str]
    """Names of the skills concerned. A large scan has a count in `values` instead."""
    values: dict[str, Any]
    time: float
    """Seconds since the epoch."""


class Trace:
    """Records what happens to skills: offered, selected, loaded, called."""

    def __init__(
        self, folder: str | None = None, project: str = "", *, enabled: bool = True
    ) -> None:
        """Write kept events below `folder`; None keeps everything in memory.

        Args:
            folder: The state folder.
            project: The project's folder; all projects share one file.
            enabled: False records nothing.
        """
        self.enabled = enabled
        self._file = os.path.join(folder, "trace.jsonl") if folder else None
        self._project = project
        self._listeners: list[Callable[[Event], None]] = []
        self._last_offer = ""
        self.events: deque[Event] = deque(maxlen=_MAX_EVENTS_IN_MEMORY)

    def listen(self, listener: Callable[[Event], None]) -> Callable[[], None]:
        """Call `listener` with each new event; returns a function that removes it."""
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
        if self._file is not None and kind in KEPT:
            self._write(event, self._file)

    def _write(self, event: Event, file: str) -> None:
        import json

        row: dict[str, Any] = {
            "t": round(event.time, 3),
            "kind": event.kind,
            "project": self._project,
        }
        if event.kind == "offered":
            # The same catalogue is offered repeatedly: write its names once.
            digest = str(event.values.get("digest", ""))
            row["digest"] = digest
            if digest != self._last_offer:
                row.update(event.values)
                self._last_offer = digest
        else:
            row["skills"] = list(event.skills)
            row.update(pack_messages(event.values) if event.kind == "failed" else event.values)
        line = (json.dumps(row) + "\n").encode()
        try:
            descriptor = _open_to_append(file)
            try:
                size = os.fstat(descriptor).st_size
                os.write(descriptor, line)  # one write: lines of two processes do not interleave
            finally:
                os.close(descriptor)
            if size > _MAX_FILE_BYTES:
                os.replace(file, file + ".1")
                self._last_offer = ""
        except (OSError, ValueError) as exc:
            # A trace that cannot be written must not stop the work; that is an event itself.
            self._file = None
            self.record("failed", (), what="trace", reason=str(exc))

    def mark(self) -> tuple[int, ...]:
        """A value that changes when any process writes to the file."""
        found: list[int] = []
        for path in (self._file + ".1", self._file) if self._file else ():
            try:
                info = os.stat(path)
                found += (info.st_size, info.st_mtime_ns)
            except OSError:
                found += (0, 0)
        return tuple(found)

    def history(self) -> Iterator[dict[str, Any]]:
        """The recorded events of this project, newest first, across processes."""
        yield from map(unpack_messages, reversed(list(self._rows())))

    def _rows(self) -> Iterator[dict[str, Any]]:
        import json

        for path in (self._file + ".1", self._file) if self._file else ():
            try:
                with open(path, "rb") as stream:
                    for line in stream:
                        try:
                            row: Any = json.loads(line)
                        except ValueError:
                            continue  # an incomplete line: the process died while writing it
                        if isinstance(row, dict) and row.get("project") == self._project:  # pyright: ignore[reportUnknownMemberType]
                            yield row
            except OSError:
                continue


def _open_to_append(file: str) -> int:
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_CLOEXEC", 0)
    try:
        return os.open(file, flags, 0o600)
    except FileNotFoundError:
        os.makedirs(os.path.dirname(file), mode=0o700, exist_ok=True)
        return os.open(file, flags, 0o600)


_tracer: Any = None


@contextmanager
def span(name: str, **attributes: Any) -> Generator[Callable[[str, Any], None]]:
    """Open an OpenTelemetry span if its API is installed; yields a function to set attributes.

    The attribute `error.type` also marks the span as failed.
    """
    global _tracer  # noqa: PLW0603 - determined once per process
    if _tracer is None:
        module = available("opentelemetry.trace")
        _tracer = module.get_tracer("satchel") if module is not None else False
    if _tracer is False:
        yield lambda _name, _value: None
        return
    with _tracer.start_as_current_span(name, attributes=attributes) as current:

        def note(name: str, value: Any) -> None:
            current.set_attribute(name, value)
            api = available("opentelemetry.trace") if name == "error.type" else None
            if api is not None:
                current.set_status(api.StatusCode.ERROR)

        yield note
