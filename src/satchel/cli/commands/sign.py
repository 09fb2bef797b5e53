"""The command `sign`: signatures of skills, and trusted signers."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

import click

from satchel.cli.console import one_line, write_json
from satchel.cli.context import command, no_such, short_path, skill_argument
from satchel.cli.options import AnyPath, cannot_combine, flag_option, needs
from satchel.errors import Refused
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
    say("Sign skills, check signatures, manage signers."),
    "satchel sign release-notes",
    "satchel sign release-notes --check",
    "satchel sign --trust-key ada.pub --as ada@example.org",
)
@skill_argument("skill", required=False, type=AnyPath())
@click.option(
    "--key",
    metavar="FILE",
    type=AnyPath(dir_okay=False),
    default="~/.ssh/id_ed25519",
    help=say("Your ed25519 key; a `.pub` file means the key in your SSH agent."),
)
@flag_option("--check", say("Show who signed the skill."))
@flag_option("--signers", say("List the trusted signers."), "listing")
@click.option(
    "--trust-key",
    metavar="FILE",
    type=AnyPath(dir_okay=False),
    help=say("Trust this public key (`.pub`, or `-` for stdin); needs `--as`."),
)
@click.option("--as", "identity", metavar="IDENTITY", help=say("Whose key it is."))
@click.option(
    "--revoke", metavar="IDENTITY", help=say("Never accept the keys of this signer again.")
)
def sign(
    context: CliContext,
    skill: str | None,
    key: str,
    check: bool,
    listing: bool,
    trust_key: str | None,
    identity: str | None,
    revoke: str | None,
    as_json: bool,
) -> int:
    chosen = [skill is not None, listing, trust_key is not None, revoke is not None]
    if sum(chosen) != 1 or (check and skill is None):
        raise cannot_combine("SKILL", "--signers", "--trust-key", "--revoke")
    if (identity is None) != (trust_key is None):
        raise needs("--trust-key", "--as")
    if skill is None:
        return _manage_signers(context, trust_key, identity or "", revoke, as_json=as_json)
    folder, writable, tree = find_folder(context, skill)
    if check:
        from satchel.store.signing import check_signature

        return _print_state(context, folder, check_signature(tree), as_json=as_json)
    if not writable:
        raise Refused(say("`{name}` is read-only", name=one_line(skill)))
    from satchel.store.signing import sign_folder

    path = sign_folder(folder, key, tree)
    if as_json:
        write_json({"folder": folder, "signature": path})
    else:
        context.out.data(short_path(path))
    _print_lock_hint(context, folder)
    return 0


def find_folder(context: CliContext, skill: str) -> tuple[str, bool, FolderTree]:
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
    raise no_such(say("folder"), skill)


def _print_lock_hint(context: CliContext, folder: str) -> None:
    """Print how to lock the skill again: its digest includes the signature."""
    from satchel.library.lockfile import lock_path, read_lock

    parent, name = os.path.split(folder)
    if name in read_lock(lock_path(parent)):
        command = f"satchel verify --accept {one_line(name)}"
        context.err.line(say("Run `{command}`", command=command), "", "→ ")


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
        "unknown-signer": say("unknown signer"),
        "invalid": say("invalid signature"),
    }
    lead = [(f"{mark} ", style)]
    context.out.line(f"{one_line(short_path(folder))}: {words[found.state]}", "", "", "  ", lead)
    if found.state == "valid":
        context.out.line(one_line(found.key), "dim", "  ")
    elif found.state != "unsigned":
        context.out.line(one_line(found.reason), "", "  ")
        context.out.line(one_line(found.hint), "", "  → ")
    return status


def _manage_signers(
    context: CliContext,
    trust_key: str | None,
    identity: str,
    revoke: str | None,
    *,
    as_json: bool,
) -> int:
    from satchel.store.signing import add_signer, revoke_signer, user_signers

    book = user_signers()
    if revoke is not None:
        removed = revoke_signer(book, revoke)
        if as_json:
            write_json({"revoked": [_record(one) for one in removed]})
        for one in [] if as_json else removed:
            names = f"{one_line(one.identity)} ({one_line(one.key)})"
            context.err.line(say("Revoked: {names}", names=names))
        return 0
    if trust_key is None:
        return _list(context, book, as_json=as_json)
    made = add_signer(book, identity, _public_key(trust_key))
    if as_json:
        write_json({"added": _record(made)})
    else:
        context.err.line(say("Trusted: {names}", names=f"{made.identity} ({made.key})"), "green")
    return 0


def _public_key(path: str) -> str:
    try:
        if path == "-":
            return sys.stdin.read(_MAX_KEY_CHARS)
        with open(os.path.expanduser(path), encoding="utf-8", errors="replace") as stream:
            return stream.read(_MAX_KEY_CHARS)
    except OSError as exc:
        raise no_such(say("file"), path) from exc


def _record(signer: Signer) -> dict[str, Any]:
    return {**signer._asdict(), "until": signer.until or None}


def _list(context: CliContext, book: Signers, *, as_json: bool) -> int:
    from satchel.store.signing import list_signers

    found = list_signers(book)
    if as_json:
        write_json({"file": book.allowed, "signers": [_record(one) for one in found]})
        return 0
    if not found:
        context.err.line(say("No trusted signers"))
        context.err.line(
            say("Run `{command}`", command="satchel sign --trust-key FILE.pub --as IDENTITY"),
            "",
            "→ ",
        )
        return 0
    head = [say("signer"), say("until"), say("key")]
    rows = [[one_line(one.identity), one.until, one_line(one.key)] for one in found]
    context.out.table(head, rows, [["bold"] for _ in rows])
    return 0
