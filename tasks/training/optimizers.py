"""The optimizers by name: PyTorch's own, over the parameter groups of a network.

    optimizer = make_optimizer(groups_of(module, settings), settings)

- `sgd`: along the gradient. Keeps nothing.
- `momentum`: heavy ball, along a decaying sum of gradients (Polyak 1964). Keeps the sum.
- `adagrad`: over the root of the sum of squares (Duchi et al. 2011). Keeps the sum.
- `rmsprop`: over the root of their decaying mean (Hinton 2012). Keeps the mean.
- `adam`: the means of gradients and of squares, corrected for their start (Kingma and Ba 2015).
  Keeps both.
- `adamw`: the same, with weights decaying beside it (Loshchilov and Hutter 2019).
- `muon`: for matrices in blocks, the decaying sum of gradients made orthogonal (Jordan et al. 2024)
  and as large as AdamW's updates (Liu et al. 2025). Keeps the sum. Other parameters have AdamW.

Each group says under `moments` which tensors its optimizer keeps for a parameter: what checkpoints
hold of it.
"""

import inspect
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

import torch
from torch import nn, optim
from torch.optim import Optimizer

from model.optim import parameter_groups
from tasks.training.settings import OptimizerName, OptimizerSettings

Kind = TypeVar("Kind", bound=type[Optimizer])


def eager(kind: Kind) -> Kind:
    """An optimizer without the marks that PyTorch sets in it for its compiler, which compiles none
    here: the first of them that is met loads `torch._dynamo`, two CPU seconds in every process.
    """
    marked = ("add_param_group", "step", "zero_grad", "state_dict", "load_state_dict")
    plain = {name: inspect.unwrap(getattr(kind, name)) for name in marked}
    plain["step"] = torch.no_grad()(plain["step"])  # which a mark of `step` sees to, too
    return type(kind.__name__, (kind,), plain)  # pyrefly: ignore[bad-return]


SGD, Adagrad, RMSprop = eager(optim.SGD), eager(optim.Adagrad), eager(optim.RMSprop)
Adam, AdamW, Muon = eager(optim.Adam), eager(optim.AdamW), eager(optim.Muon)
Group = dict[str, Any]
MEANS = ("exp_avg", "exp_avg_sq")


def groups_of(
    module: nn.Module, settings: OptimizerSettings, layer_decay: float = 1.0
) -> list[Group]:
    """The parameter groups of a network (`model.optim`), each with the peak rate that it has."""
    return parameter_groups(
        module,
        settings.learning_rate,
        settings.weight_decay,
        scales=settings.scales.model_dump(),
        base_width=settings.base_width,
        decayed=settings.decayed,
        layer_decay=layer_decay,
    )


def make_optimizer(groups: Iterable[Group], settings: OptimizerSettings) -> Optimizer:
    """The optimizer of some groups; each has its own `lr`, `weight_decay` and now `moments`."""
    return MAKERS[settings.name](list(groups), settings)


def _marked(groups: Iterable[Group], *moments: str) -> list[Group]:
    return [group | {"moments": moments} for group in groups]


def _sgd(groups: list[Group], settings: OptimizerSettings) -> Optimizer:
    return SGD(_marked(groups), lr=settings.learning_rate, fused=True)


def _momentum(groups: list[Group], settings: OptimizerSettings) -> Optimizer:
    marked = _marked(groups, "momentum_buffer")
    return SGD(marked, lr=settings.learning_rate, momentum=settings.momentum, fused=True)


def _adagrad(groups: list[Group], settings: OptimizerSettings) -> Optimizer:
    marked = _marked(groups, "sum")
    return Adagrad(marked, lr=settings.learning_rate, eps=settings.epsilon, fused=True)


def _rmsprop(groups: list[Group], settings: OptimizerSettings) -> Optimizer:
    alpha = settings.betas[1]
    marked = _marked(groups, "square_avg")
    # PyTorch has no fused one.
    return RMSprop(marked, lr=settings.learning_rate, alpha=alpha, eps=settings.epsilon)


def _adam(groups: list[Group], settings: OptimizerSettings) -> Optimizer:
    betas, lr = settings.betas, settings.learning_rate
    return Adam(_marked(groups, *MEANS), lr=lr, betas=betas, eps=settings.epsilon, fused=True)


def _adamw(groups: list[Group], settings: OptimizerSettings) -> Optimizer:
    betas, lr = settings.betas, settings.learning_rate
    return AdamW(_marked(groups, *MEANS), lr=lr, betas=betas, eps=settings.epsilon, fused=True)


@eager
class MuonWithAdamW(Optimizer):
    """Muon for matrices inside blocks, AdamW for all else, as one optimizer.

    The two share its groups and its state, so that a schedule and a checkpoint see one.
    """

    def __init__(self, groups: list[Group], settings: OptimizerSettings) -> None:
        matrices = list(_split(groups, orthogonal=True))
        self.parts = [_adamw(list(_split(groups, orthogonal=False)), settings)]
        if matrices:
            marked = _marked(matrices, "momentum_buffer")
            how: Any = {"momentum": settings.momentum, "adjust_lr_fn": "match_rms_adamw"}
            self.parts.append(Muon(marked, lr=settings.learning_rate, **how))
        # The very groups of the parts: a rate that is set here is theirs.
        super().__init__([group for part in self.parts for group in part.param_groups], {})
        for part in self.parts:
            part.state = self.state

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # pyrefly: ignore[bad-override]
        """Step both."""
        assert closure is None, "the gradients are there already"
        for part in self.parts:
            part.step()


def _split(groups: list[Group], *, orthogonal: bool) -> Iterator[Group]:
    """The groups with only their matrices in blocks, or only their other parameters."""
    for group in groups:
        inside = group.get("name", "matrices").partition("/")[0] == "matrices"
        # Experts are three-dimensional and go to AdamW: PyTorch's Muon takes matrices alone.
        params = [p for p in group["params"] if (inside and p.ndim == 2) == orthogonal]
        if params:
            yield group | {"params": params}


MAKERS: dict[OptimizerName, Callable[[list[Group], OptimizerSettings], Optimizer]] = {
    "sgd": _sgd,
    "momentum": _momentum,
    "adagrad": _adagrad,
    "rmsprop": _rmsprop,
    "adam": _adam,
    "adamw": _adamw,
    "muon": MuonWithAdamW,
}
