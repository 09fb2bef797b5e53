"""Plain records of plans, findings, trust, goals and skills, for terminal, browser and `--json`.

Nothing here depends on a browser, a terminal, a session or a template.
"""
