"""All problems of a plan are reported at once, each with its step."""

from __future__ import annotations

import pytest

from satchel.errors import InvalidInput
from satchel.goals.model import (
    Condition,
    ForEach,
    Goal,
    GoalBudget,
    Notify,
    Plan,
    Retry,
    Step,
)
from satchel.goals.plan_checks import check, require_valid
from satchel.goals.plan_graph import order
from satchel.goals.plan_rules import RULES

pytestmark = pytest.mark.timeout(60)  # many examples, and machines that are busy

OK = Step("ok", prompt="do it")
EACH = ForEach([1])


def found(*steps: Step, **plan) -> list[tuple[str, str]]:
    made = Plan(**{"goal": "g", "steps": steps, **plan})
    return [(one.code, one.step) for one in check(made)]


def only(*steps: Step, skills=None, tools=None, **plan):
    made = Plan(**{"goal": "g", "steps": steps, **plan})
    (problem,) = check(made, skills=skills, tools=tools)
    return problem


CASES = [
    ("no-goal", only(OK, goal=" "), "There is no `goal`"),
    ("no-steps", only(), "There is no `steps`"),
    ("bad-id", only(Step("a b", prompt="p")), "`a b` is not a valid name"),
    ("same-id", only(OK, OK), "`ok` is there twice"),
    ("unknown-need", only(OK, Step("b", prompt="p", needs=("okk",))), "step `b` uses `okk`"),
    ("needs-itself", only(Step("a", prompt="p", needs=("a",))), "`a` depends on itself"),
    ("no-prompt", only(Step("a")), "`a` has no `prompt`"),
    ("no-prompt", only(Step("h", "human", prompt="  ")), "`h` has no `prompt`"),
    ("range", only(Step("a", prompt="p" * 200_001)), "`prompt` of step `a` is `200001`"),
    ("odd-field", only(Step("a", prompt="p", deadline=3.0)), "`llm`, which has no `deadline`"),
    ("odd-field", only(Step("h", "human", prompt="p", for_each=EACH)), "which has no `for_each`"),
    ("range", only(Step("h", "human", prompt="p", deadline=0)), "`deadline` of step `h` is `0`"),
    (
        "bad-default",
        only(Step("h", "human", prompt="p", deadline=1, default="x", output={"type": "integer"})),
        "must be integer",
    ),
    ("no-items", only(Step("a", prompt="p", for_each=ForEach(""))), "no `for_each.items`"),
    ("bad-choice", only(Step("a", prompt="p", for_each=ForEach("a, b"))), "is `a, b`"),
    ("range", only(Step("a", prompt="p", for_each=ForEach([], most=0))), "`for_each.most`"),
    (
        "range",
        only(
            *(
                Step(f"s{n}", prompt="p", for_each=EACH._replace(items="{{inputs.x}}", most=999))
                for n in range(2)
            ),
            inputs={"x": []},
        ),
        "`steps` of the plan",
    ),
    ("missing-input", only(Step("a", prompt="p", for_each=ForEach("{{inputs.x}}"))), "uses `x`"),
    ("bad-reference", only(Step("a", prompt="{{item}}")), "`{{item}}`, which means nothing"),
    (
        "unknown-field",
        only(Step("a", prompt="p", for_each=EACH), Step("b", prompt="{{steps.a.output.name}}")),
        "a.output.name",
    ),
    ("no-comparison", only(Step("a", prompt="p", when=Condition(1))), "no `when.equals"),
    ("unknown-step", only(Step("a", prompt="p", when=Condition("{{steps.x.output}}", 1))), "`x`"),
    ("no-notify-key", only(OK, notify=Notify("https://x.y", "")), "no `notify.secret`"),
    ("bad-choice", only(OK, notify=Notify("http://x.y", "S")), "`notify.url` of the plan is `…`"),
    ("bad-choice", only(OK, notify=Notify("https://u:pw@x.y", "S")), "is `…`"),
    ("bad-choice", only(OK, notify=Notify("https://x.y", "s3cr3t!")), "`notify.secret` of the"),
    ("bad-choice", only(OK, notify=Notify("https://x.y", "S", ("end",))), "is `end`"),
    ("no-skill", only(Step("a", "skill", prompt="p")), "has no `skill`"),
    ("no-tool", only(Step("a", "tool")), "has no `tool`"),
    ("odd-field", only(Step("a", prompt="p", tool="t")), "`llm`, which has no `tool`"),
    ("odd-field", only(Step("a", "tool", tool="t", prompt="p")), "`tool`, which has no `prompt`"),
    ("bad-choice", only(Step("a", "dance", prompt="p")), "is `dance`"),  # pyright: ignore[reportArgumentType]
    ("bad-choice", only(OK, on_failure="hope"), "`on_failure` of the plan is `hope`"),
    ("bad-reference", only(Step("a", prompt="{{ what }}")), "has `{{what}}`, which means nothing"),
    ("bad-reference", only(Step("a", prompt="{{skills}}")), "has `{{skills}}`"),
    ("unknown-step", only(Step("a", prompt="{{steps.b.output}}")), "uses `b`"),
    ("mentions-itself", only(Step("a", prompt="{{steps.a.output}}")), "depends on itself"),
    ("missing-input", only(Step("a", prompt="{{inputs.x}}")), "uses `x`"),
    ("bad-schema", only(OK._replace(output={"type": "strin"})), "`type` is not valid"),
    ("unchecked", only(OK._replace(output={"$ref": "#/x"})), "says `$ref`, which is not checked"),
    ("range", only(OK._replace(timeout=0)), "`timeout` of step `ok` is `0`"),
    ("range", only(OK._replace(timeout=float("inf"))), "is `inf`"),
    ("range", only(OK._replace(retry=Retry(attempts=0))), "`retry.attempts` of step `ok`"),
    ("range", only(OK, retry=Retry(factor=0.5)), "`retry.factor` of the plan is `0.5`"),
    ("range", only(OK, retry=Retry(jitter=2)), "`retry.jitter`"),
    ("range", only(OK, retry=Retry(first=-1)), "`retry.first`"),
    ("range", only(OK, parallel=0), "`parallel` of the plan is `0`"),
    ("range", only(OK, budget=GoalBudget(tokens=0)), "`budget.tokens`"),
    ("range", only(OK, budget=GoalBudget(cost=float("nan"))), "`budget.cost`"),
]


@pytest.mark.parametrize(("code", "problem", "words"), CASES, ids=lambda one: str(one)[:30])
def test_each_error_of_a_plan_is_named(code, problem, words):
    assert problem.code == code
    assert words in problem.message
    assert problem.hint
    message, hint = problem.for_model()
    assert (message, hint) == (problem.message, problem.hint)
    assert problem.severity == RULES[code].severity


def test_a_step_with_a_skill_needs_no_prompt():
    assert check(Plan(goal="g", steps=(Step("a", "skill", skill="greet"),))) == []


def test_a_circle_is_shown():
    steps = (
        Step("a", prompt="p", needs=("b",)),
        Step("b", prompt="{{steps.a.output}}"),
        Step("d", prompt="p", needs=("gone",)),
    )
    plan = Plan("g", steps)
    told = {(one.code, one.step): one.message for one in check(plan)}
    assert "`a` → `b` → `a`" in told["circle", "a"]
    assert ("unknown-need", "d") in told


def test_unknown_names_have_a_suggestion():
    step = Step("a", "skill", prompt="p", skill="cataloging-api")
    problem = only(step, skills=["cataloging-apis", "other"])
    assert problem.code == "unknown-skill"
    assert problem.hint == "Did you mean `cataloging-apis`?"
    problem = only(Step("a", "tool", tool="zzz"), tools=["fetch"])
    assert (problem.code, problem.hint) == ("unknown-tool", "There are `fetch`")


@pytest.mark.parametrize(
    ("path", "right"),
    [("stars", True), ("rows.0.n", True), ("rows.x", False), ("star", False), ("stars.x", False),
     ("free.anything", True), ("either.x", True)],
)  # fmt: skip
def test_fields_that_are_used_must_be_promised(path, right):
    output = {
        "type": "object",
        "properties": {
            "stars": {"type": "integer"},
            "rows": {"type": "array", "items": {"properties": {"n": {"type": "number"}}}},
            "free": {"type": "object"},
            "either": {"type": ["object", "null"]},
        },
    }
    steps = (OK._replace(output=output), Step("b", prompt=f"{{{{steps.ok.output.{path}}}}}"))
    assert found(*steps) == ([] if right else [("unknown-field", "b")])


@pytest.mark.parametrize("name", ["", "a b", "../x", "a.1", "a:b", "-a", "x" * 101, "ü"])
def test_a_goal_has_a_name_that_files_and_workflows_can_have(name):
    with pytest.raises(InvalidInput, match="is not a valid name"):
        require_valid(Goal(name, Plan("g", (OK,))))


def test_one_exception_lists_all_errors():
    steps = tuple(Step(f"s{n}") for n in range(12))
    with pytest.raises(InvalidInput) as caught:
        require_valid(Goal("g", Plan("", steps)))
    assert "The plan has 13 errors:" in caught.value.message
    assert "  - Step `s3` has no `prompt`" in caught.value.message
    assert "and 3 more" in caught.value.message


def test_a_long_chain_is_no_recursion():
    steps = [OK] + [Step(f"s{n}", prompt="p", needs=(f"s{n - 1}",)) for n in range(1, 2_000)]
    steps[1] = steps[1]._replace(needs=("ok",))
    plan = Plan("g", tuple(reversed(steps)))
    assert list(order(plan)) == steps
    closed = plan._replace(steps=(*plan.steps[:-1], OK._replace(needs=("s1999",))))
    assert [one.code for one in check(closed)] == ["circle"]
