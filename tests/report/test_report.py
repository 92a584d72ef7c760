"""The report, from artifacts made up to look like a finished run's."""

import dataclasses
import json
import math
import random
import re
from html.parser import HTMLParser

import pytest
from matplotlib import rc_context
from matplotlib.figure import Figure

from cluster.artifact import Artifact
from cluster.manifest import Ledger
from cluster.stage import build
from cluster.store import Spec, Store
from tasks.report import plots, scaling_plots, words
from tasks.report.stage import report
from tasks.scaling.variants.stage import compare

HOSTILE = '<script>alert("x")</script> & <b>bold</b>'


def make(store, stage, inputs=None, *, label="", files=None, ledger=None, **fields):
    """An artifact with these manifest fields and small files."""
    spec = Spec(stage, 1, "mine", {"label": label}, inputs or {}, label)
    with store.writer(spec), store.draft(spec) as draft:
        for name, text in (files or {}).items():
            (draft.path / name).write_text(text)
        if ledger:
            rows_in, rows_out, rejects = ledger
            draft.ledger = Ledger(**{"in": rows_in, "out": rows_out, "rejects": rejects})
        for name, value in fields.items():
            setattr(draft, name, value)
    return Artifact.load(store.folder(spec))


def curve(steps, start, end, seed=0):
    generator = random.Random(seed)
    rows = [
        {
            "step": step,
            "loss": end + (start - end) * math.exp(-5 * step / steps) + generator.gauss(0, 0.05),
            "lr": 1e-3,
            "tokens": step * 4096,
        }
        for step in range(1, steps + 1)
    ]
    return "".join(json.dumps(row) + "\n" for row in rows)


def sample(text):
    return {"id": "a:1", "origin": "lib/python/this.py", "text": text}


def data_stages(store):
    read = make(
        store,
        "read",
        ledger=(5301, 5294, {"not_utf8": 5, "empty": 2}),
        rows=5294,
        facts={
            "sources": [
                {
                    "label": "stdlib",
                    "path": "python://stdlib",
                    "rows": 5294,
                    "files": 5301,
                    "bytes": 61_238_112,
                    "license": "PSF-2.0",
                }
            ],
            "samples": {"empty": [sample("")], "not_utf8": [sample("\ufffd\ufffd caf\ufffd")]},
        },
    )
    good = make(
        store,
        "filter",
        {"raw": read.fingerprint},
        ledger=(5294, 4420, {"too_short": 512, "repeated_lines": 301, "few_words": 61}),
        rows=4420,
        facts={
            "samples": {
                "too_short": [sample(HOSTILE)],
                "repeated_lines": [sample("x = 1\n" * 9)],
            }
        },
    )
    unique = make(
        store,
        "dedup",
        {"text": good.fingerprint},
        ledger=(4420, 3987, {"exact_duplicate": 104, "near_duplicate": 329}),
        rows=3987,
        facts={"samples": {"near_duplicate": [sample("def main():\n    return 0\n")]}},
    )
    clean = make(
        store,
        "redact",
        {"text": unique.fingerprint},
        ledger=(3987, 3987, {}),
        rows=3987,
        facts={
            "counts": {"email": 812, "ip": 97, "secret": 3},
            "quality": [
                {
                    "kind": "email",
                    "instances": 23,
                    "found": 22,
                    "redactions": 24,
                    "right": 24,
                    "recall": 22 / 23,
                    "precision": 1.0,
                }
            ],
        },
    )
    tokenizer = make(
        store,
        "tokenizer",
        {"text": clean.fingerprint},
        facts={"kind": "bpe", "vocab_size": 4096, "bytes_per_token": 3.42, "fertility": 1.61},
    )
    split = {"documents": 3790, "tokens": 11_920_433, "bytes": 40_767_880}
    shards = make(
        store,
        "shards",
        {"text": clean.fingerprint, "tokenizer": tokenizer.fingerprint},
        ledger=(3987, 3987, {}),
        tokens=11_920_433,
        facts={
            "vocab_size": 4096,
            "dtype": "uint16",
            "tokenizer_sha256": "0" * 64,
            "vocabulary_use": 0.998,
            "train": split,
            "heldout": {"documents": 197, "tokens": 601_221, "bytes": 2_050_131},
        },
    )
    return [read, good, unique, clean, tokenizer, shards]


def models(store, shards):
    pretrain = make(
        store,
        "pretrain",
        {"shards": shards.fingerprint},
        tokens=4_000_000,
        files={"metrics.jsonl": curve(980, 8.3, 3.1)},
        metrics={"params": 1_312_896.0, "loss": 3.0812, "tokens_per_second": 21_004.0},
    )
    evaluate = make(
        store,
        "evaluate",
        {"model": pretrain.fingerprint, "shards": shards.fingerprint},
        metrics={
            "heldout_loss": 3.1207,
            "perplexity": 22.66,
            "bits_per_byte": 1.3164,
            "bits_per_byte_witten_bell": 1.9702,
        },
    )
    counts = [[38, 6, 3, 3], [5, 41, 2, 2], [9, 4, 30, 7], [2, 1, 4, 43]]
    classify = make(
        store,
        "classify",
        {"model": pretrain.fingerprint},
        files={"metrics.jsonl": curve(300, 1.4, 0.5, seed=1)},
        metrics={"accuracy": 0.76, "accuracy_majority": 0.25, "macro_f1": 0.7571},
        facts={"labels": ["email", "asyncio", "tkinter", "json"], "confusion": counts},
    )
    instruct = make(
        store,
        "instruct",
        {"model": pretrain.fingerprint},
        files={"metrics.jsonl": curve(160, 4.2, 2.6, seed=2)},
        metrics={"heldout_loss": 2.81},
    )
    answers = make(
        store,
        "answers",
        {"instruct": instruct.fingerprint},
        rows=24,
        metrics={"answers_bleu": 2.31, "answers_chrf": 18.4, "answers_rougeL": 0.148},
        facts={
            "samples": [
                {
                    "input": "Write a docstring for: def closed(self): ...",
                    "prediction": "Return True if the file is closed.",
                    "reference": "True if the stream is closed.",
                    "sampled": [HOSTILE, ""],
                }
            ]
        },
    )
    judge = make(
        store,
        "judge",
        {"answers": answers.fingerprint, "instruct": instruct.fingerprint},
        metrics={"judge_geval_correctness": 2.94},
        facts={
            "means": {"geval_correctness": 2.94, "geval_fluency": 3.08, "qag_coverage": None},
            "intervals": {"geval_correctness": [2.81, 3.07], "geval_fluency": [2.9, 3.2]},
            "spreads": {"geval_correctness": 1.21, "geval_fluency": 1.19},
            "baselines": {"geval_correctness": 2.9, "geval_fluency": 3.1},
            "random": {"geval_correctness": 3.0},
            "canaries": {"geval_correctness": {"scores": {"colon": 5, "empty": 1}, "fooled": [""]}},
            "warnings": ["geval_correctness: known bad answers scored above the middle."],
            "unscored": {"no_questions": 16},
            "judge": "this run's instruct model",
            "note": "The judge is the small model of this run itself.",
        },
    )
    return [pretrain, evaluate, classify, instruct, answers, judge]


def sweep(store, shards):
    from tasks.scaling.law.settings import FitSettings
    from tasks.scaling.law.stage import fit, forecast

    runs = []
    for width in (32, 48, 64):
        for tokens in (100_000, 200_000, 400_000):
            params = 12 * 3 * width**2 + 4096 * width
            loss = 2.6 + 90 / params**0.34 + 160 / tokens**0.37
            runs.append(
                make(
                    store,
                    "sweep",
                    {"shards": shards.fingerprint},
                    label=f"d{width}-t{tokens // 1000}k",
                    facts={"width": width},
                    metrics={
                        "params": float(params),
                        "tokens": float(tokens),
                        "flops": 6.0 * params * tokens,
                        "loss": loss * (1 + random.Random(params + tokens).gauss(0, 0.004)),
                        "bits_per_byte": loss / math.log(2) / 3.42,
                        "seconds": params * tokens / 5e9,
                    },
                )
            )
    why = "step 12 of 390: loss nan, gradient norm nan"
    figures = {"params": 1e5, "tokens": 5e4, "flops": 3e10}
    facts = {"width": 32, "status": "diverged", "why": why}
    runs.append(make(store, "sweep", label="d32-t50k", metrics=figures, facts=facts))
    held = runs.pop(8)
    target = {"name": "d64-t400k"} | {
        key: held.manifest.metrics[key] for key in ("params", "tokens", "flops")
    }
    settings = FitSettings(bootstrap=50)
    law = build(fit, store, runs=runs, targets=[target], settings=settings)
    return [*runs, held, law, build(forecast, store, fit=law, runs=[held])]


@pytest.fixture(scope="module")
def everything(tmp_path_factory):
    store = Store(tmp_path_factory.mktemp("store"))
    data = data_stages(store)
    return store, [*data, *models(store, data[-1]), *sweep(store, data[-1])]


def page_of(store, artifacts):
    return build(report, store, artifacts=artifacts).file("report.html").read_text()


@pytest.fixture(scope="module")
def page(everything):
    return page_of(*everything)


def text_of(html):
    """The page's words, without tags."""
    return re.sub(r"\s+", " ", re.sub(r"<style>.*?</style>|<[^>]+>", " ", html, flags=re.DOTALL))


class Balance(HTMLParser):
    """Collects unclosed tags, outside drawings."""

    void = frozenset({"meta", "br", "img", "input", "path", "use", "rect", "link"})

    def __init__(self):
        super().__init__()
        self.open, self.faults = [], []

    def handle_starttag(self, tag, attrs):
        if tag not in self.void:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag not in self.void and (not self.open or self.open.pop() != tag):
            self.faults.append((tag, self.getpos()))


def test_page_is_well_formed_and_self_contained(page):
    parser = Balance()
    parser.feed(page)
    assert (parser.faults, parser.open) == ([], [])
    without_drawings = re.sub(r"<svg.*?</svg>", "", page, flags=re.DOTALL)
    assert "http" not in without_drawings
    assert not re.search(r"<(script|link|img|iframe|object)\b", page)
    assert re.findall(r'(?:href|src)="(?!#)[^"]*"', page) == []
    assert not re.search(r"url\((?!#)|@import", page)


def test_headline_sets_each_figure_beside_its_baseline(page):
    words_of_page = text_of(page)
    for expected in (
        "bits per byte 1.316 Witten-Bell 1.97",
        "accuracy 0.76 majority class 0.25",
        "parameters 1.31 M trained on 4 M tokens",
    ):
        assert expected in words_of_page


def test_ledger_shows_reasons_largest_first_and_samples(page):
    words_of_page = text_of(page)
    assert "filter 5,294 4,420 874 too short 512, repeated lines 301, few words 61" in words_of_page
    assert "email 812 23 0.957 24 1 ip 97 – – – – secret 3" in words_of_page
    assert "lib/python/this.py" in words_of_page


def test_text_from_outside_is_escaped(page):
    assert HOSTILE not in page
    assert page.count("&lt;script&gt;alert(") == 2


def test_sweep_shows_forecast_doubt_and_the_diverged_run(page):
    words_of_page = text_of(page)
    assert "times the compute of the largest run in the fit" in words_of_page
    assert "Forecast, made before the runs it is about" in words_of_page
    assert "power in compute" in words_of_page
    assert "d32-t50k takes no part: step 12 of 390: loss nan" in words_of_page


def test_judge_is_shown_with_its_note_baseline_and_unscored_rows(page):
    words_of_page = text_of(page)
    assert "The judge is the small model of this run itself." in words_of_page
    assert "judge geval" not in words_of_page
    assert "G-Eval correctness 2.94 2.81 to 3.07 1.21 2.9 3 1 of 2" in words_of_page
    assert "known bad answers scored above the middle." in words_of_page
    assert "Not scored: no questions 16." in words_of_page


def test_every_artifact_is_in_the_lineage(everything, page):
    for artifact in everything[1]:
        assert artifact.fingerprint[:8] in page


def test_each_training_has_a_drawn_curve(page):
    for stage in ("pretrain", "classify", "instruct"):
        assert f'aria-label="Training loss of {stage} by step"' in page
    assert page.count("<svg") == 3 + 5  # and the sweep's: compute, data, size, optimum, residuals


@pytest.mark.parametrize("kept", [0, 1, 3, 6, 7, 9])
def test_partial_runs_report_too(everything, kept):
    store, artifacts = everything
    html = page_of(store, artifacts[:kept] or [artifacts[4]])
    assert "<h2>Lineage</h2>" in html
    assert ("<h2>Judgement</h2>" in html, "<h2>Scaling law</h2>" in html) == (False, False)


def test_artifacts_without_facts_do_not_break_the_page(tmp_path):
    store = Store(tmp_path)
    names = ("read", "tokenizer", "shards", "pretrain", "classify", "answers", "judge", "fit")
    html = page_of(store, [make(store, name) for name in names])
    assert "<h2>Training</h2>" not in html


def test_same_artifacts_same_page(everything):
    store, artifacts = everything
    first = page_of(store, artifacts)
    again = build(report, store, artifacts=artifacts, force=True)
    assert again.file("report.html").read_text() == first


def test_the_page_holds_results_alone(everything, tmp_path):
    """The same results made at another time, on a slower machine, with other libraries."""
    store, artifacts = everything
    first = page_of(store, artifacts)
    other = Store(tmp_path / "other")
    slower = []
    for artifact in artifacts:
        at = {"seconds": 1e4, "created": "2031-01-01T00:00:00", "libraries": {"numpy": "9.9"}}
        at |= {"resources": {"cpu_seconds": 1e4, "peak_bytes": 9e9, "bytes_per_second": 7.0}}
        costs = {k: 1.0 for k in artifact.manifest.metrics if words.is_cost(k)}
        at |= {"metrics": artifact.manifest.metrics | costs}
        facts = dict(artifact.manifest.facts)
        if "runs" in facts:
            facts["runs"] = [run | {"seconds": 1e4} for run in facts["runs"]]
        manifest = artifact.manifest.model_copy(update=at | {"facts": facts})
        slower.append(dataclasses.replace(artifact, manifest=manifest))
    assert page_of(other, slower) == first
    assert "tokens per second" not in text_of(first)


def test_every_plot_is_enlarged_by_a_press_without_script_or_link(page):
    labels = re.findall(r'<label class="plot"><input type="checkbox"[^>]*><svg', page)
    assert len(labels) == page.count("<svg")
    assert "<script" not in page and 'href="#' not in page.split("<svg")[0]


def test_legends_lie_beside_the_data_and_letters_are_legible():
    """At the page's width a plot has 26.5 rem, 318 points."""
    curves = [[(float(x), 5.0 - x / 99) for x in range(99)] for _ in range(2)]
    figure = Figure(figsize=(4.8, 2.8), layout="constrained")
    axes = figure.add_subplot()
    for label in ("width 16", "width 32", "width 64", "width 128", "width 256"):
        axes.plot([0, 1], [0, 1], label=label)
    plots.legend(axes)
    figure.draw_without_rendering()
    (drawn,) = figure.legends
    assert not drawn.get_window_extent().overlaps(axes.get_window_extent())
    assert drawn.get_window_extent().x1 <= figure.bbox.x1
    svg = plots.loss_curves(curves, "step", "pretrain")
    width = float(re.search(r'viewBox="0 0 ([\d.]+) ', svg)[1])
    sizes = [float(size) for size in re.findall(r"font-size: ([\d.]+)px", svg)]
    assert sizes and min(sizes) * 424 / width >= 12  # pixels; 9 points


def test_the_name_of_an_axis_is_not_longer_than_the_plot():
    with rc_context(plots.STYLE):
        figure = Figure(figsize=scaling_plots.SIZE, layout="constrained")
        axes = figure.add_subplot()
        scaling_plots._collapse({"share": [0.5, 1.0], "d16-t8k": [1.1, 1.0]}, (), axes)
        figure.draw_without_rendering()
    name = axes.yaxis.label.get_window_extent()
    assert figure.bbox.y0 <= name.y0 and name.y1 <= figure.bbox.y1


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, "–"),
        (12345, "12,345"),
        (1_312_896.0, "1.31 M"),
        (999_600, "999,600"),
        (999_600_000_000, "1 T"),
        (1.31642, "1.316"),
        (3.2e-5, "3.20 × 10⁻⁵"),
        (1.5e18, "1.50 × 10¹⁸"),
        ("bpe", "bpe"),
        (0.0, "0"),
    ],
)
def test_numbers_in_words(value, expected):
    assert words.number(value) == expected


def test_durations_sizes_and_errors_in_words():
    assert [words.duration(s) for s in (0.83, 12.2, 200, 7500)] == [
        "0.8 s", "12 s", "3 min 20 s", "2 h 5 min",
    ]  # fmt: skip
    assert [words.size(b) for b in (12, 2048, 61_238_112)] == ["12 B", "2.0 KiB", "58.4 MiB"]
    assert words.signed_percent(-0.0131) == "−1.3 %"


def test_variants_are_shown_with_their_doubt_and_none_stands_for_the_run(tmp_path):
    store = Store(tmp_path)
    scores, runs = [], []
    for depth in (1, 2):
        for seed in (0, 1):
            loss = 3.0 - depth / 10 + seed / 7 * depth
            found = {"bits_per_byte": loss, "heldout_loss": loss, "bits_per_byte_witten_bell": 2.5}
            inputs = {"n": f"{depth}{seed}"}
            scores.append(make(store, "evaluate", inputs, metrics=found, label=f"depth={depth}"))
            network = {"family": ("encoder", "decoder")[depth - 1], "objective": "causal"}
            network |= {"params": 1_312_896, "flops": 2.34e12}
            about = {"label": f"depth={depth}", "values": {"depth": depth}, "network": network}
            runs.append(about | {"seed": seed})
    table = build(compare, store, scores=scores, runs=runs)
    html = page_of(store, [*scores, table])
    told = text_of(html)
    assert "None is called best: depth=2 is not shown to be better than depth=1: 2 seeds" in told
    (heads,) = re.findall(r"<tr><th>variant</th>.*</tr>", html)
    assert heads.count("<th") <= 7  # more do not fit a page's width
    assert "depth=2 decoder, causal 1.31 M parameters, 2.34 T FLOPs 2.943 2 2.943" in told
    assert "2.943 1.128 to 4.758 -0.0286 -0.936 to +0.879 .38" in told
    assert 'aria-label="bits per byte of each variant, with 95 % intervals over seeds"' in html
    assert "Witten-Bell" not in told and "<h2>Scores</h2>" not in html
