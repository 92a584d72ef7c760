"""Every kind of network writes through its cache what it would write reading everything afresh."""

from dataclasses import replace

import pytest
import torch

from model.config import ExpertConfig, LatentConfig, ModelConfig, RopeScaling
from model.encoder_decoder import EncoderDecoder, build
from model.generation import (
    Ending,
    Sampling,
    beam_search,
    generate,
    reader,
    score,
)
from model.generation.reader import Reader
from model.shapes import from_depth

MHA = from_depth(3, vocab_size=31, context=40, width=32, heads=4)
SEQ2SEQ = from_depth(2, vocab_size=31, context=40, width=32, heads=4, family="encoder_decoder")
LATENT = LatentConfig(kv_rank=6, rope_dim=4, value_dim=5)
EXPERTS = ExpertConfig(routed=4, active=2, width=24, shared=1)
KINDS = {
    "multi-head": MHA,
    "grouped": replace(MHA, kv_heads=2),
    "multi-query": replace(MHA, kv_heads=1),
    "latent": replace(MHA, latent=LATENT),
    "latent, queries too": replace(MHA, latent=replace(LATENT, query_rank=7)),
    "window": replace(MHA, window=3),
    "window, grouped": replace(MHA, window=5, kv_heads=2),
    "soft-cap, window on even layers": replace(
        MHA, kv_heads=2, window=4, window_layers=(True, False), attention_softcap=5.0,
        logit_softcap=3.0, norm_placement="sandwich", activation="geglu", scale_embedding=True,
    ),
    "alibi": replace(MHA, positions="alibi"),
    "alibi, grouped, window": replace(MHA, positions="alibi", kv_heads=2, window=5),
    "relative": replace(MHA, positions="relative", relative_buckets=8, relative_distance=12),
    "learned": replace(MHA, positions="learned", norm="layer", bias="all", activation="gelu"),
    "sinusoidal": replace(MHA, positions="sinusoidal", norm_placement="post"),
    "rope, llama3": replace(MHA, rope_scaling=RopeScaling(factor=4.0, original_context=8)),
    "rope, yarn": replace(
        MHA, rope_scaling=RopeScaling(
            kind="yarn", factor=4.0, original_context=8, low_frequency_factor=1,
            high_frequency_factor=32, attention_factor=1.14,
        ),
    ),
    "rope, linear": replace(MHA, rope_scaling=RopeScaling(kind="linear", factor=3.0)),
    "layers of three kinds": replace(
        MHA, kv_heads=2, window=4, window_layers=(True, False), window_rope_theta=50.0,
        rope_layers=(True, True, False), rotary_dim=4, bias="attention",
    ),
    "norm over all heads, after": replace(MHA, qk_norm="all", kv_heads=2, norm_placement="after"),
    "qk-norm": replace(MHA, qk_norm="head", bias="qkv"),
    "parallel": replace(MHA, residual="parallel", norm="layer"),
    "experts": replace(MHA, experts=EXPERTS),
    "experts, latent": replace(MHA, experts=EXPERTS, latent=LATENT),
    "t5": SEQ2SEQ,
    "t5, grouped, uneven": replace(SEQ2SEQ, encoder_depth=3, kv_heads=2),
    "bart": replace(
        SEQ2SEQ, norm="layer", norm_placement="post", embedding_norm=True, positions="learned",
        position_offset=2, activation="gelu", bias="all", attention_scale=None,
        tie_embeddings=True,
    ),
    "seq2seq, rope, window": replace(SEQ2SEQ, positions="rope", window=4, attention_scale=None),
}  # fmt: skip
PROMPTS = [[1, 2, 3, 4, 5, 6, 7], [8], [9, 3, 9]]
START = [0, 4]
every_kind = pytest.mark.parametrize("config", KINDS.values(), ids=KINDS)


def made(config: ModelConfig):
    torch.manual_seed(1)
    network = build(config).double().eval()
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, mean=0.5 if parameter.ndim == 1 else 0.0, std=0.3)
    return network


@torch.no_grad()
def afresh(network, prompt: list[int], written: list[int]) -> torch.Tensor:
    """Logits `[V]` after a prompt and what was written, without a cache."""
    if isinstance(network, EncoderDecoder):
        hidden = network(torch.tensor([prompt]), torch.tensor([[*START, *written]]))
    else:
        hidden = network(torch.tensor([[*prompt, *written]]))
    return network.logits(hidden)[0, -1]


@every_kind
def test_cached_logits_are_the_recomputed_ones(config):
    network = made(config)
    written = [[], [], []]
    with torch.inference_mode():
        reader = Reader(network, PROMPTS, 14, START)
        logits = reader.read_prompts()
        for step in range(14):
            for row, prompt in enumerate(PROMPTS):
                assert torch.allclose(logits[row], afresh(network, prompt, written[row]), atol=1e-9)
            tokens = logits.argmax(-1) if step % 2 else logits.argmin(-1)
            for row, token in enumerate(tokens.tolist()):
                written[row].append(token)
            logits = reader.read(tokens)


@every_kind
def test_rows_go_on_as_they_were_when_chosen_swapped_and_copied(config):
    network = made(config)
    with torch.inference_mode():
        reader = Reader(network, PROMPTS, 6, START)
        reader.read_prompts()
        reader.read(torch.tensor([5, 6, 7]))
        reader.select([2, 0, 2, 1])
        logits = reader.read_many(torch.tensor([[1, 2], [3, 4], [5, 6], [1, 1]]))[:, -1]
        expected = [
            afresh(network, PROMPTS[2], [7, 1, 2]),
            afresh(network, PROMPTS[0], [5, 3, 4]),
            afresh(network, PROMPTS[2], [7, 5, 6]),
            afresh(network, PROMPTS[1], [6, 1, 1]),
        ]
    assert torch.allclose(logits, torch.stack(expected), atol=1e-9)


@every_kind
def test_greedy_text_is_that_of_full_recomputation(config):
    network = made(config)
    rows = generate(network, PROMPTS, Ending(10), start_ids=START)
    for row, prompt in zip(rows, PROMPTS, strict=True):
        written = []
        for token in row.tokens:
            logits = afresh(network, prompt, written)
            assert token.id == int(logits.argmax())
            assert token.log_prob == pytest.approx(
                float(logits.log_softmax(-1)[token.id]), abs=1e-5
            )
            written.append(token.id)


@pytest.mark.parametrize(
    ("name", "backend"),
    [("window", "eager"), *(pytest.param(n, "inductor", marks=pytest.mark.slow) for n in KINDS)],
)
def test_a_compiled_step_writes_the_same(name, backend, monkeypatch):
    # By default its graph only is made: generating code for it takes a minute of the compiler.
    step = torch.compile(reader._logits, backend=backend, recompile_limit=64)
    steps = []
    monkeypatch.setattr(reader, "_compiled_logits", lambda: steps.append(1) or step)
    network, ending = made(replace(KINDS[name], depth=1)), Ending(6, stop_ids=frozenset({3, 5}))
    eager = generate(network, PROMPTS, ending, start_ids=START)
    for row, same in zip(
        eager, generate(network, PROMPTS, ending, start_ids=START, compiled=True), strict=True
    ):
        assert row.ids == same.ids
        assert row.log_prob == pytest.approx(same.log_prob, abs=1e-5)
    assert steps


@pytest.mark.parametrize("name", ["t5", "bart", "latent", "window"])
def test_every_decoding_works_for_every_family(name):
    network = made(KINDS[name])
    greedy = generate(network, PROMPTS, Ending(6), start_ids=START)
    beam = beam_search(network, PROMPTS[0], Ending(6), beams=1, start_ids=START)
    assert beam.ids == greedy[0].ids
    wide = beam_search(network, PROMPTS[0], Ending(6), beams=31, start_ids=START)
    assert wide.log_prob >= beam.log_prob - 1e-9
    (((total, _),),) = score(network, [(PROMPTS[0], [wide.ids])], START)
    assert total == pytest.approx(wide.log_prob, abs=1e-4)
    drawn = generate(network, PROMPTS, Ending(6), Sampling(), samples=2, start_ids=START)
    alone = generate(network, PROMPTS[1:2], Ending(6), Sampling(), seeds=[3], start_ids=START)
    assert drawn[3].ids == alone[0].ids


def test_an_encoder_decoder_needs_a_start():
    with pytest.raises(ValueError, match="an encoder-decoder needs start_ids"):
        generate(made(SEQ2SEQ), [[1]], Ending(3))
