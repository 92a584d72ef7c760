"""evaluate, answers and judge on a tiny untrained model."""

import json
import math
from typing import Any

import numpy as np
import pytest

from cluster.artifact import Artifact
from cluster.errors import BadInput
from cluster.placement import Placement
from cluster.stage import build
from cluster.store import Store
from tasks.evaluation.answers import AnswerSettings, answers
from tasks.evaluation.heldout.settings import HeldoutSettings
from tasks.evaluation.heldout.stage import evaluate
from tasks.evaluation.heldout.witten_bell import witten_bell_bits_per_byte
from tasks.evaluation.judging.criteria import CRITERIA
from tasks.evaluation.judging.local import LocalJudge, shares, softmax
from tasks.evaluation.judging.questions import Distribution, Question
from tasks.evaluation.judging.settings import JudgeSettings
from tasks.evaluation.judging.stage import judge
from tasks.evaluation.judging.steps import StepsSettings, write_steps
from tasks.tokens.encoder import load
from tasks.tokens.loader import Loader


def rows_of(artifact: Artifact, name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in artifact.file(name).read_text().splitlines()]


@pytest.fixture(scope="module")
def answered(tiny: Any) -> Artifact:
    settings = AnswerSettings(rows=4, max_tokens=12, samples=2, sampled_rows=1)
    return build(answers, tiny.store, instruct=tiny.instruct, settings=settings, seed=0)


def test_every_heldout_token_is_predicted_once(tiny: Any) -> None:
    found = build(
        evaluate, tiny.store, model=tiny.model, shards=tiny.shards, settings=HeldoutSettings()
    ).manifest
    heldout = tiny.shards.manifest.facts["heldout"]
    first = Loader(tiny.shards, "heldout", 32, 0).stream.read(np.array([0]), 1)[0].tolist()
    encoder = load(tiny.tokenizer)
    assert found.facts["tokens"] == heldout["tokens"] - 1  # nothing precedes the first
    assert found.facts["bytes"] == heldout["bytes"] - len(encoder.decode_bytes(first))
    metrics = found.metrics
    # An untrained model knows little more than the size of its vocabulary.
    assert metrics["heldout_loss"] == pytest.approx(math.log(encoder.vocab_size), rel=0.1)
    assert metrics["perplexity"] == pytest.approx(math.exp(metrics["heldout_loss"]))
    nats = metrics["heldout_loss"] * found.facts["tokens"]
    bits_per_byte = nats / math.log(2) / found.facts["bytes"]
    assert metrics["bits_per_byte"] == pytest.approx(bits_per_byte)


def test_the_baseline_learns_from_the_text_the_model_saw(tiny: Any) -> None:
    from tasks.evaluation.heldout.loss import load_subject, score_heldout, seen_text

    encoder = load(tiny.tokenizer)
    seen = seen_text(tiny.model, tiny.shards, 1 << 20)
    assert seen == Loader(tiny.shards, "train", 32, 3).bytes_seen(20, encoder)
    assert 0 < len(seen_text(tiny.model, tiny.shards, 100)) < 400 < len(seen)
    text = score_heldout(load_subject(tiny.model, tiny.shards), 10**6).text
    found = build(
        evaluate, tiny.store, model=tiny.model, shards=tiny.shards, settings=HeldoutSettings()
    ).manifest
    expected = witten_bell_bits_per_byte(seen, text, order=3)
    assert found.metrics["bits_per_byte_witten_bell"] == expected
    assert found.facts["witten_bell"] == {"order": 3, "trained_on_bytes": len(seen)}
    assert expected < found.metrics["bits_per_byte"]


def test_the_unigram_baseline_is_counted_on_the_targets_seen(tiny: Any) -> None:
    from tasks.evaluation.heldout.loss import load_subject, score_heldout

    settings = HeldoutSettings()
    arguments = {"model": tiny.model, "shards": tiny.shards, "settings": settings}
    metrics = build(evaluate, tiny.store, **arguments).manifest.metrics
    seen = Loader(tiny.shards, "train", 32, 3).batch(0, 20)["targets"]
    counts = np.bincount(seen.ravel(), minlength=load(tiny.tokenizer).vocab_size) + 1
    targets = np.array(score_heldout(load_subject(tiny.model, tiny.shards), 10**6).primary.targets)
    expected = -np.log(counts[targets] / counts.sum()).mean()
    assert metrics["unigram_loss"] == pytest.approx(expected)
    assert metrics["unigram_accuracy"] == pytest.approx((targets == counts.argmax()).mean())
    assert 0 <= metrics["heldout_accuracy"] < 0.2


def test_max_tokens_is_exact_and_so_are_its_bytes(tiny: Any) -> None:
    from tasks.evaluation.heldout.loss import load_subject, score_heldout

    subject = load_subject(tiny.model, tiny.shards)
    whole = score_heldout(subject, 10**6)
    part = score_heldout(subject, 100)
    assert part.tokens == 100
    assert whole.text.startswith(part.text)
    assert 0 < part.nats < whole.nats


def test_a_model_is_evaluated_with_its_own_tokenizer_only(tiny: Any) -> None:
    from tasks.evaluation.heldout.loss import load_subject

    facts = {**tiny.shards.manifest.facts, "tokenizer_sha256": "0" * 64}
    manifest = tiny.shards.manifest.model_copy(update={"facts": facts})
    with pytest.raises(BadInput, match="different tokenizers"):
        load_subject(tiny.model, Artifact(tiny.shards.path, manifest))


def test_answers_keep_the_rows_and_score_them(answered: Artifact) -> None:
    rows = rows_of(answered, "answers.jsonl")
    assert [row["id"] for row in rows] == ["row-0", "row-1", "row-2", "row-3"]
    assert set(rows[0]) == {"id", "input", "prediction", "reference", "context"}
    assert rows[0]["input"] == "What does add_0 do?"
    assert rows[0]["reference"] == "It adds left_0 to right_0. It returns the sum."
    names = ("bleu", "chrf", "meteor", "rouge1", "rouge2", "rougeL")
    assert set(answered.manifest.metrics) == {f"answers_{name}" for name in names}
    facts = answered.manifest.facts
    assert facts["shortened"] == 1  # row-1's instruction is longer than the context
    (shown,) = facts["samples"]
    assert shown["prediction"] == rows[0]["prediction"]
    assert len(shown["sampled"]) == 2


def test_answers_are_the_same_again(tiny: Any, answered: Artifact) -> None:
    settings = AnswerSettings(rows=4, max_tokens=12, samples=2, sampled_rows=1)
    before = rows_of(answered, "answers.jsonl"), answered.manifest.facts
    again = build(
        answers, tiny.store, instruct=tiny.instruct, settings=settings, seed=0, force=True
    )
    assert (rows_of(again, "answers.jsonl"), again.manifest.facts) == before


def test_the_stage_judges_beside_a_constant_answer(tiny: Any, answered: Artifact) -> None:
    settings = JudgeSettings(criteria=("correctness", "fluency"), rows=3)
    found = build(judge, tiny.store, answers=answered, instruct=tiny.instruct, settings=settings)
    names = {"geval_correctness", "geval_fluency"}
    names |= {f"qag_{part}" for part in ("coverage", "alignment", "min", "mean")}
    facts = found.manifest.facts
    assert set(facts["means"]) == set(facts["intervals"]) == set(facts["baselines"]) == names
    assert set(found.manifest.metrics) <= {f"judge_{name}" for name in names}
    assert 1 < facts["means"]["geval_correctness"] < 5
    low, high = facts["intervals"]["geval_correctness"]
    assert low <= facts["means"]["geval_correctness"] <= high
    assert facts["mode"].keys() == {"choice"}
    assert "not a measure of quality" in facts["note"]
    assert facts["cost"] == 0
    rows = rows_of(found, "judge.jsonl")
    assert len(rows) == 3 * len(names)
    keys = {"id", "metric", "criterion", "score", "spread", "mode", "reason", "distribution"}
    keys |= {"parts", "mass", "ratings", "explanation", "detail"}
    assert all(set(row) == keys for row in rows)
    for row in rows:
        assert (row["score"] is None) == (row["reason"] is not None)
        if row["metric"] == "geval":
            assert sum(row["distribution"].values()) == pytest.approx(1)


def test_the_stage_with_an_endpoint(
    tiny: Any, answered: Artifact, endpoint: Any, completion: Any, fresh_home: Any
) -> None:
    def script(body: dict[str, Any], call: int) -> Any:
        prompt = body["messages"][0]["content"]
        if "add_2 do?" in prompt:
            return completion("8/10")
        return completion("4")

    endpoint.script = script
    settings = JudgeSettings(model="some-model", criteria=("relevance",), rows=4, qag=False)
    found = build(
        judge,
        tiny.store,
        placement=Placement(judge_url=endpoint.url),
        answers=answered,
        instruct=tiny.instruct,
        settings=settings,
    )
    facts = found.manifest.facts
    assert facts["means"] == {"geval_relevance": 4.0}
    assert facts["unscored"] == {"fraction": 1}
    assert facts["mode"] == {"single": 3}
    assert facts["spreads"] == {"geval_relevance": None}
    # answers, constant answers, canaries; what is on no scale is asked for five times more
    assert facts["calls"] == (4 + 5) + (4 + 5) + 8
    assert facts["random"] == {"geval_relevance": 3.0}
    assert "8 of 8 canaries" in facts["warnings"][0]
    assert endpoint.url not in json.dumps(found.manifest.model_dump(mode="json"))


def test_the_stage_rates_by_the_frozen_steps_among_its_inputs(
    tiny: Any, answered: Artifact, endpoint: Any, completion: Any, scripted: Any, fresh_home: Any
) -> None:
    def script(body: dict[str, Any], call: int) -> Any:
        writing = "Write " in body["messages"][0]["content"]
        return completion("1. Read it.\n2. Rate it." if writing else "4")

    endpoint.script = script
    relevance, place = CRITERIA["relevance"], Placement(judge_url=endpoint.url)
    asked = StepsSettings(judge="m", definition=relevance.definition, scale=(1, 5))
    steps = build(write_steps, tiny.store, placement=place, settings=asked)
    found = build(
        judge,
        tiny.store,
        placement=place,
        answers=answered,
        instruct=tiny.instruct,
        steps=[steps],
        settings=JudgeSettings(model="m", criteria=("relevance",), rows=2, qag=False),
    )
    assert found.manifest.inputs["steps"] == [steps.fingerprint]
    about = found.manifest.facts["steps"]["relevance"]
    assert (about["steps"], about["artifact"]) == (["Read it.", "Rate it."], steps.name)
    store = Store()
    with pytest.raises(BadInput, match=r"judge 'gone' wrote no steps .*key_refused"):
        endpoint.script = lambda body, call: scripted(401)
        gone = asked.model_copy(update={"judge": "gone"})
        build(write_steps, store, placement=place, settings=gone)


def test_too_many_unscored_rows_are_a_failure_that_keeps_the_replies(
    tiny: Any, answered: Artifact, endpoint: Any, scripted: Any, fresh_home: Any
) -> None:
    endpoint.script = lambda body, call: scripted(401)
    settings = JudgeSettings(model="another-model", criteria=("relevance",), qag=False)
    with pytest.raises(BadInput, match=r"4 of 4 scores are missing, .*key_refused"):
        build(
            judge,
            tiny.store,
            placement=Placement(judge_url=endpoint.url),
            answers=answered,
            instruct=tiny.instruct,
            settings=settings,
        )


@pytest.mark.parametrize(("url", "model"), [("http://127.0.0.1:1/v1", None), (None, "m")])
def test_url_and_model_go_together(
    tiny: Any, answered: Artifact, url: str | None, model: str | None
) -> None:
    with pytest.raises(BadInput, match="set both, or neither"):
        build(
            judge,
            tiny.store,
            placement=Placement(judge_url=url),
            answers=answered,
            instruct=tiny.instruct,
            settings=JudgeSettings(model=model),
        )


def test_settings_name_the_nearest_criterion() -> None:
    with pytest.raises(ValueError, match="did you mean 'fluency'"):
        JudgeSettings(criteria=("fluent",))
    with pytest.raises(ValueError, match="lowest rating comes first"):
        JudgeSettings(scale=(5, 1))


def test_the_local_judge_shortens_the_material_and_keeps_the_form(tiny: Any) -> None:
    local = LocalJudge.load(tiny.instruct.path)
    material = (("text", "word " * 500), ("question", "Is it so?"))
    long = Question("", "Answer from the text: yes, no or idk.", material, "Answer:", ("yes", "no"))
    (verdict,) = local.distributions([long])
    assert isinstance(verdict, Distribution)
    assert verdict.mode == "choice"
    assert sum(verdict.probabilities.values()) == pytest.approx(1)
    assert local.shortened == 1
    encoder = load(tiny.tokenizer)
    ids = local._prompt(long, 3)
    assert len(ids) <= 128 - 3
    assert (ids[0], ids[-1]) == (encoder.special("user"), encoder.special("assistant"))
    text = encoder.decode(ids)
    assert text.startswith("Answer from the text")
    assert text.endswith("question: Is it so?\nAnswer:")


def test_the_same_prompt_is_scored_once(tiny: Any) -> None:
    local = LocalJudge.load(tiny.instruct.path)
    question = Question("", "Rate it.", (("answer", "x"),), "Score:", ("1", "2"))
    first, second = local.distributions([question, question])
    assert first == second
    assert local.calls == 1


def test_shares_give_short_texts_whole() -> None:
    assert shares([3, 50, 40], 43) == [3, 20, 20]
    assert shares([3, 5], 100) == [3, 5]
    assert shares([9, 9], 0) == [0, 0]
    assert softmax([-1000.0, -1000.0]) == [0.5, 0.5]
