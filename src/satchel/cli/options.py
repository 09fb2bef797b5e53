"""Parameter types and options that several commands share; errors name the option and a fix."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from satchel.errors import InvalidInput
from satchel.i18n import listed, say

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class WholeNumber(click.ParamType):  # pyright: ignore[reportMissingTypeArgument] - generic since 8.4
    """A whole number between `least` and `most`."""

    name = "number"

    def __init__(self, least: int = 0, most: int | None = None) -> None:
        self.least = least
        self.most = most

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Parse the number."""
        given = {"option": _option(param), "value": value}
        try:
            number = int(value)
        except ValueError as exc:
            text = say("`{option}` needs a whole number, not `{value}`", **given)
            raise InvalidInput(text, help_hint(ctx)) from exc
        if number < self.least:
            text = say("`{option}` must be at least {least}, not `{value}`", least=self.least,
                       **given)  # fmt: skip
        elif self.most is not None and number > self.most:
            text = say("`{option}` must be at most {most}, not `{value}`", most=self.most, **given)
        else:
            return number
        raise InvalidInput(text, help_hint(ctx))


class Share(click.ParamType):  # pyright: ignore[reportMissingTypeArgument] - generic since 8.4
    """A number from 0 to 1; `90%` is 0.9."""

    name = "share"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Parse the share."""
        text = str(value).strip()
        share = _number(text.removesuffix("%"), -1.0) / (100 if text.endswith("%") else 1)
        if 0 <= share <= 1:
            return share
        raise InvalidInput(
            say("`{option}` needs a number from 0 to 1, not `{value}`", option=_option(param),
                value=value),
            help_hint(ctx),
        )  # fmt: skip


class Amount(click.ParamType):  # pyright: ignore[reportMissingTypeArgument] - generic since 8.4
    """A number above 0, such as an amount of money."""

    name = "amount"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Parse the amount."""
        number = _number(str(value).strip().removeprefix("$"), 0.0)
        if 0 < number < float("inf"):
            return number
        raise InvalidInput(
            say("`{option}` needs a number above 0, not `{value}`", option=_option(param),
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
        from difflib import get_close_matches

        given = str(value).lower().replace("_", "-")
        near = [word for word in self.words if given and word.startswith(given)]
        near = near or get_close_matches(given, self.words, n=1, cutoff=0.6)
        names = listed(f"`{word}`" for word in near)
        raise InvalidInput(
            say("`{option}` is one of {words}, not `{value}`", option=_option(param), value=value,
                words=listed(f"`{word}`" for word in self.words)),
            say("Did you mean {names}?", names=names) if near else help_hint(ctx),
        )  # fmt: skip


class AnyPath(click.Path):
    """A path that shells complete; the command checks whether it exists."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the path unchanged."""
        del param, ctx
        return str(value)


def flag_option(name: str, text: str, parameter: str = "") -> Callable[..., Any]:
    """An option without a value."""
    return click.option(*filter(None, (name, parameter)), is_flag=True, help=text)


def all_option(text: str) -> Callable[..., Any]:
    """`--all`, as the parameter `everything`."""
    return flag_option("--all", text, "everything")


def dry_run_option(text: str = "") -> Callable[..., Any]:
    """`--dry-run`."""
    return flag_option("--dry-run", text or say("Show what would change, and stop."))


def input_option(text: str) -> Callable[..., Any]:
    """`--input NAME=VALUE`, repeatable."""
    return click.option("--input", "inputs", multiple=True, metavar="NAME=VALUE", help=text)


def limit_option(text: str, default: int | None = None) -> Callable[..., Any]:
    """`--limit N`, at least 1."""
    return click.option("--limit", type=WholeNumber(1), default=default, metavar="N", help=text)


def model_option(text: str = "") -> Callable[..., Any]:
    """`--model PROVIDER:NAME`."""
    return click.option("--model", metavar="PROVIDER:NAME", help=text or say("Who answers."))


def allow_tools_option(text: str = "") -> Callable[..., Any]:
    """`--allow-tools`, as the parameter `yes`."""
    return flag_option("--allow-tools", text or say("Let every tool be called."), "yes")


def help_hint(ctx: click.Context | None) -> str:
    """A hint that names the `--help` of the command."""
    return say("Run `{command} --help`", command=ctx.command_path if ctx else "satchel")


def _option(param: click.Parameter | None) -> str:
    if param is None:
        return "value"
    is_option = param.param_type_name == "option"
    return param.opts[0] if is_option else param.human_readable_name.upper()


def _number(text: str, other: float) -> float:
    try:
        return float(text)
    except ValueError:
        return other
