import gzip
import json
import random
from pathlib import Path
from typing import Any

import pytest

from cluster.errors import BadInput
from tasks.evaluation.overlap.meteor import TOKEN, meteor, meteor_tokens, tokens
from tasks.evaluation.overlap.scores import METRICS, PLAIN, Manner, columns, score
from tasks.evaluation.overlap.wordnet import folder
from tasks.evaluation.predictions import score_files


def write(path: Path, *rows: Any) -> Path:
    path.write_text("".join((r if isinstance(r, str) else json.dumps(r)) + "\n" for r in rows))
    return path


def test_every_metric_answers_for_corpus_and_rows(tmp_path: Path) -> None:
    path = write(
        tmp_path / "p.jsonl",
        {
            "id": "a",
            "prediction": "the cat sat on the mat",
            "references": ["the cat is on the mat", "there is a cat on the mat"],
        },
        {"prediction": "police killed the gunman", "reference": "police kill the gunman"},
    )
    local = [m for m in METRICS if m not in ("bertscore", "learned")]
    result = score_files([path], local)
    assert set(result["corpus"]) == set(local) == set(result["signatures"])
    assert [row.get("id") for row in result["rows"]] == ["a", None]
    assert result["rows"][1]["rougeL"]["fmeasure"] == 0.75
    assert result["rows"][1]["rouge1"] == {"precision": 0.75, "recall": 0.75, "fmeasure": 0.75}
    mean = (result["rows"][0]["meteor"] + result["rows"][1]["meteor"]) / 2
    assert result["corpus"]["meteor"] == pytest.approx(mean)


def test_intervals_widen_when_rows_of_a_document_are_drawn_together(tmp_path: Path) -> None:
    rows = [
        {"doc": i // 8, "prediction": "a b c d" if i // 8 % 2 else "x", "reference": "a b c d"}
        for i in range(64)
    ]
    path = write(tmp_path / "p.jsonl", *rows)
    result, grouped = (score_files([path], ["rouge1", "bleu"], group=g) for g in (None, "doc"))
    assert result["n"] == 64
    for metric in ("rouge1", "bleu"):
        (low, high), (wider_low, wider_high) = (r["intervals"][metric] for r in (result, grouped))
        value = result["corpus"][metric]
        assert low < (value["fmeasure"] if metric == "rouge1" else value) < high
        assert wider_high - wider_low > 1.5 * (high - low)
    with pytest.raises(BadInput, match="row 1 has no 'page' to group by"):
        score_files([path], ["rouge1"], group="page")


def test_scored_rows_are_written_for_agreement_with_people(tmp_path: Path) -> None:
    from tasks.evaluation.statistics.agreement import agree_file

    texts = ["a b c d", "a b c x", "a b y x", "q"]
    rows = [
        {"prediction": text, "reference": "a b c d", "people": 5 - i, "größe": "ja"}
        for i, text in enumerate(texts)
    ]
    scored = tmp_path / "scored.jsonl"
    score_files([write(tmp_path / "p.jsonl", *rows)], ["rouge1", "chrf"], to=scored)
    found = [json.loads(line) for line in scored.read_text().splitlines()]
    assert [row["rouge1"] for row in found] == [1.0, 0.75, 0.5, 0.0]
    assert found[0]["größe"] == "ja"
    assert agree_file(scored, "people", "rouge1")["kendall"] == pytest.approx(1.0)


def test_ter_is_sacrebleus_to_the_last_bit() -> None:
    """Of lengths that are thirds: their sum depends on the order."""
    from sacrebleu.metrics import TER

    words = ["a", "b", "c", "d", "e", "f", "g"]
    draw = random.Random(0)
    texts = [" ".join(draw.choices(words, k=draw.randint(0, 5))) for _ in range(800)]
    predictions, *streams = texts[:200], texts[200:400], texts[400:600], texts[600:]
    theirs = TER().corpus_score(predictions, streams)
    references = [list(row) for row in zip(*streams, strict=True)]
    column = columns(predictions, references, ["ter"])["ter"]
    assert column.corpus() == theirs.score
    one = TER().sentence_score(predictions[7], references[7])
    assert column.rows[7] == one.score
    assert column.signature.startswith("ter|nrefs:3|case:lc|tok:tercom|norm:no|punct:yes|asian:no|")


def test_perfect_and_empty_predictions() -> None:
    names = ["bleu", "chrf", "meteor", "rouge1"]
    good = score(["a b c d e"], [["a b c d e"]], names)["corpus"]
    assert (good["bleu"], good["chrf"]) == (pytest.approx(100), pytest.approx(100))
    assert good["meteor"] == pytest.approx(1 - 0.5 / 5**3)
    nothing = score([""], [["a b c d e"]], names)["corpus"]
    assert [nothing[n] for n in ("bleu", "chrf", "meteor")] == [0, 0, 0]


def test_seven_times_the() -> None:
    # Clipped unigram precision of "the" x 7: 1/7 with one "the" in each reference, 2/7 with two.
    import sacrebleu

    once = ["the cat is on a mat", "there is a cat on the mat"]
    twice = ["the cat is on the mat", "there is a cat on the mat"]
    assert [sacrebleu.sentence_bleu("the " * 7, r).precisions[0] / 100 for r in (once, twice)] == [
        pytest.approx(1 / 7),
        pytest.approx(2 / 7),
    ]


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        ("{not json", "line 2 is not JSON"),
        ("[1]", "line 2 is not a JSON object"),
        ({"references": ["x"]}, "line 2 has no text in 'prediction'"),
        ({"prediction": "x"}, "line 2 has no list of texts in 'references'"),
        ({"prediction": "x", "references": []}, "line 2 has no list of texts in 'references'"),
        ({"prediction": "x", "references": [3]}, "line 2 has no list of texts in 'references'"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, bad: Any, words: str) -> None:
    path = write(tmp_path / "p.jsonl", {"prediction": "x", "references": ["x"]}, bad)
    with pytest.raises(BadInput, match=words):
        score_files([path], ["bleu"])


def test_unusable_requests_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="did you mean 'rougeL'"):
        score(["x"], [["x"]], ["rouge-L"])
    with pytest.raises(BadInput, match="needs an encoder"):
        score(["x"], [["x"]], ["bertscore"])
    with pytest.raises(BadInput, match="1 of them empty"):
        score(["x"], [[]], ["bleu"])
    with pytest.raises(BadInput, match="has no rows"):
        score_files([write(tmp_path / "p.jsonl")], ["bleu"])
    with pytest.raises(BadInput, match="cannot be read"):
        score_files([tmp_path / "absent.jsonl"], ["bleu"])


def test_a_line_separator_inside_a_text_does_not_end_the_line(tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    line = '{"prediction": "a\u2028b", "reference": "a\u2028b"}\n'.encode()
    for content in (line, gzip.compress(line), b"\xef\xbb\xbf" + line):
        path.write_bytes(content)
        assert len(score_files([path], ["rouge1"])["rows"]) == 1


def test_published_sacrebleu_cases(eval_data: Path) -> None:
    cases = json.loads((eval_data / "bleu/sacrebleu_unit_vectors.json").read_text())
    references = [list(row) for row in zip(*cases["refs"], strict=True)]
    manners = {
        "default(13a,exp)": PLAIN,
        "tokenize=none": Manner(tokenize="none"),
        "tokenize=intl": Manner(tokenize="intl"),
        "smooth=none": Manner(smooth="none"),
    }
    for name, manner in manners.items():
        column = columns(cases["hyps"], references, ["bleu"], manner)["bleu"]
        assert column.corpus() == pytest.approx(cases["corpus_bleu"][name], abs=1e-6)
    assert columns([""] * 3, references, ["bleu"])["bleu"].corpus() == 0
    floor = Manner(smooth="floor", smooth_value=0.01, tokenize="none")
    for predictions, streams, expected in cases["effective_order/100"]:
        column = columns(predictions, [streams[0]], ["bleu"], floor)["bleu"]
        assert column.rows[0] == pytest.approx(100 * expected)
    for predictions, streams, expected in cases["raw_corpus_bleu(offset .01)/100"]:
        rows = [list(row) for row in zip(*streams, strict=True)]
        column = columns(predictions, rows, ["bleu"], floor)["bleu"]
        assert column.corpus() == pytest.approx(100 * expected)
        assert "smooth:floor[0.01]" in column.signature


@pytest.fixture(scope="module")
def wmt17(eval_data: Path) -> tuple[dict[str, list[str]], list[list[str]], dict[str, list[float]]]:
    """Systems by name, references, and per system: chrF and chrF++ if known, BLEU, TER."""
    raw = (eval_data / "bleu/wmt17_ende_8systems.json.gz").read_bytes()
    data = json.loads(gzip.decompress(raw))
    expected = json.loads((eval_data / "bleu/wmt17_ende_expected.json").read_text())["scores"]
    return dict(data["systems"]), [[text] for text in data["references"][0]], expected


def test_a_published_translation_system(wmt17: Any) -> None:
    systems, references, expected = wmt17
    name = "newstest2017.FBK.4870.en-de"
    manner = Manner(chrf_eps=True)
    found = columns(systems[name], references, ["chrf", "bleu"], manner)
    assert round(found["chrf"].figure(), 4) == expected[name][0]
    assert round(found["bleu"].figure(), 2) == expected[name][2]
    assert "eff:no" in found["chrf"].signature


@pytest.mark.slow  # 48,000 sentences
def test_all_published_translation_systems(wmt17: Any) -> None:
    systems, references, expected = wmt17
    for name, predictions in systems.items():
        bleu = columns(predictions, references, ["bleu"])["bleu"].figure()
        assert round(bleu, 2) in expected[name]
        if len(expected[name]) == 4:
            found = columns(predictions, references, ["chrf", "chrf++"], Manner(chrf_eps=True))
            assert [round(c.figure(), 4) for c in found.values()] == expected[name][:2]
            ter = columns(predictions, references, ["ter"])["ter"].figure()
            assert round(ter / 100, 3) == expected[name][-1]


def test_meteor_as_published(eval_data: Path) -> None:
    vectors = json.loads((eval_data / "rouge/meteor_nltk_vectors.json").read_text())
    case = vectors["papineni_example"]
    first, second, *references = [
        [word.lower() for word in words] for words in (case["hyp1"], case["hyp2"], *case["refs"])
    ]
    single = meteor_tokens(first, references[0])
    assert single == pytest.approx(case["scores"]["single(r1,hyp1)"], abs=1e-9)
    best = max(meteor_tokens(second, reference) for reference in references)
    assert best == pytest.approx(case["scores"]["meteor_score([r1..r3],hyp2)"], abs=1e-9)


def test_meteor_of_published_summaries(eval_data: Path) -> None:
    lines = (eval_data / "rouge/multiling2011_first6.jsonl").read_text().splitlines()
    vectors = json.loads((eval_data / "rouge/meteor_nltk_vectors.json").read_text())
    rows = [json.loads(line) for line in lines]
    predictions = [" ".join(r["summary"]["text"]) for r in rows]
    found = meteor(predictions, [[" ".join(t["text"]) for t in r["references"]] for r in rows])
    expected = [v["exact+stem"] for v in vectors["per_summary"]][: len(found)]
    assert found == pytest.approx(expected, abs=1e-9)


def test_meteor_with_synonyms_of_published_summaries(eval_data: Path) -> None:
    if not (folder() / "data.noun").is_file():
        pytest.skip("WordNet is not installed (Debian: wordnet-base)")
    lines = (eval_data / "rouge/multiling2011_first6.jsonl").read_text().splitlines()
    vectors = json.loads((eval_data / "rouge/meteor_nltk_vectors.json").read_text())
    rows = [json.loads(line) for line in lines]
    predictions = [" ".join(r["summary"]["text"]) for r in rows]
    references = [[" ".join(t["text"]) for t in r["references"]] for r in rows]
    found = meteor(predictions, references, synonyms=True)
    expected = [v["exact+stem+wordnet3.0"] for v in vectors["per_summary"]][: len(found)]
    assert found == pytest.approx(expected, abs=1e-9)


def test_meteor_tokens_are_words_and_marks() -> None:
    assert tokens("It's 3.5, ok_then!") == ["it", "'", "s", "3", ".", "5", ",", "ok_then", "!"]
    assert TOKEN.findall("") == []


def test_scores_are_split_by_what_was_in_the_training_text(tmp_path: Path) -> None:
    rows = [
        {"id": 1, "prediction": "a b c d", "reference": "a b c d"},
        {"id": "two", "prediction": "a b", "reference": "c d"},
        {"id": "three", "prediction": "x y", "reference": "x z"},
    ]
    path = write(tmp_path / "p.jsonl", *rows)
    items = [{"id": "1", "dirty": True}, {"id": "two", "dirty": False}]
    found = write(tmp_path / "items.jsonl", *items)
    for contamination in (found, tmp_path):
        result = score_files([path], ["rouge1"], contamination=contamination)
        assert result["dirty"]["rows"] == 1 and result["clean"]["rows"] == 2
        assert result["dirty"]["corpus"]["rouge1"]["fmeasure"] == 1
        assert result["clean"]["corpus"]["rouge1"]["fmeasure"] == 0.25
    with pytest.raises(BadInput, match="lists `decontaminate` artifacts"):
        score_files([path], ["rouge1"], contamination=tmp_path / "absent")
