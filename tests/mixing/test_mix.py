"""A mixture proposed by a swarm: the regression, losses by source, and the whole on small texts."""

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cluster.artifact import Artifact
from cluster.errors import BadInput
from cluster.stage import build
from cluster.store import Store
from flows.end_to_end import plan
from flows.plan.dag import Dag
from flows.recipe import Recipe
from tasks.mixing.domains import losses_by_source, source_codes
from tasks.mixing.stage import PAGE
from tasks.mixing.swarm import best, draw, explained, fit, resampled
from tasks.report import words
from tasks.tokens.shards.documents import documents_by_source

ELASTICITY = np.array([[-0.3, -0.02, 0.0], [-0.02, -0.1, 0.0], [0.0, 0.0, -0.1]])


def swarm(noise: float) -> tuple[np.ndarray, np.ndarray]:
    """Runs whose losses fall as powers of the shares, that of the first source fastest."""
    weights_RK = draw(18, 3, 0.02)
    error_RK = np.random.default_rng(1).normal(0, noise, weights_RK.shape)
    return weights_RK, np.exp(1 + np.log(weights_RK + 0.01) @ ELASTICITY + error_RK)


def test_a_swarm_spans_the_simplex_and_is_always_the_same() -> None:
    weights_RK = draw(30, 4, 0.02)
    assert weights_RK.sum(axis=1) == pytest.approx(1, abs=1e-3)
    assert weights_RK[0].tolist() == [0.25] * 4 and (weights_RK >= 0.02).all()
    assert weights_RK.max() > 0.6 and (draw(30, 4, 0.02) == weights_RK).all()


def test_the_best_weights_are_found_with_a_band_that_holds_them() -> None:
    clean, noisy = best(fit(*swarm(0.0)), 0.02), best(fit(*swarm(0.01)), 0.02)
    assert clean.sum() == pytest.approx(1) and clean.argmax() == 0
    drawn = np.array([best(one, 0.02) for one in resampled(*swarm(0.01))[:40]])
    low, high = np.quantile(drawn, (0.02, 0.98), axis=0)
    assert ((low - 0.02 <= clean) & (clean <= high + 0.02)).all()
    assert np.abs(noisy - clean).max() < 0.1
    assert (explained(*swarm(0.01)) > 0.8).all()


def powers_with_floors(draw: np.random.Generator, weights_RK: np.ndarray, tokens: float) -> Any:
    """Losses [R, K] of domains that each have a floor, a power of their own, and some use of the
    text of others.
    """
    domains = weights_RK.shape[1]
    floor_K, power_K = draw.uniform(0.3, 2, domains), draw.uniform(0.15, 0.4, domains)
    help_KK = draw.uniform(0, 0.3, (domains, domains)) * (draw.random((domains, domains)) < 0.5)
    np.fill_diagonal(help_KK, 1)
    seen_RK, even_K = weights_RK @ help_KK.T, help_KK.mean(axis=1)
    return floor_K + draw.uniform(0.2, 1.2, domains) * (tokens * seen_RK / even_K) ** -power_K


def test_a_proposal_is_better_than_uniform_at_more_tokens_where_the_best_is_known() -> None:
    weights_RK, gained, possible = draw(18, 3, 0.02), [], []
    grid_GK = np.array([(a, b, 100 - a - b) for a in range(2, 97) for b in range(2, 99 - a)]) / 100
    for seed in range(12):

        def losses(at: np.ndarray, tokens: float, seed: int = seed) -> Any:
            return powers_with_floors(np.random.default_rng(seed), at, tokens)

        noise_RK = np.random.default_rng(100 + seed).normal(0, 0.005, weights_RK.shape)
        found_K = best(fit(weights_RK, losses(weights_RK, 1.0) * np.exp(noise_RK)), 0.02)
        even = losses(np.full((1, 3), 1 / 3), 4.0).mean()
        gained.append(even - losses(found_K[None], 4.0).mean())
        possible.append(even - losses(grid_GK, 4.0).mean(axis=1).min())
    assert min(gained) > -1e-3 and sum(gained) > 0.6 * sum(possible)


def test_every_token_of_a_stream_has_its_source() -> None:
    places = [(np.array([0, 7]), np.array([3, 2])), (np.array([3]), np.array([4]))]
    assert source_codes(places).tolist() == [0, 0, 0, 1, 1, 1, 1, 0, 0]


def recipe_of(folder: Path) -> Recipe:
    """Three sources of unlike texts, of which the smallest is the hardest."""
    dice = random.Random(0)
    texts = {
        "easy": ["the mill turns and the mill stops; " * (2 + i % 5) + str(i) for i in range(260)],
        "sums": [" and ".join(f"{k} plus {i} is {i + k}" for k in range(9)) for i in range(120)],
        "hard": ["".join(dice.choices("abcdefghij ", k=200)) for _ in range(80)],
    }
    for name, rows in texts.items():
        lines = [json.dumps({"text": text}) for text in rows]
        (folder / f"{name}.jsonl").write_text("\n".join(lines))
    training = {"context": 32, "tokens": 4096, "batch_tokens": 256,
                "optimizer": {"learning_rate": 1e-2}}  # fmt: skip
    return Recipe.model_validate(
        {
            "name": "three",
            "sources": [{"path": str(folder / f"{name}.jsonl")} for name in texts],
            "dedup": {"fuzzy": False},
            "redact": {"kinds": []},
            "tokenizer": {"vocab_size": 260},
            "shards": {"heldout_share": 0.2},
            "model": {"depth": 1, "width": 16},
            "pretrain": training,
            "mix": {"runs": 6, "seeds": 2, "compute": 2, "domain_tokens": 600},
        }
    )


def carried_out(dag: Dag) -> dict[str, Artifact]:
    done: dict[str, Artifact] = {}
    for node in dag:
        if node.spec.stage == "report":
            continue
        inputs: dict[str, Any] = {
            key: [done[one.name] for one in value] if isinstance(value, list) else done[value.name]
            for key, value in node.upstream.items()
        }
        done[node.name] = build(node.function, dag.store, spec=node.spec, **inputs, **node.literals)
    return done


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Artifact]:
    folder = tmp_path_factory.mktemp("mixed")
    recipe = recipe_of(folder)
    return carried_out(plan("mix", Dag(recipe.name, Store(folder)), recipe))


def test_the_proposal_has_weights_bands_and_a_prediction(made: dict[str, Artifact]) -> None:
    facts = made["propose"].manifest.facts
    assert sum(facts["weights"].values()) == pytest.approx(1, abs=1e-3)
    assert set(facts["weights"]) == {"easy.jsonl", "hard.jsonl", "sums.jsonl"}
    assert all(low <= high for low, high in facts["bands"].values())
    prediction = facts["prediction"]
    assert prediction["low"] < prediction["loss"] < prediction["high"]
    assert len(facts["runs"]) == 6 and set(prediction["by_source"]) == set(facts["weights"])


def test_confirming_runs_see_as_many_tokens_with_the_same_seeds(made: dict[str, Artifact]) -> None:
    names = [f"pretrain/{name}-{seed}" for name in ("proposed", "natural", "uniform")
             for seed in (0, 1)]  # fmt: skip
    assert {made[name].manifest.tokens for name in names} == {4096}
    assert made["pretrain/swarm-00"].manifest.tokens == 2048
    mixture = made["pretrain/proposed-0"].manifest.facts["mixture"]
    assert mixture["stages"][0]["weights"] == made["propose"].manifest.facts["weights"]
    facts = made["confirm"].manifest.facts
    assert set(facts["mixtures"]) == {"proposed", "natural", "uniform"} and len(facts["rows"]) == 6
    for gap in facts["against"].values():
        assert gap["n"] == 2 and gap["interval"][0] <= gap["difference"] <= gap["interval"][1]


def test_the_page_has_the_weights_the_runs_and_the_losses(made: dict[str, Artifact]) -> None:
    confirmed, proposal = made["confirm"], made["propose"].manifest.facts
    page = confirmed.file(PAGE).read_text()
    assert page.count("<svg") == 5 and "Proposed is" in page  # weights, gaps, a plot a source
    for name, weight in proposal["weights"].items():
        assert name in page and words.number(weight, 3) in page
    for loss in confirmed.manifest.facts["mixtures"].values():
        assert words.number(loss, 4) in page


def test_losses_by_source_are_those_of_their_tokens(made: dict[str, Artifact]) -> None:
    model, shards = made["pretrain/natural-0"], made["shards"]
    losses, tokens = losses_by_source(model, shards, 10**9, "cpu")
    lengths = {n: int(d[1].sum()) for n, d in documents_by_source(shards, "heldout").items()}
    assert sum(tokens.values()) == sum(lengths.values()) - 1
    assert losses["hard.jsonl"] > losses["easy.jsonl"]
    # All tokens together have the loss that `evaluate` finds, by another way.
    from tasks.evaluation.heldout.loss import load_subject, score_heldout

    score = score_heldout(load_subject(model, shards), 10**9)
    mine = sum(losses[name] * tokens[name] for name in losses) / sum(tokens.values())
    assert mine == pytest.approx(score.nats / score.tokens, rel=1e-6)


def test_one_source_has_no_mixture(tmp_path: Path) -> None:
    recipe = recipe_of(tmp_path)
    one = recipe.model_copy(update={"sources": recipe.sources[:1]})
    with pytest.raises(BadInput, match="has one source"):
        plan("mix", Dag(one.name, Store(tmp_path)), one)
