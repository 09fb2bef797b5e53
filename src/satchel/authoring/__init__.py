"""Authoring: scaffolding, check-lists, tool tests and trigger tests.

Reading order: `scaffold` (a new folder from `templates`), `checklist` (all rules), `check_skill` (a
folder -> reports), `check_tool` and `check_packaged` (one check-list each), `text_rules` (texts),
`tool_trial` (one call, and rules that need a run), `tool_tests` (examples and invalid calls),
`trigger_tests` (prompts that should select a skill), `overlap` (similar skills).
"""
