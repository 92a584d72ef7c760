"""What a head on a network says: plain data, light to import (the network is `model.heads`)."""

from dataclasses import dataclass
from typing import Literal

Kind = Literal["sequence", "token", "span"]
Pooling = Literal["first", "mean", "last"]
Layers = Literal["last", "weighted"]
Problem = Literal["single_label_classification", "multi_label_classification", "regression"]
"""What the outputs of a sequence are, in the words of Transformers' `problem_type`."""


@dataclass(frozen=True)
class Head:
    """What a head says, of how many `outputs`; `pooling` is what it reads of a whole row: the first
    token's state (pooled as BERT does), the mean of all, or the last token's.
    """

    kind: Kind
    outputs: int
    pooling: Pooling = "last"
    problem: Problem = "single_label_classification"
    layers: Layers = "last"
    """Which states it reads: the last layer's, or a learned mean of all (ELMo)."""
