import gzip
import json
import math
from pathlib import Path
from typing import Any

import pytest

from cluster.errors import BadInput
from tasks.evaluation.judging.questions import Unscored
from tasks.evaluation.judging.replies import Reply, frequencies, read_choice
from tasks.evaluation.judging.rows import Row
from tasks.evaluation.judging.selfcheck import Tools, ngram_scores, selfcheck, sentences, support

ROW = Row("r", "?", "Bo was born in Rome. He sang.", samples=("Bo was born in Rome.", "Bo sang."))


def against(reply: str) -> float | None:
    """What a reply says against the sentence, read as the judge's replies are."""
    choices = ("yes", "no")
    return support(frequencies([read_choice(Reply(reply), choices)], choices))


def test_sentence_scores_of_published_replies_are_exact(eval_data: Path) -> None:
    raw = (eval_data / "selfcheck_wikibio/first60.json.gz").read_bytes()
    checked = 0
    for passage in json.loads(gzip.decompress(raw)):
        for replies, stored in zip(
            passage["responses"]["prompt"], passage["scores"]["prompt"], strict=True
        ):
            assert sum(map(against, replies)) / len(replies) == stored
            checked += 1
    assert checked > 400


@pytest.mark.parametrize(
    ("reply", "value"),
    [
        ("Yes.", 0),
        ("no", 1),
        ("**No**", 1),
        ("not sure", 0.5),
        ("None", 0.5),
        ("Nobody knows", 0.5),
        ("", 0.5),
    ],
)
def test_only_a_whole_yes_or_no_counts(reply: str, value: float) -> None:
    assert against(reply) == value


def test_a_judge_is_asked_of_every_sentence_and_sample(scripted_judge: Any) -> None:
    judge = scripted_judge(lambda q: "yes" if "Rome" in q.material[0][1] else "no")
    (score,) = selfcheck(Tools(judge), "prompt", [ROW])
    assert (score.parts, score.score) == ((0.5, 0.5), 0.5)
    assert len(judge.questions) == 4


def test_a_reply_that_never_came_counts_nothing(scripted_judge: Any) -> None:
    judge = scripted_judge(lambda q: Unscored("timeout") if "Rome" in q.material[0][1] else "no")
    assert selfcheck(Tools(judge), "prompt", [ROW])[0].parts == (1.0, 1.0)
    silent = scripted_judge(lambda q: Unscored("timeout"))
    (lost,) = selfcheck(Tools(silent), "prompt", [ROW])
    assert (lost.score, lost.reason) == (None, "timeout")


def test_a_word_said_nowhere_else_is_the_least_likely() -> None:
    row = Row("r", "?", "a b. C d.", samples=("a b.", "a b."))
    first, second = ngram_scores(row)
    full, total = -math.log(4 / 12), 3 * 4
    assert first == pytest.approx((2 * -math.log(3 / total) + full) / 3)
    assert second == pytest.approx((2 * -math.log(1 / total) + full) / 3)


def test_a_row_without_samples_says_so(scripted_judge: Any) -> None:
    (score,) = selfcheck(Tools(scripted_judge(lambda q: "no")), "prompt", [Row("r", "?", "It.")])
    assert (score.score, score.reason) == (None, "no_samples")


def test_sentences_end_before_a_capital() -> None:
    assert sentences('He said 3.5 m. "No." Then left.\nNew line') == [
        "He said 3.5 m.",
        '"No.',
        "Then left.",
        "New line",
    ]


def test_contradiction_is_that_of_a_local_classifier(tmp_path: Path) -> None:
    import torch
    from transformers import BertConfig, BertForSequenceClassification, BertTokenizerFast

    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "bo", "rome", "sang", "born", "."]
    (tmp_path / "vocab.txt").write_text("\n".join(words))
    tokenizer = BertTokenizerFast(str(tmp_path / "vocab.txt"))
    labels = {0: "CONTRADICTION", 1: "neutral", 2: "entailment"}
    config = BertConfig(
        vocab_size=len(words), hidden_size=8, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=8, id2label=labels, num_labels=3,
    )  # fmt: skip
    torch.manual_seed(0)
    model = BertForSequenceClassification(config).eval()
    model.classifier.weight.data *= 50
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    (score,) = selfcheck(Tools.of("nli", tmp_path, None), "nli", [ROW])
    for sentence, part in zip(("Bo was born in Rome.", "He sang."), score.parts or (), strict=True):
        expected = []
        for sample in ROW.samples:
            with torch.inference_mode():
                logits = model(**tokenizer(sentence, sample, return_tensors="pt")).logits[0]
            expected.append(float(logits[[2, 0]].softmax(-1)[1]))
        assert part == pytest.approx(sum(expected) / len(expected), abs=1e-6)
    assert (score.mode, score.criterion) == ("local", "nli")


def test_no_classifier_no_download_but_the_command(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"hf download .* --local-dir FOLDER"):
        Tools.of("nli", None, None)
    with pytest.raises(BadInput, match="holds no classifier"):
        Tools.of("nli", tmp_path, None)
