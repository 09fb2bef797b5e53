"""Evaluations: whether a skill helps a model, measured with and without it.

Reading order: `evaluation` (pairs of runs on pydantic-evals), `runs` (one run in a fresh
workspace, and its checks by program), `judge` (a model grades what programs cannot), `budget`
(estimate and limit of the cost), `journal` (finished work on disk), `results` (figures, JUnit and
receipt), `comparison` (the statistic behind the verdict).

`skill.eval_file` reads the cases and `skill.eval_receipt` the receipts: both need no model.
"""
