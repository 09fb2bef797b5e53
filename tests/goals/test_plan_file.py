"""A plan is a file that a person can read, edit, compare and run again."""

from __future__ import annotations

import json

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from goal_plans import dags
from satchel.errors import InvalidInput, NotFound
from satchel.goals.model import Condition, ForEach, GoalBudget, Notify, Plan, Retry, Step
from satchel.goals.plan_file import plan_schema, read_plan, write_plan
from satchel.skill.yaml_reader import read_document

pytestmark = pytest.mark.timeout(60)  # many examples, and machines that are busy

WEEKLY = """\
goal: Report what changed this week
inputs:
  since: Monday
retry: {attempts: 2}
budget: {tokens: 50000, seconds: 600}
steps:
  - id: fetch
    tool: fetch-issues
    arguments:
      since: "{{inputs.since}}"
      limit: 10
  - id: rate
    skill: rating
    prompt: |
      Rate these:
      {{steps.fetch.output}}
    output:
      type: object
      properties: {stars: {type: integer}}
    retry: {attempts: 5, first: 0.5}
  - id: agree
    action_type: human
    prompt: Is {{steps.rate.output.stars}} right?
    needs: [rate]
  - id: "7"
    prompt: Write it down
    needs: [agree, fetch]
    on_failure: continue
    timeout: 30
"""


def test_a_plan_is_read():
    plan, problems = read_plan(WEEKLY, skills=["rating"], tools=["fetch-issues"])
    assert problems == []
    assert plan == Plan(
        "Report what changed this week",
        (
            Step("fetch", "tool", tool="fetch-issues",
                 arguments={"since": "{{inputs.since}}", "limit": 10}),
            Step("rate", "skill", skill="rating",
                 prompt="Rate these:\n{{steps.fetch.output}}\n",
                 output={"type": "object", "properties": {"stars": {"type": "integer"}}},
                 retry=Retry(5, 0.5)),
            Step("agree", "human", prompt="Is {{steps.rate.output.stars}} right?", needs=("rate",)),
            Step("7", prompt="Write it down", needs=("agree", "fetch"), on_failure="continue",
                 timeout=30),
        ),
        {"since": "Monday"},
        retry=Retry(2),
        budget=GoalBudget(50_000, seconds=600),
    )  # fmt: skip
    short, problems = read_plan("{goal: g, steps: [{id: a, prompt: p}]}")
    assert (short.steps, problems) == ((Step("a", prompt="p"),), [])


def test_it_is_written_as_people_write_it(tmp_path):
    plan, _ = read_plan(WEEKLY)
    text = write_plan(plan)
    assert "    prompt: |\n      Rate these:\n      {{steps.fetch.output}}\n" in text
    assert "    arguments:\n      since: '{{inputs.since}}'\n      limit: 10\n" in text
    assert "    needs:\n      - agree\n      - fetch\n" in text
    path = tmp_path / "plan.yaml"
    path.write_text(text, encoding="utf-8")
    assert read_plan(path) == (plan, [])
    assert read_plan(str(path)) == (plan, [])
    assert write_plan(read_plan(path)[0]) == text


def test_lists_conditions_deadlines_and_notifications_are_read():
    text = (
        "goal: g\n"
        "notify: {url: 'https://example.com/x', secret: HOOK, events: [failed]}\n"
        "steps:\n"
        "  - id: each\n"
        "    prompt: '{{item.name}}'\n"
        "    for_each: {items: [{name: a}, {name: b}], failures: 1}\n"
        "  - id: ask\n"
        "    action_type: human\n"
        "    prompt: '{{steps.each.output.0}}?'\n"
        "    when: {value: '{{steps.each.output.1}}', differs: ''}\n"
        "    deadline: 60\n"
        "    default: later\n"
    )
    plan, problems = read_plan(text)
    assert problems == []
    assert plan.notify == Notify("https://example.com/x", "HOOK", ("failed",))
    each, ask = plan.steps
    assert each.for_each == ForEach([{"name": "a"}, {"name": "b"}], failures=1)
    assert ask.when == Condition("{{steps.each.output.1}}", differs="")
    assert (ask.deadline, ask.default) == (60.0, "later")
    assert read_plan(write_plan(plan)) == (plan, [])
    _, problems = read_plan(text.replace("failures: 1", "failures: many, mots: 2"))
    assert {problem.code for problem in problems} == {"wrong-type", "unknown-key"}
    assert {problem.line for problem in problems} == {6}


def test_errors_name_their_lines():
    plan, problems = read_plan(
        "goal: g\n"
        "stepz: 1\n"
        "parallel: many\n"
        "steps:\n"
        "  - id: a\n"
        "    promt: x\n"
        "    prompt: p\n"
        "  - id: b\n"
        "    prompt: '{{steps.aa.output}}'\n"
        "    timeout: -1\n"
        "    needs: {a: 1}\n"
        "  - just text\n"
        "  - id: b\n"
        "    prompt: p\n"
        "    prompt: q\n"
    )
    assert {(one.code, one.line) for one in problems} >= {
        ("unknown-key", 2), ("wrong-type", 3), ("unknown-key", 6), ("unknown-step", 8),
        ("range", 8), ("same-id", 8), ("wrong-type", 11), ("wrong-type", 12), ("key-twice", 15),
    }  # fmt: skip
    assert plan.parallel == 64
    assert [problem.line for problem in problems] == sorted(one.line for one in problems)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("- a\n- b\n", "not-a-plan"),
        ("just words\nand more\n", "not-a-plan"),
        ("\n", "not-a-plan"),
        ("a: b: c\n", "not-yaml"),
        ("goal: &x y\nsteps: *x\n", "not-yaml"),
        ("goal: !!python/object:os.system x\nsteps: []\n", "not-yaml"),
        ('{"goal": "g", "steps": [}', "not-yaml"),
        ('{"goal": "g", "timeout": NaN, "steps": []', "not-yaml"),
        ('{"goal": "g", "timeout": NaN, "steps": [{"id": "a", "prompt": "p"}]}', "wrong-type"),
        ("goal: g\nsteps: []\n", "no-steps"),
        ("goal: ''\nsteps: [{id: a, prompt: p}]\n", "no-goal"),
        ("goal: g\ngoal: h\nsteps: [{id: a, prompt: p}]\n", "key-twice"),
        ('{"goal": "g", "goal": "h", "steps": [{"id": "a", "prompt": "p"}]}', "key-twice"),
    ],
)
def test_a_file_that_is_no_plan_is_an_error(text, code):
    _, problems = read_plan(text)
    assert [problem.code for problem in problems] == [code]
    assert problems[0].message


def test_a_file_that_cannot_be_read_is_an_error(tmp_path):
    with pytest.raises(NotFound, match="There is no `"):
        read_plan(tmp_path / "gone.yaml")
    (tmp_path / "latin.yaml").write_bytes(b"goal: \xff\xfe\n")
    with pytest.raises(InvalidInput, match="cannot be read"):
        read_plan(tmp_path / "latin.yaml")
    with pytest.raises(InvalidInput, match="cannot be read"):
        read_plan(tmp_path)
    (tmp_path / "large.yaml").write_bytes(b"#" * (8 * 1024 * 1024 + 1))
    with pytest.raises(InvalidInput, match="larger"):
        read_plan(tmp_path / "large.yaml")


# --- the schema ---------------------------------------------------------------------------


def test_the_schema_takes_what_the_reader_takes():
    schema = plan_schema()
    validator = jsonschema.Draft202012Validator(schema)
    jsonschema.Draft202012Validator.check_schema(schema)
    plan, _ = read_plan(WEEKLY)
    written = read_document(write_plan(plan), 1_000).value
    written["steps"][3]["id"] = "7"
    validator.validate(written)
    assert validator.is_valid({"goal": "g", "steps": [{"id": "a"}]})
    for wrong in ({}, {"goal": "g"}, {"goal": "g", "steps": []}, {"goal": "g", "steps": [{}]},
                  {"goal": "g", "steps": [{"id": "a", "promt": "x"}]},
                  {"goal": "g", "steps": [{"id": "a", "action_type": "dance"}]}):  # fmt: skip
        assert not validator.is_valid(wrong)


# --- whatever is written reads back -------------------------------------------------------

TEXTS = st.text(st.characters(exclude_categories=("Cs",)), max_size=40) | st.sampled_from(
    ["yes", "no", "null", "~", "1e3", "1.0", "0x1f", "2026-11-15", "a: b", "- x", "# c", "'", '"',
     "a\nb", "a\n\n", " a\nb", "\n", "a\n \nb", "tab\tx\ny", "x\u2028y\nz", "\ufeffa", "{a}", "[",
     "1:30", "<<", "=", "a #b", "trailing ", "é\r\nü", "a\x85b\nc", "y", ".5", "+1"]
)  # fmt: skip
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | TEXTS
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)  # fmt: skip


@given(dags(), st.dictionaries(TEXTS, VALUES, max_size=3), TEXTS.filter(str.strip))
def test_plans_read_back(plan, inputs, goal):
    plan = plan._replace(inputs=inputs, goal=goal)
    assert read_plan(write_plan(plan)) == (plan, [])


ODD = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
    | st.sampled_from(["{{steps.a.output.9}}", "{{inputs.x}}", "human", 10**400, -(10**400)]),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(["type", "pattern", "minLength", "attempts", "tokens", "x", "required"]),
        inner, max_size=3,
    ),
    max_leaves=6,
)  # fmt: skip
KEYS = [
    "id", "prompt", "needs", "output", "retry", "timeout", "arguments", "tool", "action_type",
    "on_failure", "odd",
]  # fmt: skip


@given(
    st.dictionaries(st.sampled_from(KEYS), ODD, max_size=5),
    st.dictionaries(
        st.sampled_from(["goal", "inputs", "budget", "parallel", "retry", "timeout", "odd"]), ODD
    ),
)
def test_any_file_is_read_or_refused(step, more):
    text = json.dumps({"goal": "g", **more, "steps": [{"id": "a", "prompt": "x"}, step]})
    _, found = read_plan(text)
    for problem in found:
        assert problem.message
