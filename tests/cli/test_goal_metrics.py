"""The metrics of a worker, and the alerts of the guide that are computed from them."""

from __future__ import annotations

import json
import os
import re
import signal
from typing import NamedTuple

import pytest
import yaml

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
GUIDE = os.path.join(ROOT, "docs", "guides", "deploy-goals.md")
DBOS = ("--engine", "dbos")
READER = """\
import atexit, os
from opentelemetry import metrics
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

reader = InMemoryMetricReader()
metrics.set_meter_provider(MeterProvider([reader]))


@atexit.register
def write():
    with open(os.environ["METRICS_FILE"], "w") as file:
        file.write(reader.get_metrics_data().to_json())
"""
PLAN = """\
goal: Read many weeks
on_failure: continue
retry: {attempts: 1}
steps:
- {id: r1, tool: week_data_read, arguments: {week: 45}}
- {id: r2, tool: week_data_read, arguments: {week: 45}}
- {id: r3, tool: week_data_read, arguments: {week: 46}}
- {id: r4, tool: week_data_read, arguments: {week: 46}}
- {id: r5, tool: week_data_read, arguments: {week: 46}}
- {id: b1, tool: week_data_read, arguments: {week: none}}
- {id: b2, tool: week_data_read, arguments: {week: none}}
"""


class Sample(NamedTuple):
    """A time series as Prometheus has it."""

    name: str
    labels: dict[str, str]
    value: float


def samples_of(data: dict) -> list[Sample]:
    """The exported metrics with the names of Prometheus."""
    units = {"s": "_seconds", "USD": "_USD"}
    samples: list[Sample] = []
    for resource in data["resource_metrics"]:
        for metric in (one for scope in resource["scope_metrics"] for one in scope["metrics"]):
            name = metric["name"].replace(".", "_") + units.get(metric["unit"], "")
            for point in metric["data"]["data_points"]:
                labels = {
                    key.replace(".", "_"): value for key, value in point["attributes"].items()
                }
                if "value" in point:
                    samples.append(Sample(f"{name}_total", labels, point["value"]))
                    continue
                samples.append(Sample(f"{name}_count", labels, point["count"]))
                total = 0
                bounds = [*map(str, point["explicit_bounds"]), "+Inf"]
                for bound, count in zip(bounds, point["bucket_counts"], strict=True):
                    total += count
                    samples.append(Sample(f"{name}_bucket", {**labels, "le": bound}, total))
    return samples


class Query:
    """The few forms of PromQL that the guide uses; what was recorded counts as one window."""

    def __init__(self, samples: list[Sample]) -> None:
        self.samples = samples

    def _selected(self, name: str, labels: str) -> list[Sample]:
        wanted = dict(re.findall(r'(\w+)="([^"]*)"', labels or ""))
        assert any(sample.name == name for sample in self.samples), f"no metric {name}"
        return [
            sample
            for sample in self.samples
            if sample.name == name and wanted.items() <= sample.labels.items()
        ]

    def quantile(self, share: float, name: str) -> tuple[float, float, float]:
        """The quantile, and the bounds of the bucket that it was interpolated in."""
        buckets: dict[float, float] = {}
        for sample in self._selected(name, ""):
            bound = float(sample.labels["le"])
            buckets[bound] = buckets.get(bound, 0) + sample.value
        rank = share * max(buckets.values())
        low, below = 0.0, 0.0
        for bound, count in sorted(buckets.items()):
            if count >= rank:
                return low + (bound - low) * (rank - below) / (count - below), low, bound
            low, below = bound, count
        raise AssertionError

    def fires(self, expression: str) -> tuple[bool, float]:
        """Whether an alert fires, and its value."""
        value, limit = expression.split(" > ")
        quantile = r"histogram_quantile\(([\d.]+), sum by \(le\) \(rate\((\w+)\[10m]\)\)\)"
        found = re.fullmatch(quantile, value)
        if found:
            seconds = self.quantile(float(found[1]), found[2])[0]
            return seconds > float(limit), seconds
        sums = [
            sum(sample.value for sample in self._selected(name, labels))
            for name, labels in re.findall(
                r"sum\((?:rate|increase)\((\w+)(?:\{(.*?)\})?\[10m]\)\)", value
            )
        ]
        assert sums
        result = sums[0] / sums[1] if " / " in value else sums[0]
        return result > float(limit), result


def alerts() -> dict[str, str]:
    """The alerts of the guide and their expressions."""
    with open(GUIDE, encoding="utf-8") as file:
        text = file.read().partition('```yaml title="alerts.yaml"\n')[2].partition("```")[0]
    return {rule["alert"]: rule["expr"] for rule in yaml.safe_load(text)["groups"][0]["rules"]}


@pytest.mark.timeout(240)
def test_the_alerts_of_the_guide_see_what_a_worker_did(weekly, tmp_path):
    weekly.write(many=PLAN)
    lost = weekly.worker(*DBOS)
    lost.kill()
    lost.communicate(timeout=60)
    (tmp_path / "reader").mkdir()
    (tmp_path / "reader" / "sitecustomize.py").write_text(READER, encoding="utf-8")
    path = os.pathsep.join((str(tmp_path / "reader"), os.path.join(ROOT, "src")))
    worker = weekly.worker(
        *DBOS, "--json", PYTHONPATH=path, METRICS_FILE=str(tmp_path / "metrics.json")
    )
    done = weekly("goal", "run", "many.yaml", "--id", "many-weeks", *DBOS, "--detach")
    assert done.status == 0, done.err
    weekly.until("many-weeks", "partial", SATCHEL_ENGINE="dbos")
    worker.send_signal(signal.SIGTERM)
    out, err = worker.communicate(timeout=60)
    assert worker.returncode == 0, err
    rows = [json.loads(line) for line in out.splitlines()]
    ended = [row for row in rows if row["event"] == "step.ended"]
    assert len(ended) == 7
    failed = [row for row in ended if row["state"] == "failed"]
    text = (tmp_path / "metrics.json").read_text(encoding="utf-8")
    assert "many-weeks" not in text, "no metric has the id of a goal"
    query = Query(samples_of(json.loads(text)))

    assert len(alerts()) == 3
    fires, rate = query.fires(alerts()["GoalStepsFail"])
    assert (fires, rate) == (True, len(failed) / len(ended))
    assert rate == 2 / 7
    fires, value = query.fires(alerts()["GoalStepsAreSlow"])
    quantile, low, high = query.quantile(0.95, "satchel_step_duration_seconds_bucket")
    slowest = max(row["seconds"] for row in ended)
    assert value == quantile
    assert fires == (quantile > 60)
    assert low - 0.001 <= slowest <= high + 0.001, "0.95 of seven steps is the slowest one"
    assert query.fires(alerts()["GoalWorkersDie"]) == (True, 1)
    assert [row["event"] for row in rows].count("worker.lost") == 1
    assert query.fires("sum(increase(satchel_goal_ended_total[10m])) > 0")[1] == 1
    assert query.fires("sum(increase(satchel_step_begun_total[10m])) > 0")[1] == 7
