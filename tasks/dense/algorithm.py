"""The training of a feed-forward network by stochastic gradients, as plain code, step by step.

    forward pass        phi_0 = x, phi_m = tanh(phi_(m-1) W_m + b_m), the last layer without tanh
    loss                L_i of each row of the batch
    back-propagation    delta_M = dL/dphi_M; delta_(m-1) = (delta_m W_m^T) (1 - phi_(m-1)^2);
                        the gradient of W_m is phi_(m-1)^T delta_m, that of b_m the sum of delta_m
    update              w := w - rate * gradient, summed over the batch

Beside each gradient stands the one that needs no derivation, (L(w + h) - L(w - h)) / 2h.
Letters: B rows, I inputs and O outputs of a layer.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from model.config_records import DenseLoss

Numbers = NDArray[np.float64]
NUDGE = 1e-5


class Layer(NamedTuple):
    """A layer's weights [I, O] and biases [O], or their gradients."""

    weights: Numbers
    biases: Numbers


def forward(layers: Sequence[Layer], inputs_BI: Numbers) -> list[Numbers]:
    """What goes into the network and what comes out of each layer, phi_0 to phi_M, [B, O] each."""
    states = [inputs_BI]
    for number, (weights, biases) in enumerate(layers, 1):
        sums = states[-1] @ weights + biases
        states.append(sums if number == len(layers) else np.tanh(sums))
    return states


def losses(outputs_BO: Numbers, labels: np.ndarray, loss: DenseLoss) -> tuple[Numbers, Numbers]:
    """The loss of each row, [B], and what it changes by with the outputs, [B, O]."""
    if loss == "mse":
        gaps_BO = outputs_BO - labels
        return (gaps_BO**2).sum(1), 2 * gaps_BO
    shifted_BO = outputs_BO - outputs_BO.max(1, keepdims=True)
    p_BO = np.exp(shifted_BO) / np.exp(shifted_BO).sum(1, keepdims=True)
    truth_BO = np.eye(outputs_BO.shape[1])[labels]
    return -np.log((p_BO * truth_BO).sum(1)), p_BO - truth_BO


def gradients(layers: Sequence[Layer], states: Sequence[Numbers], delta_BO: Numbers) -> list[Layer]:
    """The gradient of the summed loss for every layer, from the last layer back to the first."""
    found: list[Layer] = []
    for number in range(len(layers) - 1, -1, -1):
        before_BI = states[number]
        found.insert(0, Layer(before_BI.T @ delta_BO, delta_BO.sum(0)))
        delta_BO = (delta_BO @ layers[number].weights.T) * (1 - before_BI**2)
    return found


def differences(
    layers: Sequence[Layer], inputs_BI: Numbers, labels: np.ndarray, loss: DenseLoss
) -> list[Layer]:
    """The same by central differences: the loss with every number a little larger and smaller."""

    def total() -> float:
        return float(losses(forward(layers, inputs_BI)[-1], labels, loss)[0].sum())

    found = [Layer(np.zeros_like(w), np.zeros_like(b)) for w, b in layers]
    for layer, slopes in zip(layers, found, strict=True):
        for numbers, slope in zip(layer, slopes, strict=True):
            for place in np.ndindex(numbers.shape):
                kept = numbers[place]
                numbers[place] = kept + NUDGE
                above = total()
                numbers[place] = kept - NUDGE
                slope[place] = (above - total()) / (2 * NUDGE)
                numbers[place] = kept
    return found


def updated(layers: Sequence[Layer], found: Sequence[Layer], rate: float) -> list[Layer]:
    """The layers after one step against the gradient."""
    return [
        Layer(w - rate * dw, b - rate * db) for (w, b), (dw, db) in zip(layers, found, strict=True)
    ]


def drawn(sizes: Sequence[int], seed: int) -> list[Layer]:
    """A network's first weights, of variance 1 / inputs; biases are 0."""
    random = np.random.default_rng(seed)
    return [
        Layer(random.normal(size=(into, out)) / np.sqrt(into), np.zeros(out))
        for into, out in pairwise(sizes)
    ]


def told(
    layers: list[Layer],
    inputs_BI: Numbers,
    labels: np.ndarray,
    loss: DenseLoss,
    rate: float,
    steps: int,
) -> list[dict[str, Any]]:
    """Steps of a training on one batch, with every number of them: `states` phi_0 to phi_M, the
    `losses` of the rows, and for each of the `layers` a matrix [I + 1, O], the biases in its last
    row, of the numbers `before` the update and `after` it, their `gradient`, and the same by
    central `difference`s; `gap` is how far the two gradients are apart at most.
    """
    found = []
    for step in range(1, steps + 1):
        states = forward(layers, inputs_BI)
        loss_B, delta_BO = losses(states[-1], labels, loss)
        slopes = gradients(layers, states, delta_BO)
        checked = differences(layers, inputs_BI, labels, loss)
        after = updated(layers, slopes, rate)
        gap = max(
            float(np.abs(a - b).max())
            for one, other in zip(slopes, checked, strict=True)
            for a, b in zip(one, other, strict=True)
        )
        rows = zip(layers, slopes, checked, after, strict=True)
        names = ("before", "gradient", "difference", "after")
        found.append(
            {
                "step": step,
                "states": [state.round(6).tolist() for state in states],
                "losses": loss_B.round(6).tolist(),
                "layers": [
                    {
                        name: np.vstack([layer.weights, layer.biases]).round(6).tolist()
                        for name, layer in zip(names, row, strict=True)
                    }
                    for row in rows
                ],
                "gap": gap,
            }
        )
        layers = after
    return found
