"""Which calls does a tool have to stand? Its own examples, and arguments that are wrong on purpose.

example   as the author wrote it: the answer has output
refused   wrong arguments, as an agent sends them: they never reach the program
program   the same handed to the program: it answers with an error, and does not crash. What it
          does not know it may pass over: any answer to an unknown parameter will do
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from satchel._language import say

if TYPE_CHECKING:
    from collections.abc import Iterator

    from satchel.skill.manifest import Manifest, Parameter, ToolDecl

Kind = Literal["example", "refused", "program"]
ESCAPE = "../../../../../../etc/passwd"
NOWHERE = "no-such-folder/no-such-file.txt"
UNKNOWN = "no_such_parameter"
_WRONG: dict[str, Any] = {
    "string": [1, 2],
    "integer": "not a number",
    "number": "not a number",
    "boolean": "perhaps",
}
"""Type -> a value that no program can mean well with."""
_PLAIN: dict[str, Any] = {"string": "text", "integer": 1, "number": 1.5, "boolean": True}


class Case(NamedTuple):
    """One call."""

    tool: str
    kind: Kind
    title: str
    arguments: dict[str, Any]
    must_fail: bool = True
    """For the program: an answer without an error is wrong. Else any answer will do."""
    needs: tuple[str, ...] = ()
    """Files of the workspace that an example reads."""


def cases_of(manifest: Manifest, tool: ToolDecl) -> list[Case]:
    """Every case of one tool."""
    return [*_examples(manifest, tool), *_wrong(manifest, tool)]


def _examples(manifest: Manifest, tool: ToolDecl) -> Iterator[Case]:
    for at, shown in enumerate(tool.docs.examples, 1):
        needs = tuple(
            str(shown.arguments[name])
            for name in manifest.files.read
            if isinstance(shown.arguments.get(name), str) and shown.arguments[name]
        )
        title = shown.scenario or say("example {count}", count=at)
        yield Case(tool.name, "example", title, dict(shown.arguments), must_fail=False, needs=needs)


def missing_of(case: Case, workspace: str) -> list[str]:
    """Files that an example needs and the workspace does not have.

    A path is a stranger's word, so it is looked at as a call's is: no link and no `..` leads out.

    Raises:
        ToolFailed: one leads outside, is no file, or is too large.
    """
    from satchel.tools.failures import ToolFailed
    from satchel.tools.file_parameters import check_source
    from satchel.tools.workspace import NOT_FOUND, Workspace

    missing: list[str] = []
    place = Workspace(workspace)
    for path in case.needs:
        try:
            check_source(place, path)
        except ToolFailed as exc:
            if exc.failure is not NOT_FOUND:
                raise
            missing.append(path)
    return missing


def good_arguments(tool: ToolDecl) -> dict[str, Any]:
    """Arguments that should work: those of the first example, or made up."""
    if tool.docs.examples:
        return dict(tool.docs.examples[0].arguments)
    return {one.name: _PLAIN[one.type] for one in tool.parameters if one.required}


def _wrong(manifest: Manifest, tool: ToolDecl) -> Iterator[Case]:
    good = good_arguments(tool)
    for one in tool.parameters:
        if one.required:
            left = {name: value for name, value in good.items() if name != one.name}
            yield from _both(tool, say("without `{name}`", name=one.name), left)
    for one in tool.parameters:
        title = say("`{name}` of a wrong type", name=one.name)
        # What a program makes of a wrong truth value is a matter of taste.
        strict = one.type != "boolean"
        yield from _both(tool, title, {**good, one.name: _WRONG[one.type]}, must_fail=strict)
    title = say("an unknown parameter")
    yield from _both(tool, title, {**good, UNKNOWN: 1}, must_fail=False)
    for one in _paths(manifest, tool):
        only = _only(tool, good, one)
        yield from _both(
            tool, say("`{name}` leads outside", name=one.name), {**only, one.name: ESCAPE}
        )
        if one.name in manifest.files.read:
            title = say("`{name}` is not there", name=one.name)
            yield from _both(tool, title, {**only, one.name: NOWHERE})


def _both(
    tool: ToolDecl, title: str, arguments: dict[str, Any], *, must_fail: bool = True
) -> Iterator[Case]:
    yield Case(tool.name, "refused", title, arguments)
    yield Case(tool.name, "program", title, arguments, must_fail)


def _paths(manifest: Manifest, tool: ToolDecl) -> list[Parameter]:
    named = {*manifest.files.read, *manifest.files.write}
    return [one for one in tool.parameters if one.name in named]


def _only(tool: ToolDecl, good: dict[str, Any], path: Parameter) -> dict[str, Any]:
    """Good arguments beside a path: required ones only, since others may exclude it."""
    required = {one.name for one in tool.parameters if one.required}
    return {name: value for name, value in good.items() if name in required and name != path.name}
