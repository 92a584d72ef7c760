"""A mixture proposed and confirmed: losses by domain, the proposal of a swarm, and the comparison.

Three stages. `domain_losses` measures a model on the held-out text of each source; `propose` fits
those of a swarm; `confirm` sets the proposed mixture beside the natural and the uniform one, which
were trained on as many tokens with the same seeds.
"""

from typing import Any

from cluster.artifact import Artifact
from cluster.errors import BadInput
from cluster.stage import stage
from cluster.store import Draft
from tasks.mixing.settings import ProposeSettings
from tasks.tokens.mixture.settings import Mixture, MixtureStage
from tasks.training.facts import Ending

Row = dict[str, Any]
PROPOSED = "proposed"
PAGE = "mixture.html"


@stage(version=1)
def domain_losses(model: Artifact, shards: Artifact, tokens: int, draft: Draft) -> None:
    """Held-out loss of a model on each source, in nats a token, over its first `tokens`. Facts:
    `losses` and `tokens` by source; of a model that was not trained to its end `status` and `why`.
    """
    from tasks.mixing.domains import losses_by_source

    if not (ending := Ending.of(model)).finished:
        draft.facts = ending.noted()
        return
    device = "cuda" if draft.placement.gpus else "cpu"
    losses, scored = losses_by_source(model, shards, tokens, device)
    draft.facts = {"losses": losses, "tokens": scored}
    draft.metrics = {"mean_loss": sum(losses.values()) / len(losses)}


@stage(version=2, tracked=True)
def propose(swarm: list[Artifact], settings: ProposeSettings, draft: Draft) -> None:
    """The mixture of the least mean loss, by a regression of the swarm's losses. Facts: `weights`
    with their 90 % `bands`, `mixture`, `prediction` for a run of the swarm (`loss`, `low`, `high`
    of the mean, and `by_source`), `explained` (R squared by source, of runs left out), `runs`.

    Raises BadInput where too few runs came to their end.
    """
    import numpy as np

    from tasks.mixing import swarm as regression

    pairs = zip(settings.mixtures, swarm, strict=True)
    rows = [(mixture.weights, losses) for mixture, one in pairs if (losses := _losses(one))]
    names = sorted(settings.mixtures[0].weights)
    if len(rows) < len(names) + 2:
        raise BadInput(
            f"{len(rows)} runs of the swarm came to their end, {len(names)} sources need "
            f"{len(names) + 2}: raise mix.runs"
        )
    weights_RK = np.array([[weights[name] for name in names] for weights, _ in rows])
    losses_RK = np.array([[losses[name] for name in names] for _, losses in rows])
    surface = regression.fit(weights_RK, losses_RK)
    replicas = regression.resampled(weights_RK, losses_RK)
    best_K = regression.best(surface, settings.least_share)
    drawn_SK = np.array([regression.best(one, settings.least_share) for one in replicas])
    told_SK = np.array([_with_noise(one, best_K, seed) for seed, one in enumerate(replicas)])
    bands = np.quantile(drawn_SK, regression.BAND, axis=0).T.tolist()
    loss_K = surface.losses(best_K[None])[0]
    weights = dict(zip(names, np.round(best_K, regression.DIGITS).tolist(), strict=True))
    mixture = Mixture(stages=(MixtureStage(weights=weights),), max_epochs=settings.max_epochs)
    explained_K = regression.explained(weights_RK, losses_RK)
    draft.rows = len(rows)
    draft.facts = {
        "weights": weights,
        "bands": dict(zip(names, bands, strict=True)),
        "mixture": mixture.identity(),
        "prediction": _prediction(loss_K, told_SK, names),
        "explained": dict(zip(names, explained_K.tolist(), strict=True)),
        "runs": [
            {"weights": w, "losses": found, "mean": sum(found.values()) / len(found)}
            for w, found in rows
        ],
    }
    draft.metrics = {"mean_loss": float(loss_K.mean())}
    draft.tracker.params({f"weight.{name}": weight for name, weight in weights.items()})
    draft.write_json("proposal.json", draft.facts)


@stage(version=3, tracked=True)
def confirm(scores: list[Artifact], proposal: Artifact, runs: list[Row], draft: Draft) -> None:
    """The mixtures side by side: `runs` name the `mixture` and the `seed` of each of the scores.
    Facts: `rows`; `mixtures` with the mean loss of each; `against`, what the proposed one has less
    of than each other, paired over seeds, with its 95 % `interval`, `p` and whether it `beats` it;
    and a page.
    """
    from tasks.mixing.page import render
    from tasks.scaling.variants.paired import better, difference

    rows = [
        run | {"losses": losses, "mean": sum(losses.values()) / len(losses)}
        for run, one in zip(runs, scores, strict=True)
        if (losses := _losses(one))
    ]
    means: dict[str, dict[int, float]] = {}
    for row in rows:
        means.setdefault(row["mixture"], {})[row["seed"]] = row["mean"]
    others = [name for name in means if name != PROPOSED and PROPOSED in means]
    gaps = {name: difference(means[PROPOSED], means[name]) for name in others}
    known = {name: gap for name, gap in gaps.items() if gap is not None}
    sure = better(list(known.values()))
    draft.rows = len(rows)
    draft.facts = {
        "weights": proposal.manifest.facts["weights"],
        "rows": rows,
        "mixtures": {name: sum(f.values()) / len(f) for name, f in means.items()},
        "against": {
            name: {"difference": gap.mean, "interval": gap.interval, "p": gap.p, "n": gap.n}
            | {"beats": beats}
            for (name, gap), beats in zip(known.items(), sure, strict=True)
        },
    }
    draft.metrics = {f"mean_loss.{name}": mean for name, mean in draft.facts["mixtures"].items()}
    draft.tracker.metrics([{"step": 0, **draft.metrics}])
    draft.write_json("confirmed.json", draft.facts)
    page = render(proposal.manifest.facts, draft.facts, PROPOSED)
    (draft.path / PAGE).write_text(page, encoding="utf-8")


def _losses(score: Artifact) -> dict[str, float]:
    found: dict[str, float] = score.manifest.facts.get("losses", {})
    return found


def _with_noise(surface: Any, weights_K: Any, seed: int) -> Any:
    """Losses [K] that a run of a mixture may have."""
    import numpy as np

    noise_K = np.random.default_rng(seed).normal(0, surface.noise_K)
    return surface.losses(weights_K[None])[0] * np.exp(noise_K)


def _prediction(loss_K: Any, told_SK: Any, names: list[str]) -> Row:
    """What the regression says of the proposed mixture, of the mean and of each source."""
    import numpy as np

    from tasks.mixing.swarm import BAND

    low_K, high_K = np.quantile(told_SK, BAND, axis=0)
    low, high = np.quantile(told_SK.mean(axis=1), BAND)
    by_source = {
        name: {"loss": float(loss_K[i]), "low": float(low_K[i]), "high": float(high_K[i])}
        for i, name in enumerate(names)
    }
    return {
        "loss": float(loss_K.mean()),
        "low": float(low),
        "high": float(high),
        "by_source": by_source,
    }
