"""Adapters for agent frameworks, one per module, all based on `Session`, and the MCP server.

`base` has the shared part and imports no framework. Each other module needs its package: importing
it without the package names the extra to install. See docs/guides/use-in-your-agent.md.
"""
