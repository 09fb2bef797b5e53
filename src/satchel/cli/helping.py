"""How does `--help` look? In the reader's language, and folded by what a screen shows.

Click folds by counting characters, of which a Chinese one takes two columns, and knows its
headings in English only. The classes here are what our commands are made of instead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from satchel._language import say
from satchel.cli.output import pad, width_of, wrap
from satchel.cli.values import help_hint
from satchel.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from click.shell_completion import CompletionItem

_SHORT_HELP = "-h"
"""Asks for help as `--help` does. Most people know it, so the help itself need not name it."""


class Formatter(click.HelpFormatter):
    """Writes help by the width of its characters."""

    def write_usage(self, prog: str, args: str = "", prefix: str | None = None) -> None:
        """Write the line that shows how to call a command."""
        prefix = say("Usage: ") if prefix is None else prefix
        self._paragraph(f"{prog} {args}", prefix, " " * width_of(f"{prefix}{prog} "))

    def write_heading(self, heading: str) -> None:
        """Write a heading; click's own are said in the reader's language."""
        said = {"Options": say("Options"), "Commands": say("Commands")}.get(heading, heading)
        self.write(f"{' ' * self.current_indent}{said}{say(': ').rstrip(' ')}\n")

    def write_text(self, text: str) -> None:
        """Write paragraphs; one after a mark of click's (a backspace) keeps its lines."""
        indent = " " * self.current_indent
        for at, part in enumerate(text.strip("\n").split("\n\n")):
            if at:
                self.write("\n")
            if part.startswith("\b\n"):
                self.write("".join(f"{indent}{line}\n" for line in part[2:].split("\n")))
            else:
                self._paragraph(" ".join(part.split()), indent, indent)

    def write_dl(
        self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2
    ) -> None:
        """Write options or commands beside what they mean."""
        table = list(rows)
        indent = " " * self.current_indent
        first = min(max((width_of(term) for term, _ in table), default=0), col_max)
        hang = indent + " " * (first + col_spacing)
        for term, meaning in table:
            lead = indent + pad(term, first + col_spacing)
            if width_of(term) > first:
                self.write(f"{indent}{term}\n")
                lead = hang
            self._paragraph(" ".join(meaning.split()), lead, hang)

    def _paragraph(self, text: str, lead: str, hang: str) -> None:
        lines = wrap(text, max(self.width - width_of(hang), 10))
        whole = [lead + lines[0], *(hang + line for line in lines[1:])]
        self.write("".join(f"{line.rstrip(' ')}\n" for line in whole))


class Command(click.Command):
    """A command that speaks the reader's language, also about slips."""

    allow_extra_args = True
    """So that we, and not click, say what is wrong with them."""

    def get_help(self, ctx: click.Context) -> str:
        """The whole help."""
        return help_of(self, ctx)

    def get_help_option(self, ctx: click.Context) -> click.Option | None:
        """The `--help` option."""
        return _translated(super().get_help_option(ctx))

    def make_parser(self, ctx: click.Context) -> Any:
        """What reads the words: `-h` is help, too."""
        return _with_short_help(super().make_parser(ctx), self, ctx)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the words of the command line.

        Raises:
            InvalidInput: there are more than the command takes.
        """
        rest = super().parse_args(ctx, args)
        if rest and not ctx.resilient_parsing:
            words = " ".join(rest)
            raise InvalidInput(
                say("`{command}` does not take `{words}`", command=ctx.command_path, words=words),
                help_hint(ctx),
            )
        return rest

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """What may follow; the options of all commands too, though the help hides them."""
        from click.shell_completion import CompletionItem

        found = super().shell_complete(ctx, incomplete)
        if incomplete.startswith("-"):
            found += [
                CompletionItem(name, help=option.help)
                for option in self.params
                if isinstance(option, click.Option) and option.hidden
                for name in (*option.opts, *option.secondary_opts)
                if name.startswith(incomplete)
            ]
        return found


class Commands(click.Group):
    """The group: in the order of use, and helpful about slips.

    A command is imported when it is asked for: one command should not wait for twelve others.
    """

    places: Mapping[str, str] = {}
    """Name of a command -> `module:variable` of this package, in the order of use."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The commands in the order of use."""
        del ctx
        return list(self.places)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name."""
        if cmd_name in self.places and cmd_name not in self.commands:
            from importlib import import_module

            module, _, variable = self.places[cmd_name].partition(":")
            self.add_command(getattr(import_module(f"satchel.cli.{module}"), variable), cmd_name)
        return super().get_command(ctx, cmd_name)

    synonyms: Mapping[str, str] = {}
    """What other tools call a command -> what it is called here."""
    headings: Mapping[str, str] = {}
    """First command of a section -> the section's title."""

    def make_parser(self, ctx: click.Context) -> Any:
        """What reads the words: `-h` is help, too."""
        return _with_short_help(super().make_parser(ctx), self, ctx)

    def get_help(self, ctx: click.Context) -> str:
        """The whole help."""
        return help_of(self, ctx)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands in sections: thirty in a row would be read by nobody."""
        sections: list[tuple[str, list[tuple[str, str]]]] = []
        for name in self.list_commands(ctx):
            found = self.get_command(ctx, name)
            if found is None:
                continue
            if name in self.headings or not sections:
                sections.append((self.headings.get(name, say("Commands")), []))
            sections[-1][1].append((name, found.get_short_help_str(1_000)))
        width = max((len(name) for _, rows in sections for name, _ in rows), default=0)
        for title, rows in sections:
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), text) for name, text in rows])

    def get_help_option(self, ctx: click.Context) -> click.Option | None:
        """The `--help` option."""
        return _translated(super().get_help_option(ctx))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command, or say which one may have been meant."""
        if self.get_command(ctx, args[0]) is None and not args[0].startswith("-"):
            raise self.unknown(args[0], ctx)
        return super().resolve_command(ctx, args)

    def unknown(self, name: str, ctx: click.Context) -> InvalidInput:
        """What to say about a command that does not exist."""
        import difflib

        path = ctx.command_path
        before = path.partition(" ")[2] + " " if " " in path else ""
        near = [self.synonyms[name]] if name in self.synonyms else []
        near = near or difflib.get_close_matches(name, self.places, n=1)
        hint = (
            say("Did you mean `satchel {name}`?", name=before + near[0])
            if near
            else say("Run `{command} --help` to see the commands", command=path)
        )
        return InvalidInput(say("There is no command `{name}`", name=before + name), hint)


def help_of(command: click.Command, context: click.Context) -> str:
    """The help of a command, written by our formatter whatever the context would take."""
    formatter = Formatter(width=context.terminal_width, max_width=context.max_content_width)
    command.format_help(context, formatter)
    return formatter.getvalue().rstrip("\n")


def help_text(purpose: str, *examples: str, more: str = "") -> str:
    """A command's help: what it is for, then lines that can be run as they are."""
    lines = "\n".join(f"  {example}" for example in examples)
    text = f"{purpose}\n\n\b\n{say('Example:')}\n{lines}"
    return f"{text}\n\n{more}" if more else text


def _with_short_help(parser: Any, command: click.Command, context: click.Context) -> Any:
    """Have a parser take `-h`, unless the command has one of its own."""
    option = command.get_help_option(context)
    taken = any(_SHORT_HELP in (*one.opts, *one.secondary_opts) for one in command.params)
    if option is not None and not taken:
        parser.add_option(option, [_SHORT_HELP], option.name, action="store_const", const=True)
    return parser


def _translated(option: click.Option | None) -> click.Option | None:
    if option is not None:
        option.help = say("Show this help and exit.")
    return option
