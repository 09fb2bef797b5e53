"""The commands `sign` and `signers`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from satchel.cli.console import one_line, write_json
from satchel.cli.context import command, short_path, skill_argument
from satchel.cli.options import AnyPath, OneOf, flag_option, help_hint
from satchel.errors import InvalidInput, NotFound, Refused
from satchel.i18n import say

if TYPE_CHECKING:
    from satchel.cli.context import CliContext
    from satchel.skill.file_tree import FolderTree
    from satchel.store.signing import SignatureState, Signer, Signers

_MAX_KEY_CHARS = 1 << 14
_STATES = {
    "valid": ("✓", "green"),
    "unsigned": ("·", "dim"),
    "unknown-signer": ("?", "yellow"),
    "invalid": ("✗", "red"),
}


@command(
    say("Sign a skill with your SSH key, so that others know it is yours and unchanged.")
    + "\n\n"
    + say(
        "SKILL is a name or a folder. The signature is the file `SKILL.sig` beside `SKILL.md`, as "
        "`ssh-keygen -Y` makes and checks it. Sign last: any change afterwards is noticed."
    ),
    "satchel sign release-notes",
    "satchel sign ./skills/release-notes --key ~/.ssh/id_ed25519",
    "satchel sign release-notes --check",
)
@skill_argument("skill", type=AnyPath())
@click.option(
    "--key",
    metavar="FILE",
    type=AnyPath(dir_okay=False),
    default="~/.ssh/id_ed25519",
    help=say(
        "Your ed25519 key, `~/.ssh/id_ed25519` by default; a `.pub` file means the key in your "
        "SSH agent."
    ),
)
@flag_option("--check", say("Sign nothing; say who signed it."))
@flag_option("--statement", say("Sign nothing; print the text to sign."), "only_text")
def sign(
    context: CliContext, skill: str, key: str, check: bool, only_text: bool, as_json: bool
) -> int:
    folder, writable, tree = _find_folder(context, skill)
    if only_text:
        from satchel.store.signing import statement

        text = statement(tree).decode()
        if as_json:
            write_json({"folder": folder, "statement": text})
        else:
            context.out.data(text)
        return 0
    if check:
        from satchel.store.signing import check_signature

        return _print_state(context, folder, check_signature(tree), as_json=as_json)
    if not writable:
        raise Refused(
            say("`{name}` belongs to a product and is not yours to sign", name=one_line(skill)),
            say("Copy it into `.agents/skills` and sign the copy"),
        )
    from satchel.store.signing import sign_folder

    if _is_hardware(key) and not as_json:
        context.err.line(say("Touch your key when it blinks"))
    path = sign_folder(folder, key, tree)
    if as_json:
        write_json({"folder": folder, "signature": path})
    else:
        context.out.data(short_path(path))
    _print_lock_hint(context, folder)
    return 0


def _find_folder(context: CliContext, skill: str) -> tuple[str, bool, FolderTree]:
    """The folder of a name or path, whether it is writable, and the skill's tree in it."""
    from satchel.library.integrity import tree_of
    from satchel.skill.file_tree import FolderTree

    path = os.path.abspath(os.path.expanduser(skill))
    named = os.sep not in skill and not skill.startswith(".")
    library = context.satchel.library
    found = library.find(skill) if named else []
    if not found and os.path.isdir(path):  # of a single-skill project, only part is the skill
        real = os.path.realpath(path)
        found = [one for one in library.every() if os.path.realpath(one.base_dir) == real]
    if found:
        return found[0].base_dir, found[0].origin.writable, tree_of(found[0])
    if os.path.isdir(path):
        return path, True, FolderTree(path)
    if named:
        raise context.not_found(skill)
    raise NotFound(
        say("There is no folder `{path}`", path=one_line(skill)), say("Give a skill's folder")
    )


def _is_hardware(key: str) -> bool:
    """Whether the key must be touched; the request of `ssh-keygen` for it is not visible."""
    path = os.path.expanduser(key)
    try:
        with open(path if path.endswith(".pub") else f"{path}.pub", encoding="utf-8") as stream:
            return stream.read(3) == "sk-"
    except (OSError, ValueError):
        return False


def _print_lock_hint(context: CliContext, folder: str) -> None:
    """Print how to lock the skill again: its digest includes the signature."""
    from satchel.library.lockfile import lock_path, read_lock

    parent, name = os.path.split(folder)
    if name in read_lock(lock_path(parent)):
        context.err.line(
            say("The lockfile knows `{name}` without this signature", name=one_line(name))
        )
        context.err.line(
            say("Run `satchel lock {name}` to record it", name=one_line(name)), "", "→ "
        )


def _print_state(context: CliContext, folder: str, found: SignatureState, *, as_json: bool) -> int:
    """Print the state of a signature; returns 0 only when a trusted signer signed."""
    status = 0 if found.state == "valid" else 1
    if as_json:
        write_json({"folder": folder, **found._asdict()})
        return status
    mark, style = _STATES[found.state]
    words = {
        "valid": say("signed by {name}", name=one_line(found.identity)),
        "unsigned": say("not signed"),
        "unknown-signer": say("signed, but not by anybody on your list"),
        "invalid": say("the signature is wrong"),
    }
    lead = [(f"{mark} ", style)]
    context.out.line(f"{one_line(short_path(folder))}: {words[found.state]}", "", "", "  ", lead)
    if found.state == "valid":
        context.out.line(one_line(found.key), "dim", "  ")
    elif found.state != "unsigned":
        context.out.line(one_line(found.reason), "", "  ")
        context.out.line(one_line(found.hint), "", "  → ")
    return status


@command(
    say("Show whose signatures count, add somebody, or remove them.")
    + "\n\n"
    + say(
        "The list is yours and holds for all projects; no project can change it. It is OpenSSH's "
        "`allowed_signers` file, in your configuration folder."
    ),
    "satchel signers",
    "satchel signers add ada@example.org --key ada.pub",
    "satchel signers remove ada@example.org --revoke",
)
@click.argument("action", type=OneOf(["list", "add", "remove"]), default="list")
@click.argument("identity", required=False)
@click.option(
    "--key",
    metavar="FILE",
    type=AnyPath(dir_okay=False),
    help=say("add: the signer's public key, a `.pub` file; `-` reads it from the input."),
)
@click.option("--until", metavar="DAY", help=say("add: the day from which the key counts no more."))
@flag_option("--revoke", say("remove: the key is lost or stolen; never accept it again."))
def signers(
    context: CliContext,
    action: str,
    identity: str | None,
    key: str | None,
    until: str | None,
    revoke: bool,
    as_json: bool,
) -> int:
    from satchel.store.signing import add_signer, remove_signer, user_signers

    book = user_signers()
    if action == "list":
        return _list(context, book, as_json=as_json)
    if identity is None:
        raise InvalidInput(
            say("`{name}` is missing", name="IDENTITY"), help_hint(click.get_current_context())
        )
    if action == "remove":
        removed = remove_signer(book, identity, revoke=revoke)
        if as_json:
            write_json({"removed": [_record(one) for one in removed], "revoked": revoke})
        for one in [] if as_json else removed:
            values = {"name": one_line(one.identity), "key": one_line(one.key)}
            context.err.line(
                say("Revoked: {name} ({key})", **values)
                if revoke
                else say("Removed: {name} ({key})", **values)
            )
        return 0
    if key is None:
        raise InvalidInput(
            say("`{name}` is missing", name="--key"), help_hint(click.get_current_context())
        )
    made = add_signer(book, identity, _public_key(key), until or "")
    if as_json:
        write_json({"added": _record(made)})
    else:
        context.err.line(
            say("Counts from now on: {name} ({key})", name=made.identity, key=made.key), "green"
        )
    return 0


def _public_key(path: str) -> str:
    import sys

    try:
        if path == "-":
            return sys.stdin.read(_MAX_KEY_CHARS)
        with open(os.path.expanduser(path), encoding="utf-8", errors="replace") as stream:
            return stream.read(_MAX_KEY_CHARS)
    except OSError as exc:
        raise NotFound(
            say("There is no key `{path}`", path=one_line(path)),
            say("Give the `.pub` file that the signer sent you"),
        ) from exc


def _record(signer: Signer) -> dict[str, Any]:
    return {**signer._asdict(), "until": signer.until or None}


def _list(context: CliContext, book: Signers, *, as_json: bool) -> int:
    from satchel.store.signing import list_signers

    found = list_signers(book)
    if as_json:
        write_json({"file": book.allowed, "signers": [_record(one) for one in found]})
        return 0
    if not found:
        context.err.line(say("Nobody's signatures count yet"))
        context.err.line(say("Run `satchel signers add IDENTITY --key FILE.pub`"), "", "→ ")
        return 0
    head = [say("identity"), say("kind"), say("until"), say("key")]
    rows = [
        [one_line(one.identity), one.kind, one.until or say("open"), one_line(one.key)]
        for one in found
    ]
    context.out.table(head, rows, [["bold"] for _ in rows])
    return 0
