"""What does a program look like? Asked of whoever knows its language."""

from __future__ import annotations

from satchel._language import say
from satchel.authoring.sources import Look, Spot, program_files


def look_at(folder: str, runtime: str, entry: str) -> Look | None:
    """Look at a program; None when there is no source to look at."""
    files = program_files(folder, runtime, entry)
    if not files:
        return None
    try:
        if runtime == "python":
            from satchel.authoring.look_python import look

            return look(files)
        from satchel.authoring.look_tokens import look as look_tokens

        return look_tokens(files, runtime)
    except RecursionError:
        return Look(broken=Spot(say("it is nested too deeply"), files[0].path, 0))
