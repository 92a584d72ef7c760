"""Person names through a token classification model made here, and the errors without one."""

import sys

import pyarrow as pa
import pytest

from cluster.errors import MissingExtra
from cluster.stage import build
from tasks.data.privacy.batch import add_spans
from tasks.data.privacy.names import identity, recogniser
from tasks.data.privacy.settings import RedactSettings
from tasks.data.privacy.spans import Span
from tasks.data.privacy.stage import redact
from tasks.data.text import read_table

PEOPLE = ("anna", "otto")
WORDS = ("[PAD]", "[UNK]", "meets", "and", "at", "jane", "@", "x", ".", "org", *PEOPLE)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A folder with a network that calls the words in PEOPLE persons."""
    transformers = pytest.importorskip("transformers")
    import torch
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

    folder = tmp_path_factory.mktemp("ner")
    words = Tokenizer(models.WordLevel({w: k for k, w in enumerate(WORDS)}, unk_token="[UNK]"))
    words.pre_tokenizer, words.normalizer = pre_tokenizers.Whitespace(), normalizers.Lowercase()
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=words, pad_token="[PAD]", unk_token="[UNK]", model_max_length=16
    ).save_pretrained(folder)
    config = transformers.BertConfig(
        vocab_size=len(WORDS),
        hidden_size=16,
        num_hidden_layers=0,
        num_attention_heads=1,
        intermediate_size=4,
        max_position_embeddings=16,
        id2label={0: "O", 1: "B-PER"},
        label2id={"O": 0, "B-PER": 1},
    )
    network = transformers.BertForTokenClassification(config)
    with torch.no_grad():
        for values in network.parameters():
            values.zero_()
        network.bert.embeddings.LayerNorm.weight.fill_(1)
        for number, word in enumerate(WORDS):
            network.bert.embeddings.word_embeddings.weight[number, int(word in PEOPLE)] = 1
        network.classifier.weight[1, 1] = 1
        network.classifier.weight[0, 0] = 1
    network.save_pretrained(folder)
    return str(folder)


def test_names_leave_the_text_with_the_rest(store, text_artifact, model):
    texts = ["Anna Otto meets jane@x.org", "é Otto " + "and " * 40 + "Anna", "meets"]
    settings = RedactSettings(kinds=("email",), names={"model": model})
    out = build(redact, store, text=text_artifact(texts), settings=settings)
    assert read_table(out)["text"].to_pylist() == [
        "<NAME> meets <EMAIL>",
        "é <NAME> " + "and " * 40 + "<NAME>",
        "meets",
    ]
    assert out.manifest.facts["counts"] == {"email": 1, "name": 3}
    assert {row["kind"] for row in out.manifest.facts["quality"]} == {"email", "name"}


def test_the_identity_of_a_model_is_its_content(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    for folder in ("a", "b"):
        (tmp_path / folder / "config.json").write_text("{}")
    one, two = (identity(str(tmp_path / folder)) for folder in ("a", "b"))
    assert one == two
    (tmp_path / "b" / "config.json").write_text('{"x": 1}')
    assert identity(str(tmp_path / "b")) != one


def test_an_absent_model_or_library_is_named_with_the_command(tmp_path, monkeypatch):
    with pytest.raises(MissingExtra, match="pip install spacy && python -m spacy download en_core"):
        recogniser("en_core")
    with pytest.raises(MissingExtra, match="pip install spacy"):
        identity("no_such_pipeline")
    (tmp_path / "config.json").write_text("{}")
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(MissingExtra, match=r"pip install 'headrace\[transformers\]'"):
        recogniser(str(tmp_path))


def test_a_pattern_wins_over_the_model_where_they_overlap():
    texts = pa.array(["é Anna jane@x.org"], pa.large_string())
    found = add_spans(
        texts, {0: [Span(8, 18, "email")]}, [[Span(2, 6, "name"), Span(7, 11, "name")]]
    )
    assert found == {0: [Span(3, 7, "name"), Span(8, 18, "email")]}
