"""What may follow an option? Numbers, choices and folders; a slip is told in our words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from satchel._language import listed, say
from satchel.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Sequence


class WholeNumber(click.ParamType):  # pyright: ignore[reportMissingTypeArgument] - generic since 8.4
    """A number without a fraction, not below `least` and not above `most`."""

    name = "number"

    def __init__(self, least: int = 0, most: int | None = None) -> None:
        self.least = least
        self.most = most

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The number.

        Raises:
            InvalidInput: it is none, too small or too large.
        """
        said = {"option": _option(param), "value": value}
        try:
            number = int(value)
        except ValueError as exc:
            words = say("`{option}` needs a whole number, not `{value}`", **said)
            raise InvalidInput(words, help_hint(ctx)) from exc
        if number < self.least:
            words = say("`{option}` must be at least {least}, not `{value}`", least=self.least,
                        **said)  # fmt: skip
        elif self.most is not None and number > self.most:
            words = say("`{option}` must be at most {most}, not `{value}`", most=self.most, **said)
        else:
            return number
        raise InvalidInput(words, help_hint(ctx))


class Share(click.ParamType):  # pyright: ignore[reportMissingTypeArgument] - generic since 8.4
    """A number from 0 to 1; `90%` is 0.9."""

    name = "share"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """The number.

        Raises:
            InvalidInput: it is none, or lies outside.
        """
        text = str(value).strip()
        share = _number(text.removesuffix("%"), -1.0) / (100 if text.endswith("%") else 1)
        if 0 <= share <= 1:
            return share
        words = say("`{option}` needs a number from 0 to 1, not `{value}`", option=_option(param),
                    value=value)  # fmt: skip
        raise InvalidInput(words, help_hint(ctx))


class Amount(click.ParamType):  # pyright: ignore[reportMissingTypeArgument] - generic since 8.4
    """A number that is more than nothing, such as an amount of money."""

    name = "amount"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """The number.

        Raises:
            InvalidInput: it is none, or not above 0.
        """
        number = _number(str(value).strip().removeprefix("$"), 0.0)
        if 0 < number < float("inf"):
            return number
        words = say("`{option}` needs a number above 0, not `{value}`", option=_option(param),
                    value=value)  # fmt: skip
        raise InvalidInput(words, help_hint(ctx))


class OneOf(click.Choice):  # pyright: ignore[reportMissingTypeArgument] - generic since 8.2
    """One of some words."""

    def __init__(self, words: Sequence[str]) -> None:
        super().__init__(words)  # pyright: ignore[reportUnknownMemberType] - same
        self.words = tuple(words)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The word.

        Raises:
            InvalidInput: it is another one.
        """
        if value in self.words:
            return value
        words = listed(f"`{word}`" for word in self.words)
        raise InvalidInput(
            say("`{option}` is one of {words}, not `{value}`", words=words, option=_option(param),
                value=value),
            self._meant(str(value)) or help_hint(ctx),
        )  # fmt: skip

    def _meant(self, value: str) -> str:
        """The word that is most like it, in a question; empty when none is."""
        from difflib import get_close_matches

        given = value.lower().replace("_", "-")
        near = [word for word in self.words if given and word.startswith(given)]
        near = near or get_close_matches(given, self.words, n=1, cutoff=0.6)
        return (
            say("Did you mean {names}?", names=listed(f"`{one}`" for one in near)) if near else ""
        )


class AnyPath(click.Path):
    """A path that shells complete. Whether it exists is for the command to say."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The path as it was given."""
        del param, ctx
        return str(value)


def help_hint(context: click.Context | None) -> str:
    """Where the command is explained."""
    return say("Run `{command} --help`", command=context.command_path if context else "satchel")


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
