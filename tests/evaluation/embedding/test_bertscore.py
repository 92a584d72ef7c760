"""BERTScore over a tiny encoder: its arithmetic, layers and baseline."""

import math
import re
from pathlib import Path
from typing import Any

import pytest
import torch

from cluster.errors import BadInput
from tasks.evaluation.embedding.bertscore import BertScore
from tasks.evaluation.embedding.embeddings import TextEncoder

TEXTS = ["def add_1(left, right)", "return left", "größer"]


@pytest.fixture
def folder(tiny: Any) -> Path:
    return Path(tiny.model.path)


def test_a_text_is_most_like_itself(folder: Path) -> None:
    rows, signature = BertScore(folder).score(TEXTS, [[text] for text in TEXTS])
    assert all(row["fmeasure"] == pytest.approx(1, abs=1e-5) for row in rows)
    assert "layer:1" in signature and "baseline:no" in signature


def test_precision_and_recall_are_greedy_matches(folder: Path) -> None:
    known = TextEncoder(folder).embed(TEXTS)
    a, b = known[TEXTS[0]], known[TEXTS[1]]
    alike = a.vectors_TD @ b.vectors_TD.T
    rows, _ = BertScore(folder).score([TEXTS[0]], [[TEXTS[1]]])
    assert rows[0]["precision"] == pytest.approx(float(alike.max(1).values.mean()), abs=1e-5)
    assert rows[0]["recall"] == pytest.approx(float(alike.max(0).values.mean()), abs=1e-5)


def test_company_does_not_matter_and_nothing_scores_nothing(folder: Path) -> None:
    alone, _ = BertScore(folder).score([TEXTS[0]], [[TEXTS[2]]])
    among, _ = BertScore(folder).score([TEXTS[1], TEXTS[0], ""], [[TEXTS[1]], [TEXTS[2]], ["x"]])
    assert among[1]["fmeasure"] == pytest.approx(alone[0]["fmeasure"], abs=1e-5)
    assert among[2] == {"precision": 0.0, "recall": 0.0, "fmeasure": 0.0}


def test_the_baseline_becomes_zero(folder: Path, tmp_path: Path) -> None:
    plain, _ = BertScore(folder).score([TEXTS[0]], [[TEXTS[1]]])
    baseline = tmp_path / "base.tsv"
    baseline.write_text("LAYER,P,R,F\n0,0,0,0\n1,0.5,0.5,0.5\n")
    moved, signature = BertScore(folder, 1, baseline).score([TEXTS[0]], [[TEXTS[1]]])
    assert moved[0]["recall"] == pytest.approx((plain[0]["recall"] - 0.5) / 0.5, abs=1e-5)
    assert "baseline:base.tsv@" in signature


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A BERT of three layers as Transformers makes it, untrained, and its folder."""
    transformers = pytest.importorskip("transformers")
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    folder = tmp_path_factory.mktemp("bert")
    words = ["[PAD]", "[CLS]", "[SEP]", "[UNK]", *"abcdefgh"]
    vocabulary = {word: i for i, word in enumerate(words)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 1), ("[SEP]", 2)]
    )
    tokenizer.save(str(folder / "tokenizer.json"))
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=len(words),
        hidden_size=32,
        num_hidden_layers=3,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=32,
    )
    network = transformers.BertForMaskedLM(config).eval()
    network.save_pretrained(folder)
    return network.bert, tokenizer, folder


@pytest.mark.parametrize(("layer", "idf"), [(3, False), (2, False), (1, True)])
def test_the_arithmetic_is_that_of_bert_score(bert: Any, layer: int, idf: bool) -> None:
    """Cosines of the layer's states, the best match of each word, weighted: section 3."""
    network, tokenizer, folder = bert
    pairs = [("a b c", "a b d e"), ("f", "g h a a"), ("a c e g h b", "b"), ("h c", "b")]

    def states(text: str) -> tuple[list[int], torch.Tensor]:
        ids = tokenizer.encode(text).ids
        with torch.inference_mode():
            found = network(torch.tensor([ids]), output_hidden_states=True).hidden_states
        return ids, torch.nn.functional.normalize(found[layer][0], dim=-1)

    seen = [set(tokenizer.encode(reference).ids) for _, reference in pairs]

    def weights(ids: list[int]) -> torch.Tensor:
        rare = [math.log(5 / (1 + sum(i in text for text in seen))) for i in ids]
        real = [
            float(i not in (1, 2)) * (w if idf else 1.0) for i, w in zip(ids, rare, strict=True)
        ]
        return torch.tensor(real) / sum(real)

    rows, _ = BertScore(folder, layer, idf=idf).score(
        [prediction for prediction, _ in pairs], [[reference] for _, reference in pairs]
    )
    for row, (prediction, reference) in zip(rows, pairs, strict=True):
        (a, x), (b, y) = states(prediction), states(reference)
        alike = x @ y.T
        precision = float((alike.max(1).values * weights(a)).sum())
        recall = float((alike.max(0).values * weights(b)).sum())
        assert row["precision"] == pytest.approx(precision, abs=1e-5)
        assert row["recall"] == pytest.approx(recall, abs=1e-5)
        mean = 2 * precision * recall / (precision + recall)
        assert row["fmeasure"] == pytest.approx(mean, abs=1e-5)


def test_the_weights_are_part_of_the_signature(folder: Path, bert: Any) -> None:
    ours, theirs = (BertScore(one, 1).score(["a"], [["a"]])[1] for one in (folder, bert[2]))
    assert re.search(r"@[0-9a-f]{12}\|layer:1", ours) and ours != theirs


def test_a_layer_that_is_not_there_is_refused(folder: Path) -> None:
    with pytest.raises(BadInput, match="layers 1 to 1"):
        BertScore(folder, 7).score(["a"], [["a"]])
