"""The engine: whatever comes together, each request is answered as if it were alone."""

import math
from collections.abc import Sequence
from typing import Any

import pytest
import torch

from model.config import LatentConfig, ModelConfig
from model.generation import GREEDY, Ending, Sampling, drafts, stream
from model.generation.ending import Token
from model.generation.engine import Capacity, Engine, Full, complete
from model.generation.packed import Half, packed
from model.generation.request import Penalties, Request
from model.ragged import Slots
from model.transformer import Transformer

SIZES = {
    "vocab_size": 97,
    "width": 32,
    "depth": 2,
    "heads": 4,
    "kv_heads": 2,
    "head_dim": 8,
    "ffn_width": 48,
}
LATENT = LatentConfig(kv_rank=8, query_rank=None, rope_dim=4, value_dim=8)
SHAPES: dict[str, dict[str, Any]] = {
    "rope": {},
    "learned": {"positions": "learned"},
    "alibi": {"positions": "alibi"},
    "relative": {"positions": "relative"},
    "window": {"window": 5},
    "softcap": {"attention_softcap": 5.0},
    "latent": {"latent": LATENT, "kv_heads": 4, "head_dim": 12},
}


def network_of(**shape: Any) -> Transformer:
    torch.manual_seed(3)
    config = ModelConfig(context=96, **(SIZES | shape))
    network = Transformer(config).eval()
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.normal_(std=0.3)
    return network


@pytest.fixture(scope="module")
def network() -> Transformer:
    return network_of()


def by_reader(network: Transformer, prompt: Sequence[int], *how: Any, **more: Any) -> list[Token]:
    """What follows a prompt, without the engine."""
    return [token for (token,) in stream(network, [prompt], *how, **more) if token is not None]


def prompts(count: int) -> list[list[int]]:
    numbers = torch.Generator().manual_seed(5)
    return [torch.randint(97, (1 + 5 * i % 31,), generator=numbers).tolist() for i in range(count)]


class Answer:
    """What became of a request."""

    def __init__(self) -> None:
        self.tokens: list[Token] = []
        self.prompt: list[Token] = []
        self.reason = ""

    def request(self, prompt: Sequence[int], most: int = 12, **more: Any) -> Request:
        def on_token(token: Token) -> bool:
            self.tokens.append(token)
            return False

        return Request(
            prompt=prompt,
            max_tokens=most,
            on_token=on_token,
            on_end=lambda reason: setattr(self, "reason", reason),
            **more,
        )


@pytest.mark.parametrize("shape", SHAPES)
def test_rows_end_to_end_are_scored_as_alone(shape: str) -> None:
    network = network_of(**SHAPES[shape])
    rows = [row for row in prompts(6) if len(row) > 3]
    slots = Slots(network.config)
    slots.lay_out(len(rows), max(map(len, rows)))
    parts: list[list[torch.Tensor]] = [[] for _ in rows]
    with torch.inference_mode():
        for first, last in ((0, 2), (2, 3), (3, None)):
            new = [row[first:last] for row in rows]
            counts = [len(ids) for ids in new]
            ragged = slots.batch(list(enumerate(counts)), torch.device("cpu"))
            inputs = torch.tensor([[id_ for ids in new for id_ in ids]])
            hidden = network(inputs, None, ragged.positions_1N, ragged)[0]
            for part, states in zip(parts, hidden.split(counts), strict=True):
                part.append(states)
            ragged.done()
        for row, part in zip(rows, parts, strict=True):
            alone = network(torch.tensor([row]))[0]
            torch.testing.assert_close(torch.cat(part), alone, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("sampling", [GREEDY, Sampling(temperature=0.9, top_p=0.9)])
def test_answers_are_those_of_the_reader(network: Transformer, sampling: Sampling) -> None:
    engine = Engine(network, Capacity(rows=3, chunk=8))
    answers = [Answer() for _ in range(7)]
    stops = frozenset(range(10))
    asked = [
        answer.request(prompt, sampling=sampling, seed=number, stop_ids=stops, likeliest=number % 3)
        for number, (answer, prompt) in enumerate(zip(answers, prompts(7), strict=True))
    ]
    complete(engine, asked)
    for number, (answer, prompt) in enumerate(zip(answers, prompts(7), strict=True)):
        alone = by_reader(
            network, prompt, Ending(12, stops), sampling, seeds=[number], likeliest=number % 3
        )
        assert [t.id for t in answer.tokens] == [t.id for t in alone]
        assert answer.reason == ("length" if len(alone) == 12 else "stop")
        for ours, theirs in zip(answer.tokens, alone, strict=True):
            assert ours.log_prob == pytest.approx(theirs.log_prob, abs=1e-4)
            assert [i for i, _ in ours.likeliest] == [i for i, _ in theirs.likeliest]
    assert not engine.rows


def test_a_beginning_that_was_read_is_not_read_again(
    network: Transformer, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []
    honest = network.forward

    def counted(inputs: torch.Tensor, *more: Any) -> torch.Tensor:
        read.append(inputs.shape[1])
        return honest(inputs, *more)

    monkeypatch.setattr(network, "forward", counted)
    engine, first = Engine(network), Answer()
    said = list(range(40, 80))
    complete(engine, [first.request(said, most=4)])
    read.clear()
    further = [*said, *(t.id for t in first.tokens), 5]
    again, beside = Answer(), Answer()
    complete(engine, [again.request(further, most=1), beside.request([*said, 7], most=1)])
    assert sum(read) == (1 + 1) + 1, "of the first, its last token was chosen and never read"
    assert again.tokens[0].id == by_reader(network, further, Ending(1))[0].id


def test_equal_prompts_at_once_are_read_once(
    network: Transformer, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []
    honest = network.forward
    monkeypatch.setattr(
        network, "forward", lambda x, *more: (read.append(x.shape[1]), honest(x, *more))[1]
    )
    engine, answers = Engine(network, Capacity(chunk=16)), [Answer() for _ in range(4)]
    hot = Sampling(temperature=1.5)
    prompt = list(range(30, 70))
    complete(
        engine,
        [a.request(prompt, most=3, sampling=hot, seed=i) for i, a in enumerate(answers)],
    )
    assert sum(read) < 40 + 4 * 4
    assert len({tuple(t.id for t in a.tokens) for a in answers}) > 1


def test_the_tokens_of_a_prompt_are_scored(network: Transformer) -> None:
    engine, answer, other = Engine(network, Capacity(chunk=7)), Answer(), Answer()
    prompt = prompts(7)[6]
    assert len(prompt) > 14
    asked = answer.request(prompt, most=0, likeliest=2, on_prompt=answer.prompt.extend)
    complete(engine, [other.request(prompts(4)[3]), asked])
    with torch.inference_mode():
        scores = network.logits(network(torch.tensor([prompt])))[0].log_softmax(-1)
    assert [t.id for t in answer.prompt] == prompt and not answer.tokens
    assert answer.reason == "length" and math.isnan(answer.prompt[0].log_prob)
    for place, token in enumerate(answer.prompt[1:]):
        assert token.log_prob == pytest.approx(float(scores[place, token.id]), abs=1e-4)
        assert [i for i, _ in token.likeliest] == scores[place].topk(2).indices.tolist()


def test_bias_and_penalties_change_what_is_chosen_and_not_what_is_told(
    network: Transformer,
) -> None:
    prompt, plain, banned, fond = [5, 6, 7], Answer(), Answer(), Answer()
    complete(Engine(network), [plain.request(prompt, most=6)])
    first = plain.tokens[0]
    complete(Engine(network), [banned.request(prompt, most=6, bias={first.id: -100.0})])
    assert first.id not in [t.id for t in banned.tokens]
    complete(Engine(network), [fond.request(prompt, most=6, bias={50: 100.0})])
    assert {t.id for t in fond.tokens} == {50} and fond.tokens[0].log_prob < 0
    strict = Answer()
    penalties = Penalties(presence=2.0, frequency=2.0, repetition=1e6)
    complete(Engine(network), [strict.request(prompt, most=20, penalties=penalties)])
    assert len({t.id for t in strict.tokens}) == 20


def test_who_goes_is_answered_no_further(network: Transformer) -> None:
    engine = Engine(network, Capacity(rows=1))
    first, second = Answer(), Answer()
    asked, late = first.request([5], most=50), second.request([6], most=2)
    engine.submit(asked)
    engine.submit(late)
    engine.step()
    engine.cancel(asked)
    while engine.step():
        pass
    assert (first.reason, len(first.tokens)) == ("cancelled", 1)
    assert (second.reason, len(second.tokens)) == ("length", 2)


def test_what_there_is_no_room_for_is_refused(network: Transformer) -> None:
    engine = Engine(network, Capacity(waiting=1))
    engine.submit(Answer().request([5]))
    with pytest.raises(Full, match="1 requests wait"):
        engine.submit(Answer().request([5]))
    with pytest.raises(ValueError, match="from 1 to 96"):
        engine.submit(Answer().request([5] * 90))
    with pytest.raises(ValueError, match="only a decoder"):
        Engine(network_of(family="encoder"))


def test_caches_stay_within_their_capacity(network: Transformer) -> None:
    engine = Engine(network, Capacity(tokens=100))
    answers = [Answer() for _ in range(9)]
    hold = []
    for answer, prompt in zip(answers, prompts(9), strict=True):
        engine.submit(answer.request([*prompt, *range(20)], most=8))
    while engine.step():
        hold.append(sum(engine.slots.lengths))
    assert all(answer.reason == "length" for answer in answers)
    assert max(hold) <= 100


def test_slots_are_laid_out_anew_for_longer_rows_and_more_of_them(network: Transformer) -> None:
    engine, answers = Engine(network, Capacity(rows=20)), [Answer() for _ in range(30)]
    read = [[10 + i, *range(20 + i, 22 + 2 * i)] for i in range(30)]
    for answer, prompt in zip(answers[:1], read, strict=False):
        engine.submit(answer.request(prompt, most=3))
    engine.step()
    small = len(engine.slots.lengths), engine.slots.room
    complete(engine, [a.request(ids, most=3) for a, ids in zip(answers[1:], read[1:], strict=True)])
    assert small < (len(engine.slots.lengths), engine.slots.room) == (20, 64)
    for answer, prompt in zip(answers, read, strict=True):
        alone = by_reader(network, prompt, Ending(3))
        assert [t.id for t in answer.tokens] == [t.id for t in alone]


def test_matrices_in_bf16_are_laid_out_too() -> None:
    if not torch.ops.mkldnn._is_mkldnn_bf16_supported():
        pytest.skip("this CPU multiplies no matrices in bf16")
    network = network_of(width=512, depth=1, heads=8, kv_heads=8, head_dim=64).bfloat16()
    x_ND = torch.randn(6, 512, dtype=torch.bfloat16)
    with torch.inference_mode():
        qkv = packed(network).blocks[0].attention.inner.qkv
        told = qkv(x_ND)
        assert qkv.blocks is not None
        plain = network.blocks[0].attention.inner.qkv(x_ND)
    assert torch.allclose(told.float(), plain.float(), atol=1e-2, rtol=2e-2)


def test_matrices_laid_out_for_few_rows_give_the_same() -> None:
    network = network_of(width=512, depth=1, heads=8, kv_heads=8, head_dim=64)
    told = []
    for packing in (False, True):
        engine, answers = Engine(network, Capacity(packing=packing)), [Answer() for _ in range(6)]
        asked = zip(answers, prompts(6), strict=True)
        complete(engine, [answer.request(prompt, most=4) for answer, prompt in asked])
        told.append([token for answer in answers for token in answer.tokens])
        qkv = engine.network.blocks[0].attention.inner.qkv
        assert (type(qkv) is torch.nn.Linear) is not packing
    assert qkv.blocks is not None and qkv.weight is network.blocks[0].attention.inner.qkv.weight
    assert [token.id for token in told[0]] == [token.id for token in told[1]]
    for plain, quick in zip(*told, strict=True):
        assert quick.log_prob == pytest.approx(plain.log_prob, abs=1e-4)


def test_matrices_in_fp16_give_nearly_the_same_in_fp32() -> None:
    network = network_of(width=512, depth=1, heads=8, kv_heads=8, head_dim=64, vocab_size=600)
    small = packed(network, Half)
    ids = torch.tensor([[5, 6, 7]])
    with torch.inference_mode():
        plain, told = network.logits(network(ids)), small.logits(small(ids))
        again = packed(small)
        assert again.logits(again(ids)).equal(told), "laid out once, it stays"
    assert type(small.blocks[0].attention.inner.qkv) is Half and told.dtype == torch.float32
    error = float((told - plain).norm() / plain.norm())
    assert 1e-6 < error < 2e-3
    kept = sum(parameter.numel() for parameter in small.parameters())
    assert kept < sum(parameter.numel() for parameter in network.parameters()) / 2


@pytest.fixture
def guessing(monkeypatch: pytest.MonkeyPatch) -> Transformer:
    """A network whose next tokens are guessed from the first step on."""
    monkeypatch.setattr(drafts, "LEAST", 1)
    monkeypatch.setattr(drafts, "BEGIN", 0)
    return network_of(width=512, heads=8, kv_heads=8, head_dim=64)


@pytest.mark.parametrize("sampling", [GREEDY, Sampling(temperature=0.9)])
@pytest.mark.parametrize("right", [True, False])
def test_what_is_guessed_changes_the_steps_and_not_the_answers(
    guessing: Transformer, sampling: Sampling, right: bool
) -> None:
    engine, answers = Engine(guessing, Capacity(rows=3)), [Answer() for _ in range(3)]
    if not right:
        engine.drafts.quick = network_of(width=512, heads=8, kv_heads=8, head_dim=64)
        with torch.no_grad():
            engine.drafts.quick.embedding.weight.mul_(-1)
    stops, steps = frozenset({3, 4}), 0
    for number, (answer, prompt) in enumerate(zip(answers, prompts(3), strict=True)):
        asked = answer.request(prompt, 20, sampling=sampling, seed=number, stop_ids=stops)
        engine.submit(asked)
    while engine.step():
        steps += 1
    for number, (answer, prompt) in enumerate(zip(answers, prompts(3), strict=True)):
        alone = by_reader(guessing, prompt, Ending(20, stops), sampling, seeds=[number])
        assert [t.id for t in answer.tokens] == [t.id for t in alone]
        for ours, theirs in zip(answer.tokens, alone, strict=True):
            assert ours.log_prob == pytest.approx(theirs.log_prob, abs=1e-3)
    longest = max(len(answer.tokens) for answer in answers)
    assert steps < longest / 2 if right else steps >= longest


def test_after_guesses_a_conversation_goes_on_from_what_was_read(guessing: Transformer) -> None:
    engine, first, second = Engine(guessing), Answer(), Answer()
    said = list(range(20, 50))
    complete(engine, [first.request(said, 9)])
    further = [*said, *(t.id for t in first.tokens), 5]
    complete(engine, [second.request(further, 9)])
    alone = by_reader(guessing, further, Ending(9))
    assert [t.id for t in second.tokens] == [t.id for t in alone]
    assert engine.read == len(said) + 2
