"""Layout of `--help`: translated, and wrapped by display width.

Click counts characters, of which a Chinese one takes two columns, and its headings are English.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from satchel.cli.console import pad, width_of, wrap
from satchel.cli.options import help_hint
from satchel.errors import InvalidInput
from satchel.i18n import say

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from click.shell_completion import CompletionItem


class HelpWriter(click.HelpFormatter):
    """A help formatter that wraps by display width."""

    def write_usage(self, prog: str, args: str = "", prefix: str | None = None) -> None:
        """Write the usage line."""
        prefix = say("Usage: ") if prefix is None else prefix
        self._paragraph(f"{prog} {args}", prefix, " " * width_of(f"{prefix}{prog} "))

    def write_heading(self, heading: str) -> None:
        """Write a heading; those of click are translated."""
        text = {"Options": say("Options"), "Commands": say("Commands")}.get(heading, heading)
        self.write(f"{' ' * self.current_indent}{text}{say(': ').rstrip(' ')}\n")

    def write_text(self, text: str) -> None:
        r"""Write paragraphs; one that begins with `\b` keeps its lines, as in click."""
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
        """Write options or commands beside their descriptions."""
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


class _HelpContext(click.Context):
    formatter_class = HelpWriter


class _TranslatedHelp(click.Command):
    """A command with translated help, and `-h` as an unlisted alias of `--help`."""

    context_class = _HelpContext

    def get_help_option(self, ctx: click.Context) -> click.Option | None:
        option = super().get_help_option(ctx)
        if option is not None:
            option.help = say("Show this help and exit.")
        return option

    def make_parser(self, ctx: click.Context) -> Any:
        parser: Any = super().make_parser(ctx)
        option = self.get_help_option(ctx)
        if option is not None:
            parser.add_option(option, ["-h"], option.name, action="store_const", const=True)
        return parser


class HelpCommand(_TranslatedHelp):
    """A command whose help and errors are translated."""

    allow_extra_args = True  # so that `parse_args` reports them, not click

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments."""
        rest = super().parse_args(ctx, args)
        if rest and not ctx.resilient_parsing:
            words = " ".join(rest)
            raise InvalidInput(
                say("`{command}` does not take `{words}`", command=ctx.command_path, words=words),
                help_hint(ctx),
            )
        return rest

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete also the global options, which the help of a command hides."""
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


class HelpGroup(_TranslatedHelp, click.Group):
    """A group that imports a command when it is run, and lists commands in sections."""

    modules: Mapping[str, str] = {}
    """Command name -> `module:variable` below `satchel.cli`, in the order of the help."""
    synonyms: Mapping[str, str] = {}
    """Name of a command in other programs -> its name here."""
    headings: Mapping[str, str] = {}
    """First command of a section -> the section's title."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """List the commands in the order of the help."""
        del ctx
        return list(self.modules)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command."""
        if cmd_name in self.modules and cmd_name not in self.commands:
            from importlib import import_module

            module, _, variable = self.modules[cmd_name].partition(":")
            self.add_command(getattr(import_module(f"satchel.cli.{module}"), variable), cmd_name)
        return super().get_command(ctx, cmd_name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands in sections."""
        width = max(map(len, self.modules))
        sections: dict[str, list[tuple[str, str]]] = {}
        title = say("Commands")
        for name in self.modules:
            title = self.headings.get(name, title)
            found = self.get_command(ctx, name)
            text = found.get_short_help_str(1_000) if found else ""
            sections.setdefault(title, []).append((name.ljust(width), text))
        for heading, rows in sections.items():
            with formatter.section(heading):
                formatter.write_dl(rows)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Resolve the command; the error for an unknown one names the nearest."""
        name = args[0]
        if self.get_command(ctx, name) is not None or name.startswith("-"):
            return super().resolve_command(ctx, args)
        import difflib

        path = ctx.command_path
        before = path.partition(" ")[2] + " " if " " in path else ""
        near = self.synonyms.get(name) or next(
            iter(difflib.get_close_matches(name, self.modules, n=1)), ""
        )
        hint = (
            say("Did you mean `satchel {name}`?", name=before + near)
            if near
            else say("Run `{command} --help` to see the commands", command=path)
        )
        raise InvalidInput(say("There is no command `{name}`", name=before + name), hint)


def help_text(purpose: str, *examples: str, more: str = "") -> str:
    """Combine a command's purpose, its examples and further text."""
    lines = "\n".join(f"  {example}" for example in examples)
    text = f"{purpose}\n\n\b\n{say('Example:')}\n{lines}"
    return f"{text}\n\n{more}" if more else text
