"""The command `ui`: serve the web UI."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import click

from satchel._fs import read_plain
from satchel._language import say
from satchel.cli.output import one_line
from satchel.cli.session import command
from satchel.cli.values import WholeNumber
from satchel.errors import InvalidInput, NotFound

if TYPE_CHECKING:
    from satchel.cli.session import Session

PORT = 8790
_MOST = 4_096


@command(
    say("Manage skills and watch goals in your browser.")
    + "\n\n"
    + say(
        "Serves pages on this machine alone and opens them by a link that works once. Nothing is "
        "open to other machines unless `--host` says so, and then a password is needed."
    ),
    "satchel ui",
    "satchel ui --no-browser --port 0",
    "satchel ui --host 0.0.0.0 --password-file ~/.satchel-password",
    "satchel ui --behind-https --name skills.example.com --password-file ~/.satchel-password",
    json=False,
)
@click.option(
    "--host", default="127.0.0.1", help=say("The address to listen on, 127.0.0.1 unless given.")
)
@click.option(
    "--port", type=WholeNumber(most=65_535), default=PORT,
    help=say("The port, 8790 unless given; 0 takes a free one."),
)  # fmt: skip
@click.option("--name", "names", multiple=True, metavar="HOST",
              help=say("A further name under which people reach it; `NAME.localhost` keeps its "
                       "cookies from other servers of this machine."))  # fmt: skip
@click.option("--password-file", metavar="FILE", help=say("The file that has the password."))
@click.option("--behind-https", is_flag=True,
              help=say("A proxy in front speaks https: cookies are for https alone."))  # fmt: skip
@click.option("--no-browser", is_flag=True, help=say("Print the link, and open nothing."))
def ui(
    session: Session,
    host: str,
    port: int,
    names: tuple[str, ...],
    password_file: str | None,
    behind_https: bool,
    no_browser: bool,
) -> int:
    """The link on stdout; words for people on stderr."""
    from satchel.ui.serving import Web, serve

    first = True
    heard = True

    def told(url: str) -> None:
        nonlocal first, heard
        heard = heard and _print(session, url)
        if not heard:
            session.err.line(url)
        if first:
            first = False
            session.err.line(say("Open the link above. End it with Ctrl-C"), "dim")
            if web.open_to_others and not behind_https:
                _warn(session)
            if not no_browser:
                _open(url)
        else:
            session.err.line(
                say("That link works no more. The one above opens another browser"), "dim"
            )

    def end(*_: object) -> None:
        raise SystemExit(0)

    password = _password(session, password_file) if password_file else ""
    web = Web(host, port, password, tuple(names), told, behind_https)
    satchel = session.satchel
    satchel.patience = 0.0
    before = signal.signal(signal.SIGTERM, end)
    try:
        serve(satchel, web)
    finally:
        signal.signal(signal.SIGTERM, before)
        satchel.close()
    return 0


def _print(session: Session, url: str) -> bool:
    """Whether a link could be printed: whoever reads stdout may have gone, as `head` does."""
    stream = session.out.stream
    try:
        session.out.data(url + "\n")
        stream.flush()
    except OSError:
        # What is left in the buffer would fail once more at the end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        return False
    return True


def _warn(session: Session) -> None:
    words = say("Everybody on the way can read along: this is http")
    session.err.line(words, "yellow")
    session.err.line(
        say("Put a proxy with TLS in front, and give `--behind-https` and `--name`"), "", "→ "
    )


def _password(session: Session, path: str) -> str:
    """What a file holds.

    Raises:
        NotFound: it cannot be read.
        InvalidInput: it is empty.
    """
    from satchel.integrations.mcp.over_http import others_can_read

    path = os.path.expanduser(path)
    try:
        text = read_plain(path, _MOST).decode().strip()
    except (OSError, UnicodeDecodeError) as exc:
        raise NotFound(
            say("The file `{path}` cannot be read", path=one_line(path)),
            say("Write a password into it"),
        ) from exc
    if not text:
        raise InvalidInput(
            say("The file `{path}` is empty", path=one_line(path)), say("Write a password into it")
        )
    if others_can_read(path):
        session.err.line(
            say("Others on this machine can read the password in `{path}`", path=one_line(path))
        )
        step = say("Run `{command}`", command=f"chmod 600 {one_line(path)}")
        session.err.line(step, "", "→ ")
    return text


def _open(url: str) -> None:
    """Open a browser where there is a screen; a browser in a terminal would take it away."""
    import webbrowser

    if os.name == "posix" and not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        import sys

        if sys.platform != "darwin":
            return
    webbrowser.open(url)
