"""OTHER PEOPLE'S AGENTS: one short file per framework, all on `Session`.

`base` is what they share and knows no framework. Each of the others needs its package: an import
without it says which extra brings it. What each of them supports: docs/guides/frameworks.md.
"""
