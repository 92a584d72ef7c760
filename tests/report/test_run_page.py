"""The page of a run, what its stages found in words, the figures that stand for it."""

import subprocess
import sys
from pathlib import Path

import pytest

from cluster.manifest import Ledger, Manifest
from cluster.runs import RunRecord, StageRecord
from cluster.system_metrics import gpu_row
from flows.headline import MOST, headline
from tasks.report.findings import findings
from tasks.report.run_page import render
from tests.report.test_report import Balance, text_of

URL = "http://127.0.0.1:5000/#/experiments/1/runs/ab/artifacts/report.html"


def record(*stages: StageRecord, **fields: object) -> RunRecord:
    started = RunRecord.start({"name": "mill", "placement": {"workers": 2}}, "all")
    return started.model_copy(update={"stages": list(stages), "status": "completed", **fields})


def stage(name: str, state: str, **fields: object) -> StageRecord:
    about = {"stage": name, "fingerprint": "ab" * 32, "why": "first build"}
    return StageRecord.model_validate({"name": name, "state": state, **about, **fields})


def test_a_cached_run_has_a_page_that_leads_to_those_who_built_it(tmp_path: Path) -> None:
    found = stage("filter", "cached", built_by="mill-1", found="648 of 730 rows")
    run = record(found, report=f"{tmp_path}/artifacts/report/mill-1/report.html")
    run = run.model_copy(update={"page": f"{tmp_path}/runs/{run.id}.html", "urls": {"report": URL}})
    page = render(run)
    parser = Balance()
    parser.feed(page)
    assert (parser.faults, parser.open) == ([], [])
    assert 'href="mill-1.html"' in page and f'href="{URL}"' in page
    assert 'href="../artifacts/report/mill-1/report.html"' in page  # the home may be moved
    told = text_of(page)
    assert "648 of 730 rows" in told and "workers: 2" in told
    for value in run.source.values():
        assert value in told
    assert {"user", "host", "command"} <= run.source.keys()


def test_what_was_built_has_its_cost_and_a_failure_its_reason() -> None:
    took = {"cpu_seconds": 3.0, "peak_bytes": 2.0**30}
    built = stage("read", "built", seconds=2.0, resources=took)
    broken = stage("filter", "failed", error="<b>no</b>")
    page = render(record(built, broken, status="failed"))
    assert "1 built, 1 failed" in page and "1.0 GiB" in page and "&lt;b&gt;no" in page


def test_what_was_planned_stands_beside_what_it_took() -> None:
    ends = {"seconds": 60.0, "seconds_low": 30.0, "seconds_high": 120.0, "cost": 1.5}
    plan = {**ends, "cost_low": 1.0, "cost_high": 3.0, "judge_tokens": 0.0, "joules": None}
    built = stage("read", "built", seconds=2.0, planned={"seconds": 7.0})
    page = render(record(built, planned=plan, spent={"seconds": 90.0, "cost": 2.25}))
    told = " ".join(text_of(page).split())
    assert "time 1 min 0 s 30 s to 2 min 0 s 1 min 30 s" in told
    assert "cost 1.50 USD 1.00 USD to 3.00 USD 2.25 USD" in told
    assert "read built 2.0 s 7.0 s" in told and "tokens of a judge" not in told
    assert "As it was planned" not in render(record(built, planned=plan, status="failed"))


MANY = {"too_short": 1, "a_few": 2, "b": 3, "c": 4, "d": 5, "e": 6, "f": 7}


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        (
            {"ledger": Ledger(**{"in": 730, "out": 648, "rejects": {"too_short": 82}})},
            "648 of 730 rows, less too short 82",
        ),
        (
            {"ledger": Ledger(**{"in": 40, "out": 2, "rejects": MANY})},
            "2 of 40 rows, less f 7, e 6, d 5, c 4, b 3, 3 for other reasons",
        ),
        (
            {"tokens": 40_960, "metrics": {"params": 5.0, "train_loss": 4.3617, "mfu": 0.1}},
            "40,960 tokens; training loss of the last steps 4.362; parameters 5",
        ),
        ({"facts": {"kind": "bpe", "vocab_size": 512}}, "vocabulary 512"),
        ({}, ""),
    ],
)
def test_findings_in_words(fields: dict[str, object], said: str) -> None:
    about = {"stage": "x", "version": 1, "recipe": "mill", "settings": {}, "inputs": {}}
    assert findings(Manifest.model_validate(about | {"fingerprint": "ab"} | fields)) == said


def test_a_few_figures_stand_for_a_run() -> None:
    many = {f"trunk/d{n}.train_loss": 1.0 for n in range(99)}
    many |= {"accuracy": 0.5, "bits_per_byte": 2.0, "bits_per_byte_witten_bell": 3.0}
    assert list(headline(many)) == ["bits_per_byte", "bits_per_byte_witten_bell", "accuracy"]
    dense = {"dense/lengths.mse": 0.2, "dense/lengths.mse_mean": 0.3, "dense/lengths.rows": 417.0}
    tuned = {"label.f1": 0.8, "label.f1_majority": 0.1, "redact.rows_out": 648.0}
    assert list(headline(dense | tuned)) == [
        *("label.f1", "label.f1_majority", "dense/lengths.mse", "dense/lengths.mse_mean"),
        "redact.rows_out",
    ]
    assert len(headline({f"x{n}": 1.0 for n in range(99)})) == MOST


def test_gpus_are_told_of_without_what_the_driver_cannot_tell() -> None:
    row = gpu_row("93, 1000, 4000, 310.5\n[N/A], 7, 80, [N/A]\n")
    assert row["gpu_0_utilization_percentage"] == 93 and row["gpu_0_power_usage_watts"] == 310.5
    assert row["gpu_0_memory_usage_percentage"] == 25
    assert "gpu_1_utilization_percentage" not in row and row["gpu_1_memory_usage_megabytes"] == 7


def test_a_page_takes_no_plotting_library() -> None:
    """Every run has one, also a run that finds everything cached in a second or two."""
    code = (
        "import sys, flows.publishing\n"
        "assert not (heavy := {'matplotlib', 'torch', 'numba'} & set(sys.modules)), heavy"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
