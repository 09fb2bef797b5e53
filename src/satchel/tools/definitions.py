"""Tools as each provider wants them described."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, get_args

from satchel.errors import InvalidInput

if TYPE_CHECKING:
    from satchel.catalogue import Catalogue
    from satchel.tools.base import Tool
    from satchel.trace import Trace

Provider = Literal["anthropic", "openai", "openai-responses", "mcp"]
"""`openai` is the form of Chat Completions, which most other providers understand too."""
PROVIDERS: tuple[str, ...] = get_args(Provider)


def describe(tool: Tool, provider: str, name: str, catalogue: str = "") -> dict[str, Any]:
    """One tool for one provider.

    Args:
        tool: The tool.
        provider: Whose form.
        name: What it is called there.
        catalogue: What is told about the skills, after the tool's own description.

    Raises:
        InvalidInput: nobody knows that provider.
    """
    import copy

    text = f"{tool.description}\n\n{catalogue}" if catalogue else tool.description
    schema = copy.deepcopy(tool.parameters)
    if provider == "anthropic":
        return {"name": name, "description": text, "input_schema": schema}
    if provider == "openai":
        function = {"name": name, "description": text, "parameters": schema}
        return {"type": "function", "function": function}
    if provider == "openai-responses":
        # Strict is the default there and forbids parameters that may be left out.
        return {
            "type": "function",
            "name": name,
            "description": text,
            "parameters": schema,
            "strict": False,
        }
    if provider == "mcp":
        writes = bool(getattr(tool, "writes", False))
        hints = {
            "title": name,
            "readOnlyHint": not writes,
            "destructiveHint": writes,
            "idempotentHint": True,
            "openWorldHint": False,
            **getattr(tool, "hints", {}),  # a program of a tool skill promises nothing
        }
        return {"name": name, "description": text, "inputSchema": schema, "annotations": hints}
    known = ", ".join(f"`{item}`" for item in PROVIDERS)
    raise InvalidInput(f"There is no form for `{provider}`", f"Choose one of {known}")


def tell_offer(trace: Trace, catalogue: Catalogue) -> None:
    """Record which skills a model is told of in this turn, and how."""
    account = catalogue.account
    trace.record("listed", account.full)
    if account.shortened:
        trace.record("shortened", account.shortened)
    if account.named:
        trace.record("named", account.named)
    if account.unlisted:
        trace.record("unlisted", (), count=account.unlisted)
    trace.record(
        "offered",
        (),
        digest=catalogue.digest,
        budget=account.budget,
        used=account.used,
        total=account.total,
        full=list(account.full),
        shortened=list(account.shortened),
        named=list(account.named),
        unlisted=account.unlisted,
    )
