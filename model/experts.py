"""Mixture of experts: each token goes through the few feed-forward layers that a router picks.

    y = scale sum_i w_i expert_i(x) + shared(x),    i over the best `active` of the routed experts

Shazeer et al. 2017; Switch: Fedus et al. 2022; shared experts: Dai et al. 2024 (DeepSeekMoE);
sigmoid scores, groups and balance by a bias: DeepSeek-V3 (2024), section 2.1.2. No expert has a
capacity: no token is dropped.

Letters: B rows, T positions, N tokens, D width, F width of an expert, X routed experts, A active
experts of a token, G groups of experts.
"""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn

from model.config import ExpertConfig, ModelConfig
from model.feedforward import FeedForward, activate
from model.sights import half, on_gpu


class ExpertLayer(nn.Module):
    """A feed-forward layer of routed and shared experts.

    After a forward pass in training, `balance_loss` is what this layer adds to the loss.
    """

    def __init__(self, config: ModelConfig, experts: ExpertConfig) -> None:
        super().__init__()
        assert not config.feedforward_bias, "experts have no biases"
        self.activation = config.activation
        self.router = Router(config.width, experts)
        inner = experts.width * (1 + config.gated)
        self.up = nn.Parameter(torch.empty(experts.routed, inner, config.width))
        self.down = nn.Parameter(torch.empty(experts.routed, config.width, experts.width))
        if experts.shared:
            self.shared = FeedForward(config, experts.shared * experts.width)

    @property
    def balance_loss(self) -> Tensor | None:
        """Of the last forward pass in training; None before the first."""
        return self.router.balance_loss

    def forward(self, x_BTD: Tensor) -> Tensor:
        """Transform each token by its experts, `[B, T, D]`."""
        x_ND = x_BTD.flatten(0, -2)
        chosen_NA, weights_NA = self.router(x_ND)
        y_BTD = self.routed(x_ND, chosen_NA, weights_NA).view_as(x_BTD)
        return y_BTD + self.shared(x_BTD) if hasattr(self, "shared") else y_BTD

    def routed(self, x_ND: Tensor, chosen_NA: Tensor, weights_NA: Tensor) -> Tensor:
        """The weighted sum of each token's experts, `[N, D]`; an expert takes all its tokens at
        once. Experts are counted from the first that is here, where other processes have the rest
        (`model.tensor_parallel`): what those make is not in the sum.
        """
        here = len(self.up)
        if divided := here < self.router.experts.routed:
            chosen_NA = chosen_NA.where((chosen_NA >= 0) & (chosen_NA < here), here)  # come last
        order = chosen_NA.flatten().argsort(stable=True)
        tokens = order // chosen_NA.shape[1]
        x_MD, load_X = x_ND[tokens], loads(chosen_NA, here + divided)[:here]
        if not on_gpu(x_ND):
            made_MD = self._one_by_one(x_MD, load_X)
            order, tokens = order[: len(made_MD)], tokens[: len(made_MD)]
        elif divided:
            theirs_M1 = torch.arange(len(x_MD), device=x_MD.device)[:, None] >= load_X.sum()
            made_MD = self._grouped(x_MD.masked_fill(theirs_M1, 0), load_X)
            made_MD = made_MD.masked_fill(theirs_M1, 0)
        else:
            made_MD = self._grouped(x_MD, load_X)
        weighted_MD = made_MD * weights_NA.flatten()[order, None].to(made_MD.dtype)
        return torch.zeros_like(x_ND, dtype=weighted_MD.dtype).index_add(0, tokens, weighted_MD)

    def _one_by_one(self, x_MD: Tensor, load_X: Tensor) -> Tensor:
        """What experts make of tokens that lie in their order."""
        load = load_X.long().tolist()
        parts = [
            F.linear(activate(self.activation, F.linear(part, self.up[expert])), self.down[expert])
            for expert, part in enumerate(x_MD[: sum(load)].split(load))
            if len(part) or not expert  # without any token, too, the weights have a gradient
        ]
        return torch.cat(parts)

    def _grouped(self, x_MD: Tensor, load_X: Tensor) -> Tensor:
        """The same in one product of all experts each way: a GPU need not say how many tokens each
        has. It leaves rows that are no expert's, and their gradients, as memory has them.
        """
        dtype = half(x_MD.device.type) or x_MD.dtype
        ends_X = load_X.cumsum(0).to(torch.int32)
        up_XDF, down_XFD = (w.to(dtype).transpose(1, 2) for w in (self.up, self.down))
        inner_MF = F.grouped_mm(x_MD.to(dtype), up_XDF, offs=ends_X)
        return F.grouped_mm(activate(self.activation, inner_MF), down_XFD, offs=ends_X)


def loads(chosen_NA: Tensor, experts: int) -> Tensor:
    """How many tokens each expert was chosen for, `[X]`, exact in fp32; no device is waited for."""
    chosen = chosen_NA.flatten()
    load_X = torch.zeros(experts, device=chosen.device)
    return load_X.index_add_(0, chosen, torch.ones_like(chosen, dtype=load_X.dtype))


class Router(nn.Module):
    """Picks each token's experts and their weights, and keeps their loads even.

    The weights come of the scores alone; `bias`, a buffer, only sways which experts are picked.
    In training each forward pass moves it by `balance_bias` towards even loads, as batch norm moves
    its running mean (Wang et al. 2024, algorithm 1; on all devices alike). A pass that is done
    `again`, for its activations, picks what it picked and moves nothing.
    """

    bias: Tensor
    again = False

    def __init__(self, width: int, experts: ExpertConfig) -> None:
        super().__init__()
        self.experts = experts
        self.gate = nn.Linear(width, experts.routed, bias=False)
        if experts.balance_bias:
            self.register_buffer("bias", torch.zeros(experts.routed))
        self.balance_loss: Tensor | None = None
        self._swayed_by: Tensor | None = None

    def forward(self, x_ND: Tensor) -> tuple[Tensor, Tensor]:
        """The experts of each token `[N, A]`, and their weights."""
        experts = self.experts
        # In bf16 the shares would be rounded to two or three digits, and many would tie.
        logits_NX = self.gate(x_ND).float()
        sigmoid = experts.scoring == "sigmoid"
        scores_NX = logits_NX.sigmoid() if sigmoid else logits_NX.softmax(-1)
        # A choice has no gradient; the scores of what was chosen have.
        chosen_NA = self._choose(scores_NX.detach())
        weights_NA = scores_NX.gather(1, chosen_NA)
        if experts.normalise:
            weights_NA = weights_NA / weights_NA.sum(1, keepdim=True)
        if self.training:
            self._balance(scores_NX, chosen_NA)
        return chosen_NA, weights_NA * experts.scale

    def _choose(self, scores_NX: Tensor) -> Tensor:
        """The best `active` experts, from the best groups only when there are groups.

        A group is as good as its best expert (DeepSeek-V2), or with sigmoid scores as its best two.
        """
        experts = self.experts
        if experts.balance_bias:
            if not self.again:
                self._swayed_by = self.bias.clone()
            assert self._swayed_by is not None
            scores_NX = scores_NX + self._swayed_by
        if experts.active_groups < experts.groups:
            scores_NGX = scores_NX.unflatten(1, (experts.groups, -1))
            best = min(2 if experts.scoring == "sigmoid" else 1, scores_NGX.shape[2])
            groups = scores_NGX.topk(best, -1).values.sum(-1).topk(experts.active_groups).indices
            shut_NG = torch.ones_like(scores_NGX[..., 0], dtype=torch.bool).scatter(
                1, groups, False
            )
            scores_NX = scores_NGX.masked_fill(shut_NG[..., None], -torch.inf).flatten(1)
        return scores_NX.topk(experts.active, -1).indices

    def _balance(self, scores_NX: Tensor, chosen_NA: Tensor) -> None:
        """Work out X sum_i f_i P_i, f_i being the share of choices that fell on expert i and P_i
        its mean score (Switch, equation 4; DeepSeek-V3, equation 17, there for each sequence).
        """
        load_X = loads(chosen_NA, scores_NX.shape[1])
        shares_X = (scores_NX / scores_NX.sum(-1, keepdim=True)).mean(0)
        even = len(load_X) * (load_X / load_X.sum()) @ shares_X
        self.balance_loss = self.experts.balance_loss * even
        if self.experts.balance_bias and not self.again:
            if dist.is_initialized():
                dist.all_reduce(load_X)
            self.bias += self.experts.balance_bias * (load_X.mean() - load_X).sign()


Pass = AbstractContextManager[None]


def passes(block: nn.Module) -> tuple[Pass, Pass]:
    """What `torch.utils.checkpoint` puts around the forward pass of a block, and around the one
    that it does again in the backward pass.
    """
    return nullcontext(), _again([m for m in block.modules() if isinstance(m, Router)])


@contextmanager
def _again(routers: Sequence[Router]) -> Iterator[None]:
    for router in routers:
        router.again = True
    try:
        yield
    finally:
        for router in routers:
            router.again = False
