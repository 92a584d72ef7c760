"""Recurrent networks: the written-out steps are PyTorch's kernels, documents are read apart."""

from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from model import hub
from model.cache import Cache
from model.cells import KERNELS, stepwise
from model.config import ModelConfig, RecurrentConfig
from model.encoder_decoder import build
from model.flops import flops_per_token, trained_parameter_count
from model.generation import Ending, beam_search, generate
from model.hub_config import obstacle
from model.memory import Memory
from model.objectives.two_way import BidirectionalLM
from model.optim import parameter_groups
from model.recurrent import RecurrentLayer
from model.runs import lay_out
from model.shapes import from_depth

CELLS = ("rnn", "gru", "lstm")
every_cell = pytest.mark.parametrize("cell", CELLS)
every_attention = pytest.mark.parametrize("attention", [None, "additive", "dot", "general"])


def shape(cell: str, family: str = "decoder", depth: int = 2, **more) -> ModelConfig:
    recurrent = RecurrentConfig(cell=cell, **more)
    size = {"vocab_size": 40, "context": 64, "width": 16}
    return from_depth(depth, family=family, recurrent=recurrent, **size)


def network(config: ModelConfig):
    torch.manual_seed(0)
    return build(config).eval()


def ids(*size: int) -> torch.Tensor:
    return torch.randint(0, 40, size, generator=torch.Generator().manual_seed(1))


@every_cell
def test_steps_written_out_are_those_of_the_kernel_and_so_are_their_gradients(cell):
    torch.manual_seed(0)
    kernel = KERNELS[cell](6, 5)
    x = torch.randn(3, 9, 6, requires_grad=True)
    theirs, _ = kernel(x.transpose(0, 1))
    ours = stepwise(cell, kernel, x, torch.zeros(3, 1 + (cell == "lstm"), 5))[:, 0]
    torch.testing.assert_close(ours, theirs.transpose(0, 1), atol=1e-6, rtol=0)
    inputs = (x, *kernel.parameters())
    wanted = torch.autograd.grad(theirs.transpose(0, 1).square().sum(), inputs, retain_graph=True)
    for found, right in zip(torch.autograd.grad(ours.square().sum(), inputs), wanted, strict=True):
        torch.testing.assert_close(found, right, atol=1e-5, rtol=1e-5)


@every_cell
@pytest.mark.parametrize("family", ["decoder", "encoder"])
def test_a_stack_is_pytorchs_stacked_kernel(cell, family):
    ours, both = network(shape(cell, family, depth=3)), family == "encoder"
    theirs = KERNELS[cell](16, 16 >> both, 3, batch_first=True, bidirectional=both)
    state = {
        f"{part}_l{n}{'_reverse' * way}": getattr(kernel, f"{part}_l0")
        for n, block in enumerate(ours.blocks)
        for way, kernel in enumerate(block.kernels)
        for part in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    }
    theirs.load_state_dict(state)
    tokens = ids(2, 30)
    torch.testing.assert_close(ours(tokens), theirs(ours.embed(tokens))[0], atol=1e-6, rtol=0)


@pytest.mark.parametrize("family", ["decoder", "encoder"])
@every_cell
def test_a_document_of_a_packed_row_is_read_as_if_it_were_alone(cell, family):
    ours, tokens = network(shape(cell, family)), ids(2, 150)
    documents = torch.tensor([[1] * 3 + [2] * 97 + [3] * 50, [1] * 140 + [0] * 10])
    packed = ours(tokens, documents)
    for row, part in ((0, slice(0, 3)), (0, slice(3, 100)), (0, slice(100, 150)), (1, slice(140))):
        alone = ours(tokens[row : row + 1, part])
        torch.testing.assert_close(packed[row : row + 1, part], alone, atol=1e-5, rtol=1e-5)


def test_runs_are_the_documents_and_read_no_more_than_they_must():
    begins = torch.zeros(2, 8, dtype=torch.bool)
    begins[0, 5] = begins[1, [1, 2]] = True
    runs = lay_out(begins, steps=3)
    assert [tuple(place.shape) for place, _ in runs.windows] == [(3, 5), (3, 2)]
    x = torch.arange(16.0).view(2, 8, 1)
    seen = runs.read(lambda part, state: (part + state[None, :, 0], state), x, torch.ones(2, 1, 1))
    torch.testing.assert_close(seen, x + 1)


@pytest.mark.parametrize("bptt", [None, 8])
def test_truncated_gradients_end_at_the_windows_edge_and_states_do_not(bptt):
    """The state that a window begins with is that of the whole text; what made it has no part in
    the gradient.
    """
    whole, cut = network(shape("lstm")), network(shape("lstm", bptt=bptt))
    tokens = ids(1, 24)
    torch.testing.assert_close(whole(tokens), cut.train()(tokens))
    embedded = cut.embed(tokens).detach().requires_grad_()
    cut.run(embedded)[0, 20].sum().backward()
    reached = embedded.grad.norm(dim=-1)[0] > 0
    assert reached.tolist() == [n <= 20 and (bptt is None or n >= 16) for n in range(24)]


@every_cell
def test_what_is_read_token_by_token_is_what_is_read_at_once(cell):
    ours, tokens = network(shape(cell)), ids(2, 12)
    documents = torch.tensor([[0, 0, 0] + [1] * 9, [1] * 12])  # one is padded on its left
    cache = Cache(ours.config)
    parts = [ours(tokens[:, :7], documents[:, :7], cache=cache)]
    parts += [ours(tokens[:, t, None], cache=cache) for t in range(7, 12)]
    torch.testing.assert_close(torch.cat(parts, 1), ours(tokens, documents), atol=1e-6, rtol=0)


@every_cell
def test_rows_of_any_lengths_are_written_together_as_alone(cell):
    """Through the engine: chunks of prompts, shared beginnings, slots."""
    ours = network(shape(cell))
    shared = list(range(1, 21))
    prompts = [[1, 2, 3], [*shared, 7], [*shared, 8, 9], [4]]
    ending = Ending(6, frozenset())
    alone = [generate(ours, [prompt], ending)[0].ids for prompt in prompts]
    assert [one.ids for one in generate(ours, prompts, ending)] == alone
    first = beam_search(ours, prompts[0], ending, beams=1).ids
    assert first == alone[0]


@every_attention
@every_cell
def test_an_encoder_decoder_writes_step_by_step_what_it_scores_at_once(cell, attention):
    ours = network(shape(cell, "encoder_decoder", attention=attention))
    source, target = ids(3, 11), ids(3, 9)
    documents = (torch.arange(11) < torch.tensor([[11], [6], [1]])).long()
    at_once = ours(source, target, documents)
    memory, cache = ours.encode(source, documents), Cache(ours.config)
    steps = [ours.decode(target[:, t, None], memory, cache=cache) for t in range(9)]
    torch.testing.assert_close(torch.cat(steps, 1), at_once, atol=1e-5, rtol=1e-5)
    alone = ours(source[1:2, :6], target[1:2])
    torch.testing.assert_close(at_once[1:2], alone, atol=1e-5, rtol=1e-5)


def test_bahdanaus_decoder_is_the_papers_equations():
    """s_i = f(s_(i-1), [y_(i-1); c_i]), c_i = sum_j a_ij h_j, a = softmax(v' tanh(W s + U h))."""
    ours = network(shape("gru", "encoder_decoder", depth=1, attention="additive"))
    (block,) = ours.decoder.blocks
    source, target = ids(1, 7), ids(1, 3)
    memory = ours.encode(source)
    h, seen = memory.states_BSD[0], block.alignment
    state = torch.tanh(block.bridge(torch.cat((h[-1, :8], h[0, 8:]))))
    cell = nn.GRUCell(32, 16)
    cell.load_state_dict({n[:-3]: p for n, p in block.kernels[0].named_parameters()})
    made = []
    for y in ours.embed(target)[0]:
        scores = seen.score(torch.tanh(seen.query(state) + seen.key(h)))[:, 0]
        context = scores.softmax(0) @ h
        state = cell(torch.cat((y, context))[None], state[None])[0]
        made.append(torch.tanh(block.join(torch.cat((state, context, y)))))
    torch.testing.assert_close(ours.decode(target, memory)[0], torch.stack(made))


@pytest.mark.parametrize("attention", ["dot", "general"])
def test_luongs_attention_joins_context_and_state(attention):
    ours = network(shape("lstm", "encoder_decoder", attention=attention))
    memory = Memory(torch.randn(2, 5, 16))
    top, states, kept = ours.decoder.blocks[-1], memory.states_BSD, []
    top.alignment.register_forward_hook(lambda _, given, out: kept.append((given[0], out[1])))
    made = ours.decode(ids(2, 4), memory)
    query, weights = kept[0]
    keys = states if attention == "dot" else top.alignment.key(states)
    torch.testing.assert_close(weights, (query @ keys.mT).softmax(-1))
    joined = top.join(torch.cat((weights @ states, query), -1))
    torch.testing.assert_close(made, torch.tanh(joined))


def test_beam_search_finds_the_likeliest_of_all_texts():
    """With as many beams as there are tokens nothing of two tokens is lost."""
    ours = network(shape("gru", "encoder_decoder", attention="additive"))
    source, start = [3, 4, 5], 1
    memory = ours.encode(torch.tensor([source]))
    pairs = torch.cartesian_prod(torch.arange(40), torch.arange(40))
    read = torch.cat((torch.full((1600, 1), start), pairs[:, :1]), 1)
    logs = ours.logits(ours.decode(read, memory.select(torch.zeros(1600, dtype=torch.long))))
    scores = logs.log_softmax(-1).gather(2, pairs[:, :, None]).sum((1, 2))
    found = beam_search(ours, source, Ending(2, frozenset()), beams=40, start_ids=[start])
    assert found.ids == pairs[scores.argmax()].tolist()


CONFIGS = {
    **{cell: shape(cell) for cell in CELLS},
    **{f"{cell}-both-ways": shape(cell, "encoder") for cell in CELLS},
    "elmo": shape("lstm", "encoder", apart=True),
    "tied": replace(shape("gru"), tie_embeddings=True),
    **{
        f"{cell}-{attention}": shape(cell, "encoder_decoder", attention=attention)
        for cell in CELLS
        for attention in (None, "additive", "dot", "general")
    },
}


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_parameters_are_counted_and_come_back_from_a_folder(config, tmp_path):
    ours = network(config)
    assert trained_parameter_count(config) == sum(p.numel() for p in ours.parameters())
    hub.save(tmp_path, ours)
    again = hub.load(tmp_path)
    assert again.config == config
    assert all(p.equal(q) for p, q in zip(ours.parameters(), again.parameters(), strict=True))
    assert "model.recurrent is" in (obstacle(config) or "")


@pytest.mark.parametrize("name", [*CELLS, *(n for n in CONFIGS if n.endswith(("dot", "itive")))])
def test_the_steps_do_the_counted_operations(name):
    config = CONFIGS[name]
    ours, tokens = network(config), torch.zeros(1, 40, dtype=torch.long)
    with FlopCounterMode(display=False) as counter:
        if config.family == "decoder":
            ours.logits(ours(tokens, cache=Cache(config)))
            counted = flops_per_token(config, 40)
        else:
            memory = Memory(torch.zeros(1, 40, 16))
            ours.logits(ours.decode(tokens, memory, cache=Cache(config)))
            alone = flops_per_token(replace(config, encoder_depth=1)) - flops_per_token(
                replace(config, encoder_depth=2)
            )  # of one layer of the encoder, whose kernel is not counted
            bridges = config.depth * 6 * 16 * 16 * (1 + name.startswith("lstm")) / 40
            counted = flops_per_token(config, 40) + 2 * alone + bridges
    assert counter.get_total_flops() * 3 == pytest.approx(counted * 40)


def test_each_direction_of_elmo_knows_one_side_only():
    ours, tokens = network(shape("lstm", "encoder", apart=True)), ids(1, 20)
    other = tokens.clone()
    other[0, 10] = (other[0, 10] + 1) % 40
    changed = (ours(tokens) != ours(other))[0]
    assert changed[:, :8].any(1).tolist() == [n >= 10 for n in range(20)]
    assert changed[:, 8:].any(1).tolist() == [n <= 10 for n in range(20)]


def test_both_directions_learn_and_are_scored():
    ours = BidirectionalLM(network(shape("lstm", "encoder", apart=True)))
    tokens, documents = ids(1, 6), torch.tensor([[1, 1, 1, 1, 2, 2]])
    positions = torch.tensor([[0, 1, 2, 3, 0, 1]])
    targets = torch.tensor([[tokens[0, 1], tokens[0, 2], tokens[0, 3], -100, tokens[0, 5], -100]])
    batch = {"inputs": tokens, "targets": targets, "documents": documents, "positions": positions}
    scored, answers = ours.scored(**batch), ours.answers(**batch)
    # Not the class token, with which every document begins.
    assert answers["backward_tokens"].tolist() == [tokens[0, 1], tokens[0, 2]]
    assert answers["tokens"].tolist() == targets[targets >= 0].tolist()
    means = [one.losses.mean() for one in scored.values()]
    torch.testing.assert_close(ours(**batch), sum(means))
    assert {n: one.targets.tolist() for n, one in scored.items()} == {
        n: answer.tolist() for n, answer in answers.items()
    }


def test_kernels_are_matrices_of_the_blocks_for_an_optimizer():
    ours = network(shape("lstm", "encoder_decoder", attention="additive"))
    kinds = {g["name"]: set(map(id, g["params"])) for g in parameter_groups(ours, 1e-3, 0.1)}
    inside = {
        id(p) for m in ours.modules() if isinstance(m, RecurrentLayer) for p in m.parameters()
        if p.ndim > 1
    }  # fmt: skip
    assert kinds["matrices"] == inside
    assert kinds["embeddings"] == {id(ours.embedding.weight)}


@pytest.mark.parametrize(
    ("family", "more", "said"),
    [
        ("decoder", {"attention": "dot"}, "recurrent.attention"),
        ("encoder_decoder", {"bptt": 4}, "recurrent.bptt"),
        ("decoder", {"apart": True}, "recurrent.apart"),
        ("decoder", {"bptt": 0}, "recurrent.bptt"),
        ("decoder", {"attention": "cosine"}, "additive | dot | general | None"),
    ],
)
def test_what_cannot_be_is_refused_by_name(family, more, said):
    with pytest.raises(ValueError, match=said.replace("|", r"\|")):
        shape("gru", family, **more)


def test_heads_are_refused():
    recurrent = RecurrentConfig(cell="gru")
    with pytest.raises(ValueError, match=r"model\.heads is 2"):
        from_depth(2, vocab_size=9, context=8, heads=2, recurrent=recurrent)
