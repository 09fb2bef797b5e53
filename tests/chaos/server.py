"""A process that is ready to work, and forks a child for each job that may be killed.

    python server.py DESCRIPTOR

Starting Python takes longer than an operation; a kill should hit the operation. So everything is
imported once, here. Jobs come as JSON lines over a socket, `{"project", "op", "changes"}`; the
child begins when the next line comes, and says over the same socket how it ended. It never uses
`write` for that: a fault injected into `write` must hit the work, not the report.
"""

from __future__ import annotations

import ctypes
import json
import os
import socket
import sys
import tempfile
import traceback
from contextlib import suppress
from typing import Any

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from chaos import commands, works
from satchel.errors import SatchelError


def main() -> None:
    wire = socket.socket(fileno=int(sys.argv[1]))
    _warm_up()
    wire.send(works.dump({"ready": True}))
    incoming = wire.makefile("rb", buffering=0)
    while line := incoming.readline():
        job = json.loads(line)
        ours, theirs = socket.socketpair()
        child = os.fork()
        if not child:
            ours.close()
            code = 70
            try:
                code = _work(job, wire, theirs)
            except Exception:  # noqa: BLE001 - whatever it is, a child must not live on as a server
                wire.send(works.dump({"crash": traceback.format_exc()[-1500:]}))
            os._exit(code)
        theirs.close()
        wire.send(works.dump({"child": child}))
        incoming.readline()
        with suppress(BrokenPipeError):  # it was killed before
            ours.send(b"go")
        _, status = os.waitpid(child, 0)
        ours.close()
        wire.send(works.dump({"ended": os.waitstatus_to_exitcode(status)}))


def _warm_up() -> None:
    """Import whatever the work imports, so that no child does."""
    with tempfile.TemporaryDirectory() as project:
        commands.rehearse(project)


def _work(job: dict[str, Any], wire: socket.socket, gate: socket.socket) -> int:
    ctypes.CDLL(None).prctl(0x59616D61, ctypes.c_ulong(-1), 0, 0, 0)  # strace may attach
    gate.recv(2)
    try:
        commands.do(job["project"], job["op"], job["changes"])
    except SatchelError as exc:
        report = [type(exc).__name__, exc.message, exc.hint, exc.exit_code]
        wire.send(works.dump({"error": report}))
        return exc.exit_code
    wire.send(works.dump({"done": 1}))
    return 0


if __name__ == "__main__":
    main()
