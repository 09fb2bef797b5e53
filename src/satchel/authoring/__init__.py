"""HOW A SKILL IS WRITTEN: begin one, check it, try it, run its examples.

Reading order: `scaffold` (a new folder from `templates`), `rules` (the check-lists as a table),
`check` (a folder -> reports), of which `check_tool`, `check_skill` and `check_packaged` fill in one
list each, with `words` and `error_words` for texts and `look` for programs; `fixing` (what has one
right answer), `trial` (one call, shown in full), `examples` (the calls an author wrote down, and
those a tool must refuse: `cases`), `proving` (the boxes that need a run). Whether a skill is chosen
for the right prompts: `lineup` (among whom), `rehearsal` (on which detector), `triggers` (run
them), `wording` (which words of its description would help, of the `candidates`), `overlap` (who is
mistaken for whom).
"""
