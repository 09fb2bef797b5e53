"""HOW A SKILL IS WRITTEN: begin one, check it, try it, run its examples.

Reading order: `scaffold` (a new folder from `templates`), `rules` (the check-lists as a table),
`check_skill` (a folder -> reports), `check_tool` and `check_packaged` fill in one list each, with
`words` for texts and `look_python` for programs; `fixing` (what has one right answer), `trial` (one
call, shown in full, and the boxes that need a run), `examples` (the calls an author wrote down, and
those a tool must refuse). Whether a skill is chosen for the right prompts: `triggers` (run them),
`overlap` (which skills are mistaken for others).
"""
