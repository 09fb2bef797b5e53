"""The command `ui`: serve the web UI."""

from __future__ import annotations

import os
import sys
import webbrowser
from typing import TYPE_CHECKING

import click

from satchel._fs import read_plain
from satchel.cli.console import one_line
from satchel.cli.context import closed_at_exit, command
from satchel.cli.options import flag_option, server_options
from satchel.errors import InvalidInput, NotFound
from satchel.i18n import say

if TYPE_CHECKING:
    from satchel.cli.context import CliContext

_DEFAULT_PORT = 8790
_MAX_PASSWORD_BYTES = 4_096


@command(
    say("Manage skills and goals in your browser."),
    "satchel ui",
    "satchel ui --host 0.0.0.0 --password-file ~/.satchel-password",
    "satchel ui --behind-https --name skills.example.com --password-file ~/.satchel-password",
    json=False,
)
@server_options(_DEFAULT_PORT)
@click.option("--password-file", metavar="FILE", help=say("Read it from this file."))
@flag_option("--behind-https", say("A proxy in front uses HTTPS."))
@flag_option("--no-browser", say("Print the link without opening it."))
def ui(
    context: CliContext,
    host: str,
    port: int,
    names: tuple[str, ...],
    password_file: str | None,
    behind_https: bool,
    no_browser: bool,
) -> int:
    from satchel.ui.server import UiServerSettings, serve

    first = True

    def print_link(url: str) -> None:
        nonlocal first
        context.out.data(url + "\n")
        context.out.stream.flush()
        if first:
            first = False
            context.err.line(say("{key} ends it", key="Ctrl-C"), "dim")
            if web.open_to_others and not behind_https:
                _warn(context)
            if not no_browser:
                _open(url)

    password = _password(context, password_file) if password_file else ""
    web = UiServerSettings(host, port, password, tuple(names), print_link, behind_https)
    context.satchel.index_wait_s = 0.0
    with closed_at_exit(context.satchel) as satchel:
        serve(satchel, web)
    return 0


def _warn(context: CliContext) -> None:
    text = say("This is HTTP: put a proxy with TLS in front, and pass `--behind-https`")
    context.err.line(text, "yellow")


def _password(context: CliContext, path: str) -> str:
    """Read the password file."""
    path = os.path.expanduser(path)
    try:
        text = read_plain(path, _MAX_PASSWORD_BYTES).decode().strip()
    except (OSError, UnicodeDecodeError) as exc:
        reason = getattr(exc, "strerror", "") or say("it is not text")
        raise NotFound(
            say("`{path}` cannot be read: {reason}", path=one_line(path), reason=reason),
            say("Check the permissions"),
        ) from exc
    if not text:
        raise InvalidInput(say("The file `{path}` is empty", path=one_line(path)))
    if os.name == "posix" and os.stat(path).st_mode & 0o077:
        context.err.line(say("Others on this machine can read `{path}`", path=one_line(path)))
        step = say("Run `{command}`", command=f"chmod 600 {one_line(path)}")
        context.err.line(step, indent="→ ")
    return text


def _open(url: str) -> None:
    """Open a browser if there is a display; a text browser would take over the terminal."""
    display = os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    if display or os.name != "posix" or sys.platform == "darwin":
        webbrowser.open(url)
