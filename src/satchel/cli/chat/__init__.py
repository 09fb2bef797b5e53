"""The parts of `satchel chat` and `satchel run`.

`models` makes the agent, `telling` writes a turn, `conversation` is the loop of the chat. Only
`telling` imports rich, only `conversation` imports prompt_toolkit.
"""
