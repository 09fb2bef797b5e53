"""Parameter types, shared options and the layout of `--help`.

Click counts characters, of which a Chinese one takes two columns, and its headings are English.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

import click

from satchel.cli.console import one_line, pad, width_of, wrap
from satchel.errors import InvalidInput
from satchel.i18n import did_you_mean, join_names, say, similar_names

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence


class WholeNumber(click.ParamType):  # pyright: ignore[reportMissingTypeArgument] - generic since 8.4
    """A whole number between `minimum` and `maximum`."""

    name = "number"

    def __init__(self, minimum: int = 0, maximum: int | None = None) -> None:
        self.minimum = minimum
        self.maximum = maximum

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Parse the number."""
        try:
            number = int(value)
        except ValueError:
            number = self.minimum - 1
        if number < self.minimum or (self.maximum is not None and number > self.maximum):
            limits = f"{self.minimum}…{'' if self.maximum is None else self.maximum}"
            raise InvalidInput(
                say("`{option}` needs a whole number ({limits}), not `{value}`",
                    option=_parameter_name(param), limits=limits, value=value),
                help_hint(ctx),
            )  # fmt: skip
        return number


class Amount(click.ParamType):  # pyright: ignore[reportMissingTypeArgument] - generic since 8.4
    """A number above 0, such as an amount of money."""

    name = "amount"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Parse the amount."""
        try:
            number = float(str(value).strip().removeprefix("$"))
        except ValueError:
            number = 0.0
        if 0 < number < float("inf"):
            return number
        raise InvalidInput(
            say("`{option}` needs a number above 0, not `{value}`", option=_parameter_name(param),
                value=value),
            help_hint(ctx),
        )  # fmt: skip


class OneOf(click.Choice):  # pyright: ignore[reportMissingTypeArgument] - generic since 8.2
    """One of some words; a misspelt one is corrected in the hint."""

    def __init__(self, words: Sequence[str]) -> None:
        super().__init__(words)  # pyright: ignore[reportUnknownMemberType] - same
        self.words = tuple(words)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Accept one of the words."""
        if value in self.words:
            return value
        typed = str(value).lower().replace("_", "-")
        similar = [word for word in self.words if typed and word.startswith(typed)]
        similar = similar or similar_names(typed, self.words)
        raise InvalidInput(
            say("`{option}` is one of {words}, not `{value}`", option=_parameter_name(param),
                value=value, words=join_names(f"`{word}`" for word in self.words)),
            did_you_mean(similar) or help_hint(ctx),
        )  # fmt: skip


class AnyPath(click.Path):
    """A path that shells complete; the command checks whether it exists."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the path unchanged."""
        del param, ctx
        return str(value)


def flag_option(name: str, text: str, parameter: str = "") -> Callable[..., Any]:
    """Return an option without a value."""
    return click.option(*filter(None, (name, parameter)), is_flag=True, help=text)


def all_option(text: str) -> Callable[..., Any]:
    """`--all`, as the parameter `everything`."""
    return flag_option("--all", text, "everything")


def dry_run_option() -> Callable[..., Any]:
    """`--dry-run`."""
    return flag_option("--dry-run", say("Show the changes without applying them."))


def yes_option() -> Callable[..., Any]:
    """`--yes`, `-y`."""
    return click.option("-y", "--yes", is_flag=True, help=say("Do not ask."))


def input_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """`--input NAME=VALUE`, repeatable."""
    return click.option("--input", "inputs", multiple=True, metavar="NAME=VALUE",
                        help=say("A value for the plan's inputs."))(function)  # fmt: skip


def limit_option() -> Callable[..., Any]:
    """`--limit N`, at least 1."""
    text = say("Maximum number of rows.")
    return click.option("--limit", type=WholeNumber(1), metavar="N", help=text)


def server_options(port: int) -> Callable[..., Any]:
    """`--host`, `--port` and `--name`, as the parameter `names`."""

    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        default = say("Default: {value}.", value=port)
        for option in (
            click.option("--name", "names", multiple=True, metavar="HOST",
                         help=say("Another host name of the server; repeatable.")),
            click.option("--port", type=WholeNumber(maximum=65_535), default=port, help=default),
            click.option("--host", default="127.0.0.1",
                         help=say("Default: {value}.", value="127.0.0.1")),
        ):  # fmt: skip
            function = option(function)
        return function

    return add


def model_option() -> Callable[..., Any]:
    """`--model PROVIDER:NAME`."""
    text = say("The model to use; default: the setting `model`.")
    return click.option("--model", metavar="PROVIDER:NAME", help=text)


def allow_tools_option() -> Callable[..., Any]:
    """`--allow-tools`."""
    return flag_option("--allow-tools", say("Allow all tool calls."))


def cannot_combine(*names: str) -> InvalidInput:
    """Return the error for options and arguments that exclude each other."""
    listing = join_names(f"`{name}`" for name in names)
    ctx = click.get_current_context(silent=True)
    return InvalidInput(say("Give one of {names}", names=listing), help_hint(ctx))


def needs(name: str, other: str) -> InvalidInput:
    """Return the error for an option or argument without another one."""
    ctx = click.get_current_context(silent=True)
    return InvalidInput(say("`{name}` needs `{other}`", name=name, other=other), help_hint(ctx))


def wrong_form(option: str, form: str, value: str) -> InvalidInput:
    """Return the error for a value of another form."""
    return InvalidInput(
        say("`{option}` needs a value such as `{form}`, not `{value}`", option=option, form=form,
            value=one_line(value)),
    )  # fmt: skip


def missing(name: str) -> InvalidInput:
    """Return the error for a missing argument."""
    ctx = click.get_current_context(silent=True)
    return InvalidInput(say("`{name}` is missing", name=name), help_hint(ctx))


def help_hint(ctx: click.Context | None) -> str:
    """Return a hint that names the `--help` of the command."""
    return say("Run `{command} --help`", command=ctx.command_path if ctx else "satchel")


def _parameter_name(param: click.Parameter | None) -> str:
    if param is None:
        return "value"
    is_option = param.param_type_name == "option"
    return param.opts[0] if is_option else param.human_readable_name.upper()


class HelpWriter(click.HelpFormatter):
    """A help formatter that wraps by display width."""

    def write_usage(self, prog: str, args: str = "", prefix: str | None = None) -> None:
        """Write the usage line."""
        prefix = say("Usage: ") if prefix is None else prefix
        self._write_paragraph(f"{prog} {args}", prefix, " " * width_of(f"{prefix}{prog} "))

    def write_heading(self, heading: str) -> None:
        """Write a heading; those of click are translated."""
        text = {"Options": say("Options"), "Commands": say("Commands")}.get(heading, heading)
        self.write(f"{' ' * self.current_indent}{text}{say(': ').rstrip(' ')}\n")

    def write_text(self, text: str) -> None:
        r"""Write paragraphs; one that begins with `\b` keeps its lines, as in click."""
        indent = " " * self.current_indent
        for index, paragraph in enumerate(text.strip("\n").split("\n\n")):
            if index:
                self.write("\n")
            if paragraph.startswith("\b\n"):
                self.write("".join(f"{indent}{line}\n" for line in paragraph[2:].split("\n")))
            else:
                self._write_paragraph(" ".join(paragraph.split()), indent, indent)

    def write_dl(
        self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2
    ) -> None:
        """Write options or commands beside their descriptions."""
        table = list(rows)
        indent = " " * self.current_indent
        term_width = min(max((width_of(term) for term, _ in table), default=0), col_max)
        hang = indent + " " * (term_width + col_spacing)
        for term, meaning in table:
            lead = indent + pad(term, term_width + col_spacing)
            if width_of(term) > term_width:
                self.write(f"{indent}{term}\n")
                lead = hang
            self._write_paragraph(" ".join(meaning.split()), lead, hang)

    def _write_paragraph(self, text: str, lead: str, hang: str) -> None:
        lines = wrap(text, max(self.width - width_of(hang), 10))
        indented = [lead + lines[0], *(hang + line for line in lines[1:])]
        self.write("".join(f"{line.rstrip(' ')}\n" for line in indented))


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
        extra = super().parse_args(ctx, args)
        if extra and not ctx.resilient_parsing:
            words = " ".join(extra)
            raise InvalidInput(
                say("`{command}` does not take `{words}`", command=ctx.command_path, words=words),
                help_hint(ctx),
            )
        return extra


class HelpGroup(_TranslatedHelp, click.Group):
    """A group that imports a command when it is run, and lists commands in sections."""

    modules: Mapping[str, str] = {}
    """Command name -> `module:variable` below `satchel.cli`, in the order of the help."""
    synonyms: Mapping[str, str] = {}
    """Name of a command in other programs -> its name in this group, or `satchel` and its path."""
    aliases: Mapping[str, str] = {}
    """Further name of a command -> its name; the help does not list it."""
    headings: Mapping[str, str] = {}
    """First command of a section -> the section's title."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """List the commands in the order of the help."""
        del ctx
        return list(self.modules)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command."""
        cmd_name = self.aliases.get(cmd_name, cmd_name)
        if cmd_name in self.modules and cmd_name not in self.commands:
            module, _, variable = self.modules[cmd_name].partition(":")
            self.add_command(getattr(import_module(f"satchel.cli.{module}"), variable), cmd_name)
        return super().get_command(ctx, cmd_name)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands, then the options."""
        self.format_commands(ctx, formatter)
        click.Command.format_options(self, ctx, formatter)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands; a section's title stands beside its first command."""
        name_width = max(map(len, self.modules))
        title_width = max(map(width_of, self.headings.values()), default=0)
        rows: list[tuple[str, str]] = []
        for name in self.modules:
            title = f"{pad(self.headings.get(name, ''), title_width)}  " if title_width else ""
            command = self.get_command(ctx, name)
            summary = command.get_short_help_str(1_000) if command else ""
            rows.append((title + name.ljust(name_width), summary))
        with formatter.section(say("Commands")):
            formatter.write_dl(rows)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Resolve the command; the error for an unknown one names the nearest."""
        name = args[0]
        if self.get_command(ctx, name) is not None or name.startswith("-"):
            return super().resolve_command(ctx, args)
        path = ctx.command_path
        prefix = path.partition(" ")[2] + " " if " " in path else ""
        known_name = self.synonyms.get(name) or "".join(similar_names(name, self.modules))
        if not known_name:
            raise InvalidInput(
                say("There is no command `{name}`", name=prefix + name),
                say("Run `{command} --help`", command=path),
            )
        if known_name.startswith("satchel "):
            full_name = known_name.removeprefix("satchel ")
        else:
            full_name = prefix + known_name
        raise InvalidInput(
            say("There is no command `{name}`; did you mean `satchel {near}`?",
                name=prefix + name, near=full_name)
        )  # fmt: skip


def help_text(purpose: str, *examples: str) -> str:
    """Combine a command's purpose and its examples."""
    lines = "\n".join(f"  {example}" for example in examples)
    return f"{purpose}\n\n\b\n{say('Examples:')}\n{lines}"
