"""The guide's table of what it covers: no row is missing, every command and every test is there."""

import re
import shlex
from functools import cache

import pytest

from tests.pages import ROOT

PAGE = ROOT / "docs/guide/coverage.md"
TAUGHT = """
maximum likelihood | mean squared error | cross-entropy | feed-forward network | back-propagation
stochastic gradient | heavy-ball | AdaGrad | RMSProp | Adam | warm-up | dropout | one-hot
co-occurrence | skip-gram | CBOW | analogies
RNN | LSTM | GRU | through time | vanishing | sequence to sequence | Bahdanau | Luong | ELMo
scaled dot-product | self-attention | multi-head | cross-attention | pre-norm
post-norm | layer normalisation | residual | sinusoidal | learned positions
language modelling head | weight tying | encoder-decoder | complexity table | ablations
attention patterns
causal language | prefix language | masked language | MASS | BERT-style | permuted | next sentence
sentence comparison | token classification | replaced token | token reordering | token deletion
span masking | sentinel masking | sentence reordering | document rotation | dynamic masking
original Transformer
BERT | RoBERTa | XLM-RoBERTa | DistilBERT | ALBERT | DeBERTa | ELECTRA | XLNet
GPT-1 | GPT-2 | GPT-3 | T5 | BART | LLaMA 2 | LLaMA 3.1 | Gemma 2 | Qwen2.5 | DeepSeek-V3 | Falcon
Mistral | quality filtering | privacy | byte pair | WordPiece | unigram
greedy | sampling | top-k | top-p | temperature | beam search | minimum Bayes risk | scaling laws
in-context | fine-tuning | sequence classification | sequence labelling | question answering
sentence pairs | machine translation | summarisation | instruction tuning | alignment tuning
distillation | dialogue | contextual embeddings | senses
BLEU | brevity | ROUGE-N | ROUGE-L | ROUGE-W | ROUGE-S | ROUGE-SU | METEOR | BLEURT | BERTScore
G-Eval | Prometheus | QAG | coverage | alignment | SelfCheckGPT | fluency | coherence | relevance
correctness
"""
"""What the texts behind the guide teach, by words that a row must have."""


@cache
def rows() -> list[list[str]]:
    lines = [line for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [row for row in cells if row[0] != "what"]


def test_nothing_that_is_taught_is_missing() -> None:
    names = " | ".join(row[0] for row in rows())
    taught = [name.strip() for line in TAUGHT.strip().splitlines() for name in line.split("|")]
    assert len(taught) > 100
    assert [name for name in taught if name not in names] == []
    assert len({row[0] for row in rows()}) == len(rows())
    assert {row[1] for row in rows()} == {"system", "algorithm", "metric"}


def test_every_row_has_a_test_that_is_there() -> None:
    for name, _, _, test in rows():
        path, _, function = test.strip("`").partition("::")
        assert (ROOT / path).is_file(), f"{name}: {path}"
        source = (ROOT / path).read_text()
        assert re.search(rf"^def {function or 'test_'}", source, re.MULTILINE), f"{name}: {test}"


@pytest.mark.parametrize("row", rows(), ids=lambda row: row[0].replace(" ", "-"))
def test_every_row_has_a_command_that_can_be_given(row: list[str]) -> None:
    """Its options exist; a recipe is valid with what is set, a shape is known."""
    from typer.main import get_command

    from flows.cli import app
    from flows.recipe import load
    from model.presets import preset

    _, name, *arguments = shlex.split(row[2].strip("`"))
    command = get_command(app).commands[name]  # type: ignore[attr-defined]
    given = command.make_context(name, list(arguments), resilient_parsing=False)
    if name in ("run", "plan", "data", "pretrain"):
        load(arguments[0], given.params.get("set") or given.params.get("overrides") or ())
    if name == "show":
        preset(arguments[0])
