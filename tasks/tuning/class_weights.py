"""What the rows of each class count in the loss, where classes are not alike."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from cluster.errors import BadInput
from cluster.settings import nearest

ClassWeights = Annotated[
    Literal["balanced"] | dict[str, Annotated[float, Field(gt=0)]] | None,
    Field(
        description="what the loss of each class counts: balanced is rows / (classes x rows of the "
        "class), so that all classes count alike; or numbers by class, 1 where none is given"
    ),
]


def weights_of(
    asked: Literal["balanced"] | Mapping[str, float] | None,
    names: Sequence[str],
    counts: Mapping[str, int],
) -> dict[str, np.ndarray]:
    """The weight of each class as an array of a task, scaled so that the mean over all rows is 1;
    nothing where all count alike. Raises BadInput for a class that there is not.
    """
    if asked is None:
        return {}
    rows = np.array([counts[name] for name in names], np.float64)
    if asked == "balanced":
        weights = 1 / rows
    else:
        if unknown := sorted(asked.keys() - set(names)):
            raise BadInput(f"class_weights: no class '{unknown[0]}'; {nearest(unknown[0], names)}")
        weights = np.array([asked.get(name, 1.0) for name in names])
    return {"class_weights": (weights * rows.sum() / (weights @ rows)).astype(np.float32)}
