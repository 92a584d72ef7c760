"""Agreement between judges, calibration to people, and audits."""

import numpy as np
import pytest

from tasks.evaluation.statistics.audits import family_audit, length_audit
from tasks.evaluation.statistics.calibration import calibrate
from tasks.evaluation.statistics.reliability import krippendorff

# Krippendorff 2011, part C: four observers, twelve units, some missing.
OBSERVED = [
    [1, 1, None, 1], [2, 2, 3, 2], [3, 3, 3, 3], [3, 3, 3, 3], [2, 2, 2, 2], [1, 2, 3, 4],
    [4, 4, 4, 4], [1, 1, 2, 1], [2, 2, 2, 2], [None, 5, 5, 5], [None, None, 1, 1],
    [None, None, 3, None],
]  # fmt: skip


@pytest.mark.parametrize(
    ("level", "alpha"), [("nominal", 0.743), ("ordinal", 0.815), ("interval", 0.849)]
)
def test_alpha_as_published(level: str, alpha: float) -> None:
    found = krippendorff(OBSERVED, level)  # type: ignore[arg-type]
    assert found["alpha"] == pytest.approx(alpha, abs=5e-4)
    assert found["units"] == 11
    assert found["interval"][0] < alpha < found["interval"][1] <= 1


def test_no_variation_no_alpha() -> None:
    assert krippendorff([[1, 1], [1, 1]])["alpha"] is None
    assert krippendorff([[1, None], [2, None]])["units"] == 0


@pytest.mark.parametrize("how", ["linear", "isotonic"])
def test_scores_come_onto_the_scale_of_people(how: str) -> None:
    random = np.random.default_rng(0)
    humans = random.uniform(1, 5, 300)
    scores = (humans - 1) / 4 + random.normal(0, 0.02, 300)
    found = calibrate(scores.tolist(), humans.tolist(), how)  # type: ignore[arg-type]
    assert found["error"] < 0.15 < found["error_of_mean"]
    calibrated = [y for _, y in found["points"]]
    assert calibrated == sorted(calibrated)


def test_a_judge_that_likes_length_is_found_out() -> None:
    random = np.random.default_rng(1)
    humans, lengths = random.uniform(1, 5, 200), random.uniform(10, 100, 200)
    fair = length_audit(humans.tolist(), lengths.tolist(), humans.tolist())
    swayed = length_audit((humans + lengths / 20).tolist(), lengths.tolist(), humans.tolist())
    assert abs(fair["spearman"]) < 0.2 < swayed["interval"][0]
    assert swayed["beyond_people"] > 0.5


def test_lengths_that_are_all_the_same_sway_nobody() -> None:
    found = length_audit([1.0, 2.0, 3.0], [5.0] * 3, [1.0, 3.0, 2.0])
    assert found == {"spearman": None, "interval": [None, None], "beyond_people": None}


def test_a_judge_that_likes_its_own_is_found_out() -> None:
    own = [i % 2 == 0 for i in range(100)]
    humans = [3.0 + (i % 5) / 10 for i in range(100)]
    biased = family_audit([h + 0.5 * o for h, o in zip(humans, own, strict=True)], own, humans)
    assert biased["difference"] == pytest.approx(0.5)
    assert biased["interval"] == [pytest.approx(0.5), pytest.approx(0.5)]
    assert family_audit(humans, [False] * 100)["difference"] is None
