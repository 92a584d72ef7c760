"""Each benchmark runs on a tiny input, or says what it lacks; none times work that is not done."""

import json
import subprocess
import sys
from argparse import Namespace
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

from model.attention import attend
from model.shapes import from_depth
from tests.published import published_folder

FOLDER = Path(__file__).parents[1] / "benchmarks"
NAMES = sorted(path.stem for path in FOLDER.glob("*.py"))
# What runs for long by itself, with arguments that make it short.
SLOW = {
    "decoding": ["--tokens", "4", "--rounds", "1", "--shape", "3M", "--requests", "3"],
    "infer_kills": ["--rows", "64", "--kills", "1"],
    "training_overhead": ["--steps", "2", "--rounds", "1", "--stages", "0"],
    "training_memory": ["--depths", "2", "--stages", "0"],
    "training_kills": ["--kills", "1", "--changes", "0", "--steps", "40", "--stages", "0"],
}
PEERS = {
    "bertscore": ("bert_score", "bert-score"),
    "filtering": ("datatrove", "datatrove"),
    "harness": ("lm_eval", "lm-eval"),
    "loading": ("datasets", "datasets"),
    "minhash": ("datasketch", "datasketch"),
    "passages": ("pydivsufsort", "pydivsufsort"),
    "preference_losses": ("trl", "trl"),
    "rouge": ("rouge_score", "rouge-score"),
    "tokenizing": ("tiktoken", "tiktoken"),
}
BARE = ("loading", "preference_losses")
"""Those that take no file."""
TEXTS = [
    f"Document {n} tells of the mill and the {n * n} wheels of its race. " * 20 for n in range(9)
]
CPU = torch.device("cpu")
Benchmark = Callable[[str], ModuleType]


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch) -> Iterator[Benchmark]:
    """A benchmark as a module; their names are no packages, and are gone after the test."""
    monkeypatch.syspath_prepend(str(FOLDER))
    before = {name: sys.modules.pop(name, None) for name in NAMES}
    yield import_module
    for name, module in before.items():
        sys.modules.pop(name, None)
        if module is not None:
            sys.modules[name] = module


@pytest.fixture
def file(tmp_path: Path) -> Path:
    rows = ({"text": text, "prediction": text, "reference": text} for text in TEXTS)
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path / "rows.jsonl"


def run(module: ModuleType, monkeypatch: pytest.MonkeyPatch, *arguments: object) -> None:
    monkeypatch.setattr(sys, "argv", [f"benchmarks/{module.__name__}.py", *map(str, arguments)])
    module.main()


@pytest.mark.parametrize("name", NAMES)
def test_a_benchmark_can_be_imported_and_says_how_it_is_run(
    benchmark: Benchmark, name: str
) -> None:
    module = benchmark(name)
    if name == "fairness":
        return
    assert f"benchmarks/{name}.py" in (module.__doc__ or "") and callable(module.main)


@pytest.mark.parametrize("name", PEERS)
def test_without_its_peer_a_benchmark_names_the_package(
    benchmark: Benchmark, file: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    module, (spec, package) = benchmark(name), PEERS[name]
    if find_spec(spec):
        pytest.skip(f"{package} is installed")
    call: Any = partial(run, module, monkeypatch, *([] if name in BARE else [file]))
    if name == "bertscore":
        call = partial(module.main, "folder", 1, file)
    elif name == "rouge":
        call = partial(module.main, file)
    with pytest.raises(SystemExit, match=f"{package}.* is not installed: uv run --with"):
        call()


@pytest.mark.parametrize(
    "name", ["minhash", "passages", "redaction", "tokenizing", "filtering", "word_vectors"]
)
def test_a_file_without_text_is_refused(
    benchmark: Benchmark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    module, empty = benchmark(name), tmp_path / "empty.jsonl"
    monkeypatch.setattr(module, "need", lambda **_: None, raising=False)
    empty.touch()
    for place in (empty, tmp_path) if name in ("minhash", "redaction") else (empty,):
        with pytest.raises(SystemExit, match="holds no text"):
            run(module, monkeypatch, place)


def test_each_part_of_what_a_gpu_is_measured_by_runs(
    benchmark: Benchmark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At toy sizes on the CPU: it has no device to measure, and what is called must be there."""
    gpu = benchmark("gpu")
    sizes = import_module("gpu_parts.sizes")
    small = from_depth(2, vocab_size=64, context=16, width=32, heads=2)
    toy = sizes.Sizes(
        device="cpu",
        shapes=dict.fromkeys(("124M", "1.5B", "7B"), small),
        batches=dict.fromkeys(("124M", "1.5B", "7B"), (4, 2, 6)),
        positions=32,
        product=16,
        decoded=(4, 8),
        small=small,
        parity_steps=3,
    )
    (tmp_path / "nanochat").mkdir()
    for file in ("model.py", "nanochat/gpt.py"):
        (tmp_path / file).write_text(PEER)
    options = Namespace(
        results=tmp_path / "gpu.json", nanogpt=tmp_path / "model.py", nanochat=tmp_path
    )
    found: dict[str, Any] = {}
    for name, part in gpu.PARTS.items():
        found[name] = part(toy, options)
        options.results.write_text(json.dumps(found))
    assert found["kernels"]["7B"]["attention"]["mask"]["error"] < 0.02
    kernels = import_module("gpu_parts.kernels")
    documents = torch.from_numpy(sizes.packed(small, 0, 2)["documents"])
    ways, heads = kernels.sights(small, documents, CPU), torch.randn(3, 2, 2, 16, 16)
    mask, flex = (attend(small, *heads, ways[name], training=False) for name in ("mask", "flex"))
    torch.testing.assert_close(flex, mask)
    assert ways["varlen"].begins_N[0] == 0 and ways["varlen"].begins_N[-1] == 32
    assert found["step-7B"]["tokens_per_second"] > 0 < found["nanogpt"]["tokens_per_second"]
    assert found["parity"]["apart"] < 0.01
    assert found["decoding"].keys() == {"batch 1", "batch 8", "batch 64"}
    assert gpu.ratios(found).keys() == {"over_nanogpt", "over_nanochat"}


PEER = """
from types import SimpleNamespace

from torch import nn

GPTConfig = SimpleNamespace


class GPT(nn.Embedding):
    def __init__(self, config):
        super().__init__(config.vocab_size, config.vocab_size)
        self.pairs = hasattr(config, "block_size")

    def init_weights(self):
        self.reset_parameters()

    def forward(self, x, y):
        logits = super().forward(x)
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), y.flatten(), ignore_index=-100)
        return (logits, loss) if self.pairs else loss
"""
"""What nanoGPT's model.py and nanochat's gpt.py have of what is called: a bigram table."""


def test_tokenizing_does_the_work_it_times(
    benchmark: Benchmark, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """The warm-up took the first 100 documents: of 89 all, and the timed stage found its result."""
    module = benchmark("tokenizing")
    calls = []
    real = module.build

    def counted(function: Any, store: Any, **arguments: Any) -> Any:
        found = {artifact.fingerprint for artifact in store.artifacts()}
        artifact = real(function, store, **arguments)
        calls.append((function.__stage__.name, artifact.fingerprint in found))
        return artifact

    def peer(text: Any, encoder: Any, path: Path) -> None:
        np.array(module.library_loop(text, encoder)).tofile(path)

    monkeypatch.setattr(module, "build", counted)
    monkeypatch.setattr(module, "tiktoken_loop", peer)
    settings = module.TokenizerSettings(vocab_size=300, text_bytes=1 << 40)
    module.sharding(TEXTS, settings, 0.01, tmp_path)
    assert calls.count(("shards", False)) == 2 and ("shards", True) not in calls
    assert "the same in each True" in capsys.readouterr().out


def test_what_was_found_in_the_store_is_not_timed(benchmark: Benchmark, tmp_path: Path) -> None:
    fairness, module = benchmark("fairness"), benchmark("tokenizing")
    store = module.Store(tmp_path)
    work = partial(module.build, module.write_text, store, texts=TEXTS)
    fairness.made(store, work)()
    with pytest.raises(SystemExit, match="was found in the store: there was nothing to time"):
        fairness.made(store, work)()


def test_tuning_tells_the_senses_of_words(
    benchmark: Benchmark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """From a folder as CoarseWSD-20's, the word by its number in the line."""
    word = tmp_path / "senses" / "apple"
    word.mkdir(parents=True)
    for side in ("train", "test"):
        (word / f"{side}.data.txt").write_text("1\tan apple a day\n2\tsay the apple again\n")
        (word / f"{side}.gold.txt").write_text("0\n1\n")
    module = benchmark("tuning")
    assert module.sense_row("2\tsay the apple again", "1")["target"] == [8, 13]
    model = published_folder(tmp_path / "model")
    run(module, monkeypatch, "senses", model, word.parent, "--layers", "last2")
    shown, _, majority, count = capsys.readouterr().out.splitlines()[0].split()
    assert (shown, majority, count) == ("apple", "0.5000", "2")


def test_tuning_puts_the_usual_models_beside(benchmark: Benchmark, tmp_path: Path) -> None:
    module = benchmark("tuning")
    rows = [{"text": f"{kind} {n}", "label": kind} for kind in ("wave", "cloud") for n in range(9)]
    found = module.texts_beside("classify", rows, rows[::3])
    assert found["linear SVM accuracy"] == found["naive Bayes macro_f1"] == 1
    (tmp_path / "trec.txt").write_text("NUM:dist How far is it ?\n")
    made = module.named(tmp_path / "trec.txt", "trec", tmp_path)
    assert json.loads(made.read_text()) == {"label": "NUM", "text": "How far is it ?"}


def test_word_vectors_are_made_by_both_sides(
    benchmark: Benchmark, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    pairs = tmp_path / "pairs.txt"
    pairs.write_text("mill\trace\t9\nmill\twheels\t8\ntells\tof\t1\n")
    run(benchmark("word_vectors"), monkeypatch, file, "--seeds", "2", "--similarity", pairs)
    _, _, rated, speed = capsys.readouterr().out.splitlines()
    assert rated.startswith("pairs") and speed.startswith("words a CPU second")


def test_minhash_times_its_own_side(
    benchmark: Benchmark, capsys: pytest.CaptureFixture[str]
) -> None:
    module = benchmark("minhash")
    texts = [*TEXTS, TEXTS[0]]
    ours = partial(module.ours, pa.array(texts, pa.large_string()))
    module.speed({"Headrace": (ours, texts)}, rounds=1)
    assert capsys.readouterr().out.splitlines()[-1].split()[-1] != "0"  # candidates


@pytest.mark.parametrize(("name", "says"), [("reading", "9 rows"), ("redaction", "9 texts")])
def test_it_runs_where_its_peers_may_be_absent(
    benchmark: Benchmark, file: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str], name: str, says: str,
) -> None:  # fmt: skip
    run(benchmark(name), monkeypatch, file, *(["--labelled"] if name == "redaction" else []))
    printed = capsys.readouterr().out
    assert says in printed and "MB per CPU-second" in printed


@pytest.mark.slow
@pytest.mark.parametrize("name", SLOW)
def test_a_long_one_runs_with_little_to_do(name: str) -> None:
    """In a process of its own, as one forks its ranks."""
    command = [sys.executable, f"benchmarks/{name}.py", *map(str, SLOW[name])]
    done = subprocess.run(command, cwd=FOLDER.parent, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0 and done.stdout, done.stderr[-2000:]


def test_exponents_are_those_of_a_power(
    benchmark: Benchmark, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of lengths that are made up, and of memory, which is counted, not timed."""
    module = benchmark("complexity")
    assert module.exponent([1, 2, 4, 8], [9, 9, 9 * 4**1.5, 9 * 8**1.5]) == pytest.approx(1.5)
    run(module, monkeypatch, "--lengths", 256, 512, "--width", 32, "--rounds", 1)
    rows = capsys.readouterr().out.splitlines()[1:]
    memory = {row[:25].strip(): float(row.split()[-2]) for row in rows}
    assert len(memory) == len(module.LAYERS)
    assert memory["attention, written out"] > 1.7 > 1.2 > memory["attention, fused"]
    assert memory["recurrent, LSTM"] < 1.2
