"""The command `export`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from satchel.cli.console import one_line, write_json
from satchel.cli.context import command, no_such, short_path, skill_argument
from satchel.cli.options import AnyPath
from satchel.errors import Conflict
from satchel.i18n import say
from satchel.skill.file_tree import hash_tree
from satchel.store.disk_errors import disk_errors_as_refusal

if TYPE_CHECKING:
    from satchel.cli.context import CliContext


@command(
    say("Write a skill into a reproducible archive."),
    "satchel export pdf-forms",
    "satchel export pdf-forms --output forms.zip",
)
@skill_argument()
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    type=AnyPath(dir_okay=False),
    help=say("Default: {value}.", value="NAME.zip"),
)
def export(context: CliContext, name: str, output: str | None, as_json: bool) -> int:
    """Write an archive of any skill of the library."""
    from satchel.library.integrity import tree_of
    from satchel.store.export import write_archive
    from satchel.store.sources import subtree

    skill = context.find(name)[0]
    target = os.path.abspath(output or f"{os.path.basename(skill.base_dir)}.zip")
    if os.path.isdir(target):
        target = os.path.join(target, f"{os.path.basename(skill.base_dir)}.zip")
    if not os.path.isdir(os.path.dirname(target)):
        raise no_such(say("folder"), os.path.dirname(target))
    if os.path.exists(target) and not output:
        raise Conflict(
            say("`{path}` exists", path=one_line(short_path(target))),
            hint=say("To replace it: `--output {path}`", path=os.path.basename(target)),
        )
    with disk_errors_as_refusal(target):
        tree = subtree(tree_of(skill))
        archive = write_archive(tree, target, prefix=os.path.basename(skill.base_dir))
    for note in (*tree.notes, *archive.notes):
        context.err.line(one_line(note))
    if as_json:
        write_json({"path": target, "tree": hash_tree(tree).digest})
    else:
        context.out.data(target)
    return 0
