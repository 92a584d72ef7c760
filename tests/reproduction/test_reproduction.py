"""Published laws put to the test: their runs refitted, figures of own sweeps, plans, and a page."""

import csv
import json
import math
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cluster.artifact import Artifact
from cluster.errors import BadInput
from cluster.runs import RunRecord
from cluster.stage import build
from cluster.store import Store
from flows.commands.laws import recipe_of
from flows.end_to_end import plan
from flows.plan.dag import Dag
from flows.plan.fitting import fitting
from flows.recipe import SHIPPED, Recipe, load, overridden
from tasks.reproduction.ours import COUNTS, Arm, Ours, optimum
from tasks.reproduction.published import figures, worth
from tasks.reproduction.settings import Claim, FitOf
from tasks.reproduction.stage import found_at, verdict
from tasks.scaling.law.laws import LAWS
from tasks.scaling.law.runs import table
from tasks.scaling.sweep.budget import read_time, scaled
from tasks.scaling.sweep.plan import SweepSettings
from tasks.tokens.shards.facts import ShardFacts

ROOT = Path(__file__).resolve().parents[2]
SHARED = Path(os.environ.get("HEADRACE_SHARED_DATA", ROOT.parent / "shared" / "data")) / "scaling"
shared = pytest.mark.skipif(not SHARED.is_dir(), reason=f"{SHARED} is absent")
NAMES = sorted(path.stem for path in (SHIPPED / "laws").glob("*.yaml"))


CLAIMS = [
    {"claim": "alpha", "published": 0.4, "refitted": "theirs.alpha", "ours": "whole.law.alpha"},
    {"claim": "error of the largest run, %", "ours": "whole.forecast.0.error"},
]


def claims(name: str, runs: str | None = None) -> dict[str, tuple[float | None, float | None]]:
    """What is published and what is refitted of each claim of a law."""
    law = load(recipe_of(name)).reproduce
    assert law is not None
    found = figures(table(SHARED / runs) if runs else [], law.fits)
    return {c.claim: (c.published, found_at(found, c.refitted)[0]) for c in law.claims}


def test_each_law_is_a_recipe_of_its_name() -> None:
    assert {"chinchilla", "porian", "gadre", "datablations", "kaplan"} == set(NAMES)
    for name in NAMES:
        recipe = load(recipe_of(name))
        assert recipe.name == name and recipe.reproduce and recipe.reproduce.claims
    with pytest.raises(BadInput, match="did you mean 'chinchilla'"):
        recipe_of("chinchila")


@pytest.mark.parametrize("name", NAMES)
def test_claims_name_figures_that_there_are(name: str) -> None:
    law = load(recipe_of(name)).reproduce
    assert law is not None
    arms, fits = {*law.arms, "all"}, set(law.fits)
    for claim in law.claims:
        for path, known in ((claim.refitted, fits), (claim.ours, arms)):
            assert {part.split(".")[0] for part in path.split(" - ")} <= known if path else True


@shared
def test_the_chinchilla_runs_give_the_published_figures() -> None:
    found = claims("chinchilla", "epoch/svg_extracted_data.csv")
    exact = [pair for claim, pair in found.items() if "Huber" in claim or "least abs" in claim]
    assert len(exact) == 11
    for published, refitted in exact:
        assert refitted == pytest.approx(published, rel=4e-4)
    for claim, (published, refitted) in found.items():
        if claim.startswith("standard error"):
            assert refitted == pytest.approx(published, rel=0.2)


@shared
def test_porians_pairs_give_all_fifteen_exponents() -> None:
    found = claims("porian", "porian/optimal_pairs.csv")
    exponents = [pair for claim, pair in found.items() if not claim.startswith("a moves")]
    assert len(exponents) == 15
    for published, refitted in exponents:
        assert refitted == pytest.approx(published, abs=6e-4)


@shared
def test_gadres_five_runs_foretell_with_the_published_errors() -> None:
    found = claims("gadre", "gadre/runs_redpajama.csv")
    for published, refitted in [pair for pair in found.values() if pair[0] is not None]:
        assert round(refitted or 0, 4) == pytest.approx(published, abs=1e-4)


@shared
def test_the_repeated_runs_have_the_published_minimum_and_a_lower_one() -> None:
    law = load(recipe_of("datablations")).reproduce
    assert law is not None
    fits = {n: fit.model_copy(update={"bootstrap": 0}) for n, fit in law.fits.items()}
    found = figures(table(SHARED / "datablations/runs_c4.csv"), fits)
    theirs, lowest = found["as they fitted"], found["lowest minimum"]
    assert theirs["n"] == lowest["n"] == 181  # of 182; one is not in the file
    assert theirs["R_D"] == pytest.approx(15.387756, rel=4e-3)
    assert theirs["R_N"] == pytest.approx(5.309743, rel=4e-3)
    assert lowest["objective"] < theirs["objective"] and lowest["R_D"] > 40


def test_parameters_that_are_stated_stay_and_the_others_are_fitted() -> None:
    values = {"E": 1.5, "A": 300.0, "B": 900.0, "alpha": 0.4}
    fit = FitOf(form="tied", values={"E": 1.5, "B": 900.0}, bootstrap=4,
                columns={"params": "n", "tokens": "d", "loss": "l"})  # fmt: skip
    rows = [{"n": str(n), "d": str(d), "l": str(1.5 + 300 * n**-0.4 + 900 * d**-0.4)}
            for n in (1e3, 1e4, 1e5) for d in (1e4, 1e5)]  # fmt: skip
    found = figures(rows, {"one": fit})["one"]
    assert {name: found[name] for name in values} == pytest.approx(values, rel=1e-4)
    assert found["bands"]["E"] == [1.5, 1.5]
    with pytest.raises(BadInput, match="no parameter 'aplha': did you mean 'alpha'"):
        figures(rows, {"one": fit.model_copy(update={"near": {"aplha": 0.5}})})


def test_laws_as_stated_need_no_runs() -> None:
    said = dict(claims("datablations").values())
    assert said[2.2256440889984477] == pytest.approx(2.2256440889984477, rel=1e-13)
    again = claims("kaplan")
    for claim, (published, refitted) in again.items():
        if "without embeddings, at" in claim or claim.startswith("the same of the law"):
            assert refitted == pytest.approx(published, abs=6e-3)  # Pearce and Song 2024


def test_rows_are_chosen_and_what_is_absent_is_named() -> None:
    rows = [{"n": str(n), "d": str(d), "l": str(2 + n**-0.3 + d**-0.3), "kind": kind}
            for n in (10, 30, 90, 270) for d in (20, 80, 300) for kind in "ab"]  # fmt: skip
    names = {"params": "n", "tokens": "d", "loss": "l"}
    fit = FitOf(form="tied", columns=names, where={"kind": ("a",)}, leave_out=2, bootstrap=0)
    found = figures(rows, {"one": fit})["one"]
    assert (found["n"], found["alpha"]) == (10, pytest.approx(0.3, rel=1e-3))
    without = fit.model_copy(update={"without": {"n": ("270", "90")}})
    assert figures(rows, {"one": without})["one"]["n"] == 4
    with pytest.raises(BadInput, match="no column 'loss_c4'"):
        figures(rows, {"one": fit.model_copy(update={"columns": names | {"loss": "loss_c4"}})})
    with pytest.raises(BadInput, match="no row of the published runs is one of 'one'"):
        figures(rows, {"one": fit.model_copy(update={"where": {"kind": ("c",)}})})


def runs_of(theta: list[float]) -> list[dict[str, Any]]:
    """A sweep at three budgets that follows a law of all parameters; embeddings are a share of
    them that falls with the size.
    """
    found = []
    for width in (16, 24, 36, 54, 80, 120, 180):
        body, head = 36.0 * width**2, 260.0 * width
        per_token = 6 * (body + head)
        for budget in (1e11, 4e11, 1.6e12, 6.4e12):
            at = {"params": np.array([body + 2 * head]), "tokens": np.array([budget / per_token])}
            log = LAWS["chinchilla"].evaluate(np.array([theta]), at)[0][0, 0]
            found.append(
                {
                    "params": body + 2 * head,
                    "params_non_embedding": body,
                    "tokens": budget / per_token,
                    "flops": budget,
                    "flops_own": budget,
                    "loss": float(np.exp(log)),
                    "name": f"d{width}",
                    "width": width,
                    "status": "finished",
                }
            )
    return found


def test_exponents_depend_on_what_is_counted_as_they_do_by_theory() -> None:
    runs = runs_of([math.log(1.0), math.log(300), math.log(900), 0.5, 0.5])
    found = {count: optimum(runs, count, 0.002) for count in COUNTS}
    for count in COUNTS:
        low, high = found[count]["bands"]["a"]
        assert low < found[count]["a"] < high
    assert found["all"]["a"] == pytest.approx(0.5, abs=0.06)
    assert found["kaplan"]["a"] > found["head"]["a"] > found["all"]["a"]


def test_a_path_leads_to_a_figure_and_its_band() -> None:
    runs = runs_of([math.log(1.0), math.log(300), math.log(900), 0.5, 0.5])
    facts = {"runs": runs, "fit": {"a": 0.5, "bands": {"a": [0.4, 0.6]}}}
    ours = Ours({"one": Arm(facts, 1e9), "other": Arm(facts, 1e9)})
    assert found_at(ours, "one.law.a") == (0.5, [0.4, 0.6])
    assert found_at(ours, "one.law.a - other.law.a") == (
        0.0,
        [pytest.approx(-0.1 * 2**0.5), pytest.approx(0.1 * 2**0.5)],
    )
    assert found_at(ours, "one.forecast.0.error") == (None, None)
    assert found_at(ours, None) == (None, None)


@pytest.mark.parametrize(
    ("band", "said"),
    [
        ([0.4, 0.49], "agrees"),
        ([0.2, 0.3], "differs"),
        ([0.2, 0.9], "open: the band of ours is wider"),
        (None, "open: these runs"),
    ],
)
def test_a_claim_agrees_where_bands_meet(band: list[float] | None, said: str) -> None:
    claim = Claim(claim="a", published=0.5, band=(0.48, 0.52), ours="one.law.a")
    assert verdict(claim, None, None, 0.4, band).startswith(said)


def test_repeated_tokens_lose_their_worth() -> None:
    assert worth(15.387756, 1) == 1
    assert worth(15.387756, 4) == pytest.approx(0.931, abs=1e-3)
    assert worth(15.387756, 4) > worth(15.387756, 40) > 0


def test_a_sweep_is_scaled_in_size_and_length() -> None:
    small = SweepSettings(widths=(16, 32, 64), head_dim=8, budgets=(1e11, 1e12), ratios=(20,))
    large = scaled(small, 16.0, 260)
    assert large.budgets == (1.6e12, 1.6e13) and large.ratios == (20,)
    assert 1.7 < large.widths[-1] / small.widths[-1] < 2.2
    assert large.batch_tokens > small.batch_tokens and scaled(small, 1.0, 260) is small
    with pytest.raises(BadInput, match="2 sizes, of width 8, 16; a law needs 3"):
        scaled(small, 0.005, 260)


@pytest.mark.parametrize("text", ["60", "m", "0m", "five minutes"])
def test_a_time_has_a_number_and_a_unit(text: str) -> None:
    assert read_time("60m") == read_time("1h") == 3600
    with pytest.raises(BadInput, match="such as 60m"):
        read_time(text)


def tiny(folder: Path, **changes: Any) -> Recipe:
    """Two arms of a law, on a text that is soon read; the other arm has a quarter of it."""
    said = "the miller said that wheel {i} of the mill runs {n} times while the water is high, and"
    rows = [said.format(i=i, n=i * i) * (1 + i % 4) + " stops." for i in range(300)]
    text = folder / "text.jsonl"
    text.write_text("\n".join(json.dumps({"text": row}) for row in rows))
    runs = folder / "runs.csv"
    with runs.open("w", newline="") as file:
        csv.writer(file).writerows(
            [["params", "tokens", "loss"]]
            + [
                [n, d, 1 + 30 * n**-0.4 + 90 * d**-0.4]
                for n in (1e3, 4e3, 2e4, 9e4)
                for d in (1e4, 5e4, 3e5)
            ]
        )
    law = {
        "paper": "Miller 2020",
        "says": "Loss falls.",
        "runs": str(runs),
        "fits": {"theirs": {"columns": {n: n for n in ("params", "tokens", "loss")}}},
        "arms": {"whole": {}, "part": {"shards.train_share": 0.25}},
        "claims": CLAIMS,
        "plots": ["parabolas", "runs", "optima", "ladder", "worth", "exponents"],
    }  # fmt: skip
    sweep = {"widths": [8, 16, 24], "head_dim": 8, "depth": 1, "tokens": [1024, 2048, 4096],
             "context": 16, "batch_tokens": 64, "heldout_tokens": 512, "trunks": False}  # fmt: skip
    values = {
        "name": "tiny",
        "sources": [{"path": str(text)}],
        "dedup": {"fuzzy": False},
        "tokenizer": {"vocab_size": 260},
        "fit": {"bootstrap": 20},
        "sweep": sweep,
        "reproduce": law,
    }
    return Recipe.model_validate(values | changes)


def lasting(recipe: Recipe, seconds: float) -> Recipe:
    return overridden(recipe, {"reproduce.seconds": seconds})


def carried_out(dag: Dag) -> dict[str, Artifact]:
    """Every stage, in this process."""
    done: dict[str, Artifact] = {}
    for node in dag:
        inputs: dict[str, Any] = {
            key: [done[one.name] for one in value] if isinstance(value, list) else done[value.name]
            for key, value in node.upstream.items()
        }
        done[node.name] = build(node.function, dag.store, spec=node.spec, **inputs, **node.literals)
    return done


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Dag, dict[str, Artifact]]:
    folder = tmp_path_factory.mktemp("reproduced")
    dag = plan("reproduce", Dag("tiny", Store(folder)), tiny(folder))
    return dag, carried_out(dag)


def test_arms_share_what_they_can_and_have_names_of_their_own(
    made: tuple[Dag, dict[str, Artifact]],
) -> None:
    dag, _ = made
    names = [node.name for node in dag]
    assert len(set(names)) == len(names)
    assert names.count("read") == names.count("tokenizer") == names.count("refit") == 1
    assert {"shards/whole", "shards/part", "forecast/whole", "forecast/part"} <= set(names)


def test_an_arm_trains_on_a_share_of_the_text_and_is_measured_on_the_same(
    made: tuple[Dag, dict[str, Artifact]],
) -> None:
    whole, part = (made[1][f"shards/{arm}"] for arm in ("whole", "part"))
    few, many = ShardFacts.of(part), ShardFacts.of(whole)
    assert 0.1 < few.train.tokens / many.train.tokens < 0.5
    assert few.heldout.tokens == many.heldout.tokens
    ledger = part.manifest.ledger
    assert ledger and ledger.rejects["not_kept"] == many.train.documents - few.train.documents


def test_claims_stand_beside_refitted_and_own_figures_on_a_page(
    made: tuple[Dag, dict[str, Artifact]],
) -> None:
    artifact = made[1]["reproduce"]
    claim, error = artifact.manifest.facts["claims"]
    assert (claim["published"], claim["refitted"]) == (0.4, pytest.approx(0.4, rel=1e-3))
    low, high = error["bands"]["ours"]
    assert low <= error["ours"] and high > 0 and error["verdict"] == "measured here"
    page = artifact.file("reproduction.html").read_text()
    assert "Miller 2020" in page and page.count("<svg") >= 5 and "alpha" in page


def test_sweeps_are_as_large_as_the_time_pays_for_and_stay_so(
    fresh_home: Path, tmp_path: Path
) -> None:
    recipe = tiny(tmp_path)
    short, long = (fitting(lasting(recipe, seconds)).reproduce for seconds in (200.0, 2000.0))
    assert short and long and short.scale < long.scale
    before = overridden(lasting(recipe, 200.0), {"reproduce.scale": 0.5})
    RunRecord.start(before.model_dump(mode="json"), "reproduce").save(fresh_home)
    again = fitting(lasting(overridden(recipe, {"seed": 3}), 200.0)).reproduce
    assert again and again.scale == 0.5
    with pytest.raises(BadInput, match="too short for recipe 'chinchilla'"):
        fitting(load("laws/chinchilla", ["reproduce.seconds=10"]))
    with pytest.raises(BadInput, match="too short for recipe 'tiny'"):
        fitting(lasting(recipe, 1.0))
