"""Predicting further tokens: the equations written out, and which targets they have."""

from dataclasses import replace

import torch

from model.multi_token import further_targets
from model.shapes import from_depth
from model.transformer import Transformer

CONFIG = replace(
    from_depth(2, vocab_size=61, context=24, width=32, heads=4),
    multi_token=2, scale_embedding=True, window=5, window_layers=(True, False),
)  # fmt: skip


def made() -> Transformer:
    torch.manual_seed(0)
    network = Transformer(CONFIG).double().eval()
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, mean=0.5 if parameter.ndim == 1 else 0.0, std=0.2)
    return network


def ids(*shape: int) -> torch.Tensor:
    return torch.randint(0, 61, shape, generator=torch.Generator().manual_seed(3))


def test_each_depth_joins_the_state_with_a_later_token():
    network, inputs = made(), ids(1, 8)
    hidden = network(inputs)
    found = list(network.further(hidden, inputs))
    assert len(found) == 2
    state = hidden
    for k, (module, states) in enumerate(zip(network.multi_token, found, strict=True), 1):
        tokens = network.embedding.weight[inputs[:, k:]] * 32**0.5
        state = state[:, : tokens.shape[1]]
        joined = torch.cat((module.hidden_norm(state), module.token_norm(tokens)), -1)
        context = network.context(joined, None, torch.arange(8 - k)[None])
        state = module.block(joined @ module.join.weight.T, context)
        assert torch.allclose(states[:, : 8 - k], module.norm(state), atol=1e-5)


def test_further_states_keep_to_their_document():
    network, first, second = made(), ids(1, 5), ids(1, 7)
    inputs = torch.cat((first, second), 1)
    documents = torch.tensor([[1] * 5 + [2] * 7])
    positions = torch.tensor([[*range(5), *range(7)]])
    packed = network.further(network(inputs, documents, positions), inputs, documents, positions)
    alone = [network.further(network(part), part) for part in (first, second)]
    for k, (both, one, two) in enumerate(zip(packed, *alone, strict=True), 1):
        assert torch.allclose(both[:, : 5 - k], one[:, : 5 - k], atol=1e-5)
        assert torch.allclose(both[:, 5 : 12 - k], two[:, : 7 - k], atol=1e-5)


def test_a_further_target_is_the_token_after_and_ends_with_the_document():
    targets = torch.tensor([[11, 12, 13, 21, 22, 23, 24]])
    documents = torch.tensor([[1, 1, 1, 2, 2, 2, 2]])
    assert further_targets(targets, None, 1, -1).tolist() == [[12, 13, 21, 22, 23, 24, -1]]
    assert further_targets(targets, documents, 1, -1).tolist() == [[12, 13, -1, 22, 23, 24, -1]]
    assert further_targets(targets, documents, 2, -1).tolist() == [[13, -1, -1, 23, 24, -1, -1]]


def test_embedding_and_head_are_shared():
    names = {name for name, _ in made().named_parameters() if name.startswith("multi_token.1.")}
    tops = {name.split(".")[2] for name in names}
    assert tops == {"hidden_norm", "token_norm", "join", "block", "norm"}
