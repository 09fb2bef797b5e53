"""WORK THAT SURVIVES A CRASH: a goal becomes a plan, and its steps run in order.

    plan, problems = read_plan("weekly.yaml")
    async with LocalEngine(runner) as engine:
        goal = Goal.of(plan)
        await engine.submit(goal)
        report = await engine.wait(goal.id)

Reading order: `model` (the records), `plan_file` and `graph` (a plan on disk, and what is wrong
with it), `templates` (what flows from step to step), `decompose` (a text becomes a plan),
`execute` (who runs when; knows no engine), `perform` (one step, on the machine that does it),
`engines` (where it is remembered). Nothing here knows a model: a `StepRunner` does, and the agent
brings one.
"""
