"""Tasks of lm-evaluation-harness: Headrace beside the harness itself, on the same YAML and model.

    uv run --with lm-eval python benchmarks/harness.py FOLDER [--rows 100] [--parts ...]

Five tasks are written over public data in FOLDER: RTE and MRPC with two choices (cls/rte.zip,
cls/mrpc.train.tsv.zst), wikitext-2 rolled over (pretrain/wikitext-2.valid.tokens.zst), GSM8K to be
written (instruct/gsm8k.train.jsonl.zst), a cloze of TREC's questions (cls/trec_qc.zip); a group of
two of them, and one small LLaMA of random weights. Then:

    requests    what both would ask, letter for letter
    figures     what `headrace exam` and the harness's `hf` backend find with the same folder
    served      log-likelihoods by the harness's `local-completions` from a server of ours, and
                texts by `local-chat-completions`, beside those computed directly

A line for each task says what differs. The exit status is 1 where something does.
"""

import argparse
import json
import os
import re
import sys
import tempfile
import threading
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml
from fairness import need

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("HF_DATASETS_OFFLINE", "1")
CONTEXT = 512
CLOSE = 1e-4
PAIR = re.compile(
    r"<pair[^>]*(?:entailment|value)=\"(\w+)\"[^>]*>\s*<t>(.*?)</t>\s*<h>(.*?)</h>", re.S
)
GROUP = {
    "group": "sentence_pairs",
    "task": ["rte", "mrpc"],
    "aggregate_metric_list": [
        {"metric": "acc", "weight_by_size": True},
        {"metric": "acc_norm", "weight_by_size": False},
    ],
}


def main() -> int:
    """Print a line for each comparison; 1 where one fails."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path, help="the folder with the data sets")
    parser.add_argument("--rows", type=int, default=100, help="of each task")
    parser.add_argument("--parts", nargs="+", default=["requests", "figures", "served"])
    options = parser.parse_args()
    need(lm_eval="lm-eval")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["HF_HOME"] = os.environ["HEADRACE_HOME"] = folder
        tasks, model = Path(folder, "tasks"), Path(folder, "model")
        write_tasks(tasks, options.data, options.rows)
        make_model(model, options.data)
        parts: dict[str, Callable[[Path, Path], bool]] = {
            "requests": requests_are_equal,
            "figures": figures_are_equal,
            "served": served_alike,
        }
        found = [parts[name](tasks, model) for name in options.parts]
        return int(not all(found))


def write_tasks(folder: Path, data: Path, count: int) -> None:
    """YAML and JSON lines of every task."""
    folder.mkdir()
    for name, about in TASKS.items():
        rows = list(about["rows"](data))
        shown, asked = rows[count : count + 40], rows[:count]
        for split, lines in (("train", shown), ("test", asked)):
            text = "".join(json.dumps(row) + "\n" for row in lines)
            (folder / f"{name}.{split}.jsonl").write_text(text)
        files = {s: str(folder / f"{name}.{s}.jsonl") for s in ("train", "test")}
        head = {"task": name, "dataset_path": "json", "dataset_kwargs": {"data_files": files}}
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(head | about["keys"]))
    (folder / "sentence_pairs.yaml").write_text(yaml.safe_dump(GROUP))


def make_model(folder: Path, data: Path) -> None:
    """A LLaMA of three million weights, drawn at random, with a tokenizer of the texts' own."""
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    from model import hub
    from model.shapes import from_depth
    from model.transformer import Transformer
    from tasks.tokens.chat import write_tokenizer_config
    from tasks.tokens.encoder import SPECIALS

    torch.manual_seed(0)
    found = Tokenizer(models.BPE())
    found.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    found.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(
        vocab_size=2048, special_tokens=[*SPECIALS], initial_alphabet=alphabet, show_progress=False
    )
    texts = [row["page"] for row in wikitext(data)]
    found.train_from_iterator(texts, trainer)
    config = from_depth(4, vocab_size=found.get_vocab_size(), context=CONTEXT, width=192, heads=6)
    network = Transformer(config)
    with torch.no_grad():
        # At its start a network finds all tokens about equally likely: spread them.
        network.embedding.weight.mul_(4)
    folder.mkdir()
    hub.save(folder, network)
    found.save(str(folder / "tokenizer.json"))
    write_tokenizer_config(folder, CONTEXT)


def harness_requests(tasks: Path, names: list[str]) -> dict[str, list[tuple[Any, ...]]]:
    """What the harness would ask, by task."""
    from lm_eval.tasks import TaskManager

    found = TaskManager(include_path=str(tasks), include_defaults=False).load(names)["tasks"]
    requests = {}
    for name, task in found.items():
        task.set_config(key="num_fewshot", value=task.get_config("num_fewshot") or 0)
        task.set_fewshot_seed(seed=1234)
        task.build_all_requests()
        requests[name] = [instance.args for instance in task.instances]
    return requests


def our_requests(tasks: Path, name: str) -> list[tuple[Any, ...]]:
    """What Headrace would ask."""
    from tasks.evaluation.exams.harness.reading import read_task
    from tasks.evaluation.exams.harness.requests import asked

    (task,) = read_task(tasks / f"{name}.yaml").tasks
    return [request for row in asked(task) for request in row.requests]


def requests_are_equal(tasks: Path, model: Path) -> bool:
    """Context and continuation of every request, as strings."""
    theirs = harness_requests(tasks, list(TASKS))
    good = True
    for name in TASKS:
        ours = our_requests(tasks, name)
        differ = [n for n, (a, b) in enumerate(zip(ours, theirs[name], strict=False)) if a != b]
        same = not differ and len(ours) == len(theirs[name])
        print(f"requests {name:10} {len(ours):5} ours {len(theirs[name]):5} theirs", _word(same))
        for number in differ[:1]:
            print(f"  ours   {ours[number]!r}\n  theirs {theirs[name][number]!r}")
        good &= same
    return good


def figures_are_equal(tasks: Path, model: Path) -> bool:
    """The figures of every task and of the group, by the harness's own backend and by ours."""
    theirs = evaluated(tasks, "hf", f"pretrained={model},device=cpu,dtype=float32,batch_size=8")
    good = True
    for name in (*TASKS, GROUP["group"]):
        for figure, ours in our_figures(tasks / f"{name}.yaml", model).items():
            if "/" in figure and name == GROUP["group"]:
                continue
            metric, _, chosen = figure.partition("/")
            chosen = chosen or next(iter(FILTERS_OF.get(name, ["none"])))
            other = theirs[name][f"{metric},{chosen}"]
            same = abs(ours - other) <= CLOSE * max(1.0, abs(other))
            print(f"figures {name:14} {figure:28} {ours:12.6f} {other:12.6f}", _word(same))
            good &= same
    return good


def our_figures(path: Path, model: Path) -> dict[str, float]:
    """What `headrace exam` finds."""
    from cluster.store import Store
    from tasks.evaluation.exams.results import named_candidates, take_exam

    (who,) = named_candidates(Store(), str(model))
    artifact, _ = take_exam(Store(), who, path)
    return {name: one["value"] for name, one in artifact.manifest.facts["results"].items()}


def evaluated(tasks: Path, backend: str, args: str, **more: Any) -> dict[str, dict[str, Any]]:
    """The harness's results by task."""
    return dict(_evaluated(tasks, backend, args, **more)["results"])


def _evaluated(
    tasks: Path, backend: str, args: str, names: list[str] | None = None, **more: Any
) -> Any:
    from lm_eval import simple_evaluate
    from lm_eval.tasks import TaskManager

    manager = TaskManager(include_path=str(tasks), include_defaults=False)
    named = names or [*(name for name in TASKS if name not in GROUP["task"]), str(GROUP["group"])]
    return simple_evaluate(
        backend, model_args=args, tasks=named, task_manager=manager, bootstrap_iters=0, **more
    )


def served_alike(tasks: Path, model: Path) -> bool:
    """Log-likelihoods and texts through a server, beside those computed directly."""
    good = True
    with served(model) as url:
        room = f"max_length={CONTEXT},num_concurrent=4,max_retries=1"
        for tokenizer in (
            f"tokenizer_backend=huggingface,tokenizer={model}",
            "tokenizer_backend=auto",
        ):
            args = f"model=mine,base_url={url}/v1/completions,{room},{tokenizer}"
            good &= likelihoods_are_equal(tasks, model, args, tokenizer.partition(",")[0])
        args = f"model=mine,base_url={url}/v1/chat/completions,max_length={CONTEXT}"
        found = _evaluated(
            tasks, "local-chat-completions", args, ["gsm8k"], limit=8, apply_chat_template=True
        )
        texts = [sample["resps"][0][0] for sample in found["samples"]["gsm8k"]]
        good &= texts_are_equal(model, found["samples"]["gsm8k"], texts)
    return good


def likelihoods_are_equal(tasks: Path, model: Path, args: str, shown: str) -> bool:
    """Of the choices of two tasks, of a cloze and of texts; and greedy texts of another."""
    from tasks.evaluation.exams.candidates import LocalCandidate

    candidate, good = LocalCandidate(model), True
    names = [name for name in TASKS if name != "gsm8k"]
    found = _evaluated(tasks, "local-completions", args, names, limit=20)
    for name, samples in found["samples"].items():
        seen = {sample["doc_id"]: sample for sample in samples}
        worst, count = 0.0, 0
        for sample in seen.values():
            requests, answers = sample["arguments"], [one[0] for one in sample["resps"]]
            if name == "wikitext":
                # The harness keeps a token of the context for the one that an endpoint must write.
                direct = [one.nats for one in rolled(candidate, [requests[0][0]], CONTEXT - 2)]
                values = [float(answers[0])]
            else:
                direct = [one.nats for one in candidate.loglikelihood(requests, _silent)]
                values = [float(one[0]) for one in answers]
            count += len(values)
            worst = max(worst, *(abs(a - b) for a, b in zip(values, direct, strict=True)))
        if count:
            same = worst <= CLOSE * (10 if name == "wikitext" else 1)
            print(f"served {shown:30} {name:10} {count:4} values, worst {worst:.2e}", _word(same))
            good &= same
    return good


def rolled(candidate: Any, texts: list[str], context: int) -> Any:
    """Likelihoods of texts that are read in windows of another length."""
    config = candidate._network.config
    candidate._network.config = replace(config, context=context)
    try:
        return candidate.loglikelihood_rolling(texts, _silent)
    finally:
        candidate._network.config = config


def texts_are_equal(model: Path, samples: list[dict[str, Any]], texts: list[str]) -> bool:
    """Greedy answers of a chat, beside those that the network gives alone."""
    from model.generation import Ending, generate
    from tasks.inference.generation import load_model
    from tasks.inference.text_stream import first_stop
    from tasks.tokens.chat import prompt_ids

    network, encoder = load_model(model)
    same = 0
    for sample, text in zip(samples, texts, strict=True):
        prompt, how = sample["arguments"][0]
        said = json.loads(prompt if isinstance(prompt, str) else prompt[0])
        (row,) = generate(network, [prompt_ids(encoder, said)], Ending(32, encoder.ends))
        alone = encoder.decode(row.ids)
        same += alone[: first_stop(alone, how["until"])] == text
    print(
        f"served local-chat-completions gsm8k: {same} of {len(texts)} texts alike",
        _word(same == len(texts)),
    )
    return same == len(texts)


@contextmanager
def served(model: Path) -> Iterator[str]:
    """The URL of a server in this process."""
    import uvicorn

    from model.generation.engine import Capacity
    from tasks.serving.app import Limits, application
    from tasks.serving.run import listening
    from tasks.serving.service import Service

    service = Service(model, "mine", Capacity(), {})
    service.start()
    with listening("127.0.0.1", 0) as socket:
        config = uvicorn.Config(application(service, Limits(), None), log_level="error")
        server = uvicorn.Server(config)
        thread = threading.Thread(target=lambda: server.run(sockets=[socket]))
        thread.start()
        try:
            yield f"http://127.0.0.1:{socket.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()
            service.close(1)


def rte(data: Path) -> Iterator[dict[str, Any]]:
    """RTE-3: text, hypothesis, whether the one entails the other."""
    with zipfile.ZipFile(data / "cls" / "rte.zip") as archive:
        text = archive.read("rte/rte3_dev.xml").decode()
    for label, premise, hypothesis in PAIR.findall(text):
        yield {"premise": premise, "hypothesis": hypothesis, "label": int(label in ("YES", "TRUE"))}


def mrpc(data: Path) -> Iterator[dict[str, Any]]:
    """MRPC: two sentences and whether they mean the same."""
    from tasks.data.row_files import read_text

    for line in read_text(data / "cls" / "mrpc.train.tsv.zst").splitlines()[1:]:
        label, _, _, first, second = line.split("\t")
        yield {"s1": first, "s2": second, "label": int(label)}


def wikitext(data: Path) -> Iterator[dict[str, Any]]:
    """Paragraphs of wikitext-2's validation text."""
    from tasks.data.row_files import read_text

    for line in read_text(data / "pretrain" / "wikitext-2.valid.tokens.zst").splitlines():
        if len(line) > 200:
            yield {"page": line.strip()}


def gsm8k(data: Path) -> Iterator[dict[str, Any]]:
    """Sums in words."""
    from tasks.data.row_files import read_row_file

    for _, row in read_row_file(data / "instruct" / "gsm8k.train.jsonl.zst"):
        yield {"question": row["question"], "answer": row["answer"]}


def cloze(data: Path) -> Iterator[dict[str, Any]]:
    """TREC's questions, the last word of which is to follow."""
    with zipfile.ZipFile(data / "cls" / "trec_qc.zip") as archive:
        name = next(name for name in archive.namelist() if "train" in name)
        text = archive.read(name).decode("latin-1")
    for line in text.splitlines():
        words = line.split()
        if len(words) > 5:
            yield {"head": " ".join(words[1:-2]), "last": words[-2]}


TASKS: dict[str, dict[str, Any]] = {
    "rte": {
        "rows": rte,
        "keys": {
            "output_type": "multiple_choice",
            "test_split": "test",
            "fewshot_split": "train",
            "num_fewshot": 2,
            "description": "Does the first text entail the second?\n\n",
            "doc_to_text": "{{premise}}\nQuestion: {{hypothesis.strip()}} True or False?\nAnswer:",
            "doc_to_target": "{{1 - label}}",
            "doc_to_choice": "{{[hypothesis.split()[0], premise.split()[1]]}}",
            "metric_list": [{"metric": "acc"}, {"metric": "acc_norm"}, {"metric": "mcc"}],
        },
    },
    "mrpc": {
        "rows": mrpc,
        "keys": {
            "output_type": "multiple_choice",
            "training_split": "train",
            "validation_split": "test",
            "num_fewshot": 3,
            "fewshot_config": {"sampler": "first_n", "target_delimiter": "\n"},
            "doc_to_text": "Sentence 1: {{s1}}\nSentence 2: {{s2}}\nThe same?",
            "doc_to_target": "label",
            "doc_to_choice": "{{['no, ' ~ s1.split()[0], 'yes, ' ~ s2.split()[1]]}}",
            "metric_list": [
                {"metric": "acc"},
                {"metric": "acc_norm"},
                {"metric": "f1"},
                {"metric": "brier_score"},
                {"metric": "acc_mutual_info"},
            ],
        },
    },
    "wikitext": {
        "rows": wikitext,
        "keys": {
            "output_type": "loglikelihood_rolling",
            "test_split": "test",
            "doc_to_text": "",
            "doc_to_target": "{{page}}",
        },
    },
    "gsm8k": {
        "rows": gsm8k,
        "keys": {
            "output_type": "generate_until",
            "test_split": "test",
            "fewshot_split": "train",
            "num_fewshot": 1,
            "doc_to_text": "Question: {{question}}\nAnswer:",
            "doc_to_target": "{{answer}}",
            "generation_kwargs": {
                "until": ["Question:", "\n\n"],
                "do_sample": False,
                "max_gen_toks": 32,
            },
            "metric_list": [
                {
                    "metric": "exact_match",
                    "ignore_case": True,
                    "regexes_to_ignore": [",", "\\$", "(?s).*#### ", "\\.$"],
                },
                {"metric": "chrf"},
            ],
            "filter_list": [
                {
                    "name": "strict-match",
                    "filter": [
                        {"function": "regex", "regex_pattern": "#### (\\-?[0-9\\.\\,]+)"},
                        {"function": "take_first"},
                    ],
                },
                {
                    "name": "flexible-extract",
                    "filter": [
                        {"function": "regex", "group_select": -1, "regex_pattern": "(\\w+)"},
                        {"function": "take_first"},
                    ],
                },
            ],
        },
    },
    "cloze": {
        "rows": cloze,
        "keys": {
            "output_type": "loglikelihood",
            "test_split": "test",
            "num_fewshot": 2,
            "doc_to_text": "{{head}}",
            "doc_to_target": "{{' ' + last}}",
            "target_delimiter": "",
        },
    },
}
FILTERS_OF = {
    name: [f["name"] for f in one["keys"].get("filter_list", [])] or ["none"]
    for name, one in TASKS.items()
}


def _silent(done: int, total: int) -> None:
    pass


def _word(same: bool) -> str:
    return "equal" if same else "DIFFERENT"


if __name__ == "__main__":
    sys.exit(main())
