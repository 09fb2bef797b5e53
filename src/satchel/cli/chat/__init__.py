"""What `satchel chat` and `satchel run` are made of; nothing else in the terminal imports it.

Reading order: `models` (who answers), `telling` (what a person sees of a turn), `plain` and
`markdown` (how it is written), `prompting` (how a person types), `orders` (what begins with `/`),
`conversation` (the loop). Only `markdown` knows rich, only `prompting` knows prompt_toolkit.
"""
