"""Faults of published judges, each with a test that ours is without it.

They are those of G-Eval's own code, DeepEval, Ragas, SelfCheckGPT, Prometheus and LightEval, as
their sources and their users' reports have them; a test's name says the fault.
"""

import json
import math
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cluster.store import Store
from tasks.evaluation.judging.assessment import summarise
from tasks.evaluation.judging.client import EndpointJudge
from tasks.evaluation.judging.criteria import CRITERIA, Criterion
from tasks.evaluation.judging.endpoint import Endpoint
from tasks.evaluation.judging.files import Assignment, judge_file
from tasks.evaluation.judging.geval import Form, geval, read_stored
from tasks.evaluation.judging.prometheus import Rubric, absolute, read_result, relative
from tasks.evaluation.judging.qag import qag
from tasks.evaluation.judging.questions import Distribution, Question, Unscored
from tasks.evaluation.judging.replies import Reply, read_choice, read_probabilities
from tasks.evaluation.judging.reply_store import ReplyStore
from tasks.evaluation.judging.rows import Row, Score
from tasks.evaluation.judging.selfcheck import Tools, selfcheck
from tasks.evaluation.judging.steps import evaluation_steps

FIVE, TEN = tuple("12345"), tuple(str(n) for n in range(11))
FLUENCY = CRITERIA["fluency"]
ROW = Row("a", "What is it?", "It is blue.", reference="It is blue.", context="It is blue.")


@pytest.fixture(autouse=True)
def no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HEADRACE_JUDGE_API_KEY", "OPENAI_API_KEY", "HEADRACE_JUDGE_SECRET"):
        monkeypatch.delenv(name, raising=False)


def question(text: str = "an answer", choices: tuple[str, ...] = FIVE) -> Question:
    return Question("Rate it.", "Rate it.", (("answer", text),), "Score:", choices)


def client(server: Any, folder: Path, **settings: Any) -> EndpointJudge:
    quick = {"backoff": 0.01, "deadline": 3.0, "attempts": 3, "repeats": 1, **settings}
    return EndpointJudge(Endpoint(server.url, "m", **quick), ReplyStore(folder / "r.sqlite"))


def tokens(*parts: tuple[str, dict[str, float]]) -> Any:
    """Tokens with the probabilities of their alternatives."""
    return tuple(
        (token, tuple((t, math.log(p)) for t, p in (others or {token: 1.0}).items()))
        for token, others in parts
    )


def write(path: Path, *rows: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


# G-Eval's own code


def test_a_reply_that_cannot_be_parsed_is_not_scored_0() -> None:
    replies = ("2", "Well, it depends.", "2")
    (score,) = read_stored(FLUENCY, Form((1, 3)), [Row("a", "?", "x", replies=replies)])
    assert (score.score, score.mass) == (2.0, pytest.approx(2 / 3))


def test_a_rating_behind_its_label_is_not_lost_as_0() -> None:
    for text in ("- Consistency: 4", "Consistency (1-5): 4", "Rating:\n4", "**Consistency:** 4"):
        assert read_choice(Reply(text), FIVE) == "4", text


def test_values_above_the_scale_are_not_taken() -> None:
    (score,) = read_stored(FLUENCY, Form((1, 3)), [Row("a", "?", "x", replies=("2", "5", "100"))])
    assert (score.score, score.ratings) == (2.0, (2.0,))


def test_an_endless_limit_error_ends_at_the_deadline(
    endpoint: Any, tmp_path: Path, scripted: Any
) -> None:
    endpoint.script = lambda body, call: scripted(429, b"rate limit exceeded")
    (verdict,) = client(endpoint, tmp_path, attempts=5).distributions([question()])
    assert isinstance(verdict, Unscored) and verdict.reason == "rate_limited"
    assert len(endpoint.bodies) == 5


def test_a_failed_sample_is_not_dropped_in_silence(
    endpoint: Any, tmp_path: Path, completion: Callable[..., Any], scripted: Any
) -> None:
    endpoint.script = lambda body, call: completion("4") if call else scripted(404)
    judge = client(endpoint, tmp_path, samples=4, concurrency=1)
    (verdict,) = judge.distributions([question()])
    assert isinstance(verdict, Distribution)
    assert (verdict.mass, verdict.answers) == (0.75, ("4", "4", "4"))


def test_progress_is_not_lost_with_the_process(endpoint: Any, tmp_path: Path) -> None:
    client(endpoint, tmp_path).distributions([question(str(i)) for i in range(4)])
    again = client(endpoint, tmp_path)
    again.distributions([question(str(i)) for i in range(5)])
    assert (again.calls, again.reused) == (1, 4)


# DeepEval's G-Eval


def test_a_new_process_gets_the_steps_of_the_last(
    fresh_home: Path, endpoint: Any, tmp_path: Path, completion: Callable[..., Any]
) -> None:
    endpoint.script = lambda body, call: completion(f"1. Read {call}.\n2. Rate.")
    first = evaluation_steps(client(endpoint, tmp_path), FLUENCY, (1, 5), Store())
    other_store = tmp_path / "other"
    other_store.mkdir()
    assert evaluation_steps(client(endpoint, other_store), FLUENCY, (1, 5), Store()) == first
    assert len(endpoint.bodies) == 1


def test_a_digit_in_the_reason_is_not_the_score_whether_before_it_or_behind() -> None:
    score = ("2", {"2": 0.6, "3": 0.4})
    before = tokens(('{"reason": "', {}), ("2", {}), (' of 5", "score": ', {}), score, ("}", {}))
    behind = tokens(('{"score": ', {}), score, (', "reason": "', {}), ("2", {}), (' facts"}', {}))
    for written in (before, behind):
        found = read_probabilities(Reply("", tokens=written), FIVE)
        assert found is not None
        assert found[0] == pytest.approx({"1": 0, "2": 0.6, "3": 0.4, "4": 0, "5": 0})


def test_digits_out_of_range_weigh_nothing() -> None:
    reply = Reply("4", tokens=tokens(("4", {"4": 0.5, "9": 0.4, "0": 0.1})))
    found = read_probabilities(reply, FIVE)
    assert found is not None
    assert (found[0]["4"], found[1]) == (pytest.approx(1.0), pytest.approx(0.5))


def test_a_score_of_two_tokens_is_weighted() -> None:
    reply = Reply("10", tokens=tokens(("1", {"1": 0.8, "9": 0.2}), ("0", {"0": 0.75, "": 0.25})))
    found = read_probabilities(reply, TEN)
    assert found is not None
    assert found[0]["10"] == pytest.approx(0.6)
    assert found[0]["9"] == pytest.approx(0.2)


def test_an_unlikely_rating_is_not_cut_off() -> None:
    reply = Reply("4", tokens=tokens(("4", {"4": 0.995, "1": 0.005})))
    found = read_probabilities(reply, FIVE)
    assert found is not None and found[0]["1"] == pytest.approx(0.005)


def test_a_score_0_of_a_0_1_scale_is_a_score(scripted_judge: Any) -> None:
    zero = Criterion(name="polite", definition="Is it polite?", scale=(0, 1))
    assert geval(scripted_judge(lambda q: "0"), zero, Form((0, 1)), [ROW])[0].score == 0.0


def test_scores_stay_on_the_scale_that_was_asked_for(scripted_judge: Any) -> None:
    judge = scripted_judge(lambda q: q.choices[-1])
    assert geval(judge, FLUENCY, Form((1, 3)), [ROW])[0].score == 3.0
    assert judge.questions[0].choices == ("1", "2", "3")


def test_missing_log_probabilities_never_change_the_mode_in_silence(
    endpoint: Any, tmp_path: Path, completion: Callable[..., Any]
) -> None:
    listed = {"content": [{"token": "4", "logprob": 0.0, "top_logprobs": []}]}
    endpoint.script = lambda body, call: completion("4", logprobs=None if call % 2 else listed)
    judge = client(endpoint, tmp_path, concurrency=1)
    found = judge.distributions([question("x"), question("y")])
    assert {v.mode for v in found if isinstance(v, Distribution)} == {"logprobs", "single"}
    several = client(endpoint, tmp_path, samples=3).distributions([question("z")])
    assert isinstance(several[0], Distribution) and several[0].mode in ("logprobs", "samples")


def test_models_that_think_are_asked_without_what_they_refuse(
    endpoint: Any, tmp_path: Path, completion: Callable[..., Any], scripted: Any
) -> None:
    def script(body: dict[str, Any], call: int) -> Any:
        for name in ("logprobs", "max_tokens", "temperature"):
            if name in body:
                return scripted(400, f"Unsupported parameter: '{name}'".encode())
        return completion("3")

    endpoint.script = script
    judge = client(endpoint, tmp_path, attempts=6)
    (verdict,) = judge.distributions([question()])
    assert isinstance(verdict, Distribution) and verdict.mode == "single"
    assert endpoint.bodies[-1].keys() == {"model", "messages", "max_completion_tokens"}
    judge.distributions([question("another")])
    endpoint.bodies.clear()
    judge.distributions([question("a third")])  # a limit of tokens takes two rows to be given up
    assert len(endpoint.bodies) == 1


def test_the_rating_does_not_hang_on_one_sampled_reason(scripted_judge: Any) -> None:
    judge = scripted_judge(lambda q: "4")
    geval(judge, FLUENCY, Form((1, 5), explain=True), [ROW])
    form = judge.questions[0].form
    assert "the number first, below it one sentence why" in form
    assert judge.questions[0].tokens > 100


# QAG, DeepEval's and Ragas's


def asks_and_answers(question: Question) -> str:
    material = dict(question.material)
    return "yes" if material["question"].split('"')[1] in material["text"] else "no"


def test_a_missing_verdict_does_not_shrink_the_denominator(scripted_judge: Any) -> None:
    def forgets(question: Question) -> Any:
        lost = "Birds" in dict(question.material)["question"]
        return Unscored("timeout") if lost else "yes"

    row = Row("a", "?", "Cats sleep.", reference="Cats sleep. Birds sing.")
    (parts,) = qag(scripted_judge(forgets), [row])
    assert (parts["coverage"].score, parts["coverage"].reason) == (None, "timeout")


def test_verdicts_belong_to_their_questions_not_to_places_in_a_list(scripted_judge: Any) -> None:
    row = Row("a", "?", "Birds sing.", reference="Cats sleep. Birds sing. Fish swim.")
    judge = scripted_judge(asks_and_answers)
    (parts,) = qag(judge, [row])
    assert parts["coverage"].score == pytest.approx(1 / 3)
    assert all(len(dict(q.material)["question"].splitlines()) == 1 for q in judge.questions)


def test_the_second_document_is_not_asked_the_first_ones_questions(scripted_judge: Any) -> None:
    rows = [
        Row("a", "?", "Cats sleep.", "Cats sleep."),
        Row("b", "?", "Snow falls.", "Snow falls."),
    ]
    judge = scripted_judge(asks_and_answers)
    assert [parts["min"].score for parts in qag(judge, rows)] == [1.0, 1.0]
    asked = [dict(q.material) for q in judge.questions]
    assert not any("Cats" in q["question"] and "Snow" in q["text"] for q in asked)


def test_a_text_is_wholly_covered_by_itself(scripted_judge: Any) -> None:
    text = "It is blue. It floats. It is old."
    (parts,) = qag(scripted_judge(asks_and_answers), [Row("a", "?", text, text)])
    assert [part.score for part in parts.values()] == [1, 1, 1, 1]


def test_claims_are_held_against_the_text_not_against_extracted_truths(
    scripted_judge: Any,
) -> None:
    source = "It is blue. " + "It has many parts. " * 50 + "The last part is red."
    judge = scripted_judge(asks_and_answers)
    (parts,) = qag(judge, [Row("a", "?", "The last part is red.", source)])
    assert parts["alignment"].score == 1.0
    assert any(dict(q.material)["text"] == source for q in judge.questions)


def test_no_questions_are_neither_0_nor_1(scripted_judge: Any) -> None:
    judge = scripted_judge(asks_and_answers, write=lambda prompt: "I have no questions.")
    (parts,) = qag(judge, [ROW])
    assert {(p.score, p.reason) for p in parts.values()} == {(None, "no_questions")}


def test_an_empty_summary_gets_nothing_for_being_short(scripted_judge: Any) -> None:
    (parts,) = qag(scripted_judge(asks_and_answers), [Row("a", "?", "", "It is blue.")])
    assert (parts["coverage"].score, parts["mean"].score) == (0.0, None)


def test_the_smaller_part_does_not_hide_the_other(scripted_judge: Any) -> None:
    row = Row("a", "?", "It is blue.", reference="It is blue. It floats.")
    (parts,) = qag(scripted_judge(asks_and_answers), [row])
    assert (parts["min"].score, parts["mean"].score) == (0.5, 0.75)


# SelfCheckGPT


def test_sentences_and_samples_are_not_asked_one_after_the_other(
    endpoint: Any, tmp_path: Path, completion: Callable[..., Any]
) -> None:
    endpoint.script = lambda body, call: completion("yes")
    row = Row("a", "?", "It is blue. It is old.", samples=("One.", "Two.", "Three."))
    judge = client(endpoint, tmp_path)
    selfcheck(Tools(judge), "prompt", [row])
    selfcheck(Tools(judge), "prompt", [row])
    assert (judge.calls, judge.reused) == (6, 6)


# Prometheus


def test_a_reference_that_is_given_is_shown(scripted_judge: Any) -> None:
    prompts: list[str] = []
    judge = scripted_judge(lambda q: "", write=lambda p: prompts.append(p) or "Fine. [RESULT] 4")
    absolute(judge, Rubric("Is it right?"), [Row("a", "?", "x", reference="the one and only")])
    assert "the one and only" in prompts[0]


def test_the_prompts_own_5_is_not_the_result() -> None:
    echoed = "###Reference Answer (Score 5): it\nScore 5: The answer meets it.\n###Feedback:"
    assert isinstance(read_result(echoed, "12345"), Unscored)


def test_sampling_parameters_reach_the_endpoint_as_they_are(
    endpoint: Any, tmp_path: Path, completion: Callable[..., Any]
) -> None:
    endpoint.script = lambda body, call: completion("Fine. [RESULT] 4")
    absolute(client(endpoint, tmp_path), Rubric("Is it right?"), [ROW], samples=2)
    assert {body["temperature"] for body in endpoint.bodies} == {0.0, 1.0}
    assert {body["max_tokens"] for body in endpoint.bodies} == {400}


def test_an_error_is_no_empty_feedback_and_no_answer(
    endpoint: Any, tmp_path: Path, scripted: Any
) -> None:
    endpoint.script = lambda body, call: scripted(404, b"ERROR: 5")
    (score,) = absolute(client(endpoint, tmp_path), Rubric("Is it right?"), [ROW])
    assert (score.score, score.reason) == (None, "http_404")


def test_a_preference_for_a_place_is_no_preference(scripted_judge: Any) -> None:
    judge = scripted_judge(lambda q: "", write=lambda p: "[RESULT] A")
    (score,) = relative(judge, Rubric("Is it right?"), [Row("a", "?", "x", other="y")])
    assert (score.score, score.parts) == (0.5, (1.0, 0.0))


def test_an_unparsable_feedback_is_not_asked_for_without_end(scripted_judge: Any) -> None:
    asked: list[str] = []
    judge = scripted_judge(lambda q: "", write=lambda p: asked.append(p) or "Hm.")
    (score,) = absolute(judge, Rubric("Is it right?"), [ROW])
    assert (score.reason, len(asked)) == ("unparsable", 4)


# What users of all of them report


@pytest.mark.parametrize(
    "text",
    [
        '{"score": 4, "reason": "matches \\d+ and \\%"}',
        '{"score": 4, "reason": "two\nlines"}',
        '```json\n{"reason": "it\'s {fine}", "score": 4}\n```',
        'Here you are: {"score": "4"}. Anything else?',
    ],
)
def test_json_with_slips_is_read(text: str) -> None:
    assert read_choice(Reply(text), FIVE) == "4"


def test_one_bad_row_does_not_end_the_run(
    endpoint: Any, tmp_path: Path, completion: Callable[..., Any], scripted: Any, fresh_home: Path
) -> None:
    def script(body: dict[str, Any], call: int) -> Any:
        bad = "the bad one" in body["messages"][0]["content"]
        return scripted(200, b'{"choices": [{"message": null}]}') if bad else completion("4")

    endpoint.script = script
    rows = [{"input": "?", "prediction": text} for text in ("good", "the bad one", "fine")]
    work = Assignment("geval", "fluency")
    quick = Endpoint(endpoint.url, "m", backoff=0.01, attempts=2)
    result = judge_file(write(tmp_path / "r.jsonl", *rows), work, quick)
    assert (result["scored"], result["unscored"], result["mean"]) == (2, {"not_json": 1}, 4.0)


def test_a_missing_score_makes_no_mean_nan_and_is_not_skipped_unseen() -> None:
    scores = [Score("a", "m", "c", 4.0), Score("b", "m", "c", None, reason="refusal")]
    found = summarise(scores, (1, 5))
    assert (found["scored"], found["mean"], found["bounds"]) == (1, 4.0, [2.5, 4.5])


def test_the_same_answer_gets_the_same_score(
    endpoint: Any, tmp_path: Path, completion: Callable[..., Any]
) -> None:
    endpoint.script = lambda body, call: completion(str(1 + call % 5))
    judge = client(endpoint, tmp_path)
    scores = geval(judge, FLUENCY, Form((1, 5)), [ROW, Row("b", "?", ROW.prediction)])
    assert scores[0].score == scores[1].score


def test_a_kept_reply_is_a_score_not_none(endpoint: Any, tmp_path: Path) -> None:
    first = client(endpoint, tmp_path).distributions([question()])
    assert client(endpoint, tmp_path).distributions([question()]) == first
    assert isinstance(first[0], Distribution)


def test_cached_tokens_are_not_billed_in_full(
    endpoint: Any, tmp_path: Path, scripted: Any, completion: Callable[..., Any]
) -> None:
    body = json.loads(completion("4").body)
    body["usage"]["prompt_tokens_details"] = {"cached_tokens": 80}
    endpoint.script = lambda asked, call: scripted(body=json.dumps(body).encode())
    judge = client(endpoint, tmp_path, prices=(10.0, 20.0, 1.0))
    judge.distributions([question()])
    assert judge.cost == pytest.approx((20 * 10 + 80 * 1 + 2 * 20) / 1e6)


def test_any_model_has_a_cost_by_its_price_and_none_without(endpoint: Any, tmp_path: Path) -> None:
    judge = client(endpoint, tmp_path, prices=(10.0, 20.0))
    judge.distributions([question()])
    assert judge.cost == pytest.approx((100 * 10 + 2 * 20) / 1e6)
    assert client(endpoint, tmp_path).cost is None


def test_nobody_but_the_endpoint_is_called(
    endpoint: Any, tmp_path: Path, fresh_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    called: set[Any] = set()
    connect = socket.socket.connect

    def watched(self: socket.socket, address: Any) -> None:
        called.add(address)
        connect(self, address)

    def resolve(host: Any, port: Any, *rest: Any, **more: Any) -> Any:
        assert host in ("127.0.0.1", b"127.0.0.1"), f"{host} was looked up"
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (str(host), port))]

    monkeypatch.setattr(socket.socket, "connect", watched)
    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    rows = write(tmp_path / "r.jsonl", {"input": "?", "prediction": "x"})
    judge_file(rows, Assignment("geval", "fluency"), Endpoint(endpoint.url, "m"))
    assert {address[0] for address in called} <= {"127.0.0.1"}
