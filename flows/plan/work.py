"""What a stage has to do, in figures that are known before it runs, and how long that takes on a
machine of which nothing is known yet.

The figures of a stage that was built stand in its manifest as `work`, so that its time and theirs
can be compared (`flows.plan.experience`):

    bytes    of its inputs' files, or of the sources it reads
    files    of these sources
    flops    forward and backward, of what it trains or scores
    steps    of the optimizer; or rows, replies, resamplings
    asked    tokens that are read for exams on the way
    params   of the model that it leaves
    kept     of the checkpoints that it leaves with it
    cold     1 for the first training of a process, which has to import what trains
    rate     FLOP per second that its devices are taken to reach
"""

import math
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from cluster.artifact import Artifact
from cluster.placement import Placement
from cluster.stage import info
from flows.plan.dag import Node
from model.flops import flops_per_token, parameter_count
from tasks.data.reading.settings import SourceSettings
from tasks.data.reading.sources import PYTHON, resolve
from tasks.evaluation.exams.during import ExamsDuring
from tasks.scaling.sweep.plan import MemberSettings, TrunkSettings
from tasks.serving.batch.settings import MOST_TOKENS
from tasks.training.costs import training_flops

Work = dict[str, float]
Sizes = Callable[[Node | Artifact], float]
"""Bytes of the files of an input, those it has or those it is expected to have."""
Steps = MemberSettings | TrunkSettings
# Measured on one server core in fp32 at this width; a GPU: a third of an H100's dense bf16.
CPU_FLOPS_PER_THREAD, NOMINAL_WIDTH = 3.5e10, 96
GPU_FLOPS = 3.3e14
BYTES_PER_PARAM = 4  # weights are written in fp32
KEPT_BYTES = 3 * BYTES_PER_PARAM  # with two moments
VECTOR_FLOPS, TREE_DEPTH = 7e9, 12  # of one core that learns word vectors; of a Huffman tree
TOKENS_OF_A_ROW = 200  # of which nothing is known but the size of its file


def work_of(node: Node, place: Placement, size: Sizes) -> Work:
    """The figures of one stage, its inputs being as large as `size` says."""
    inputs = [
        one for value in (*node.upstream.values(), *node.given.values()) for one in _all(value)
    ]
    found = {"bytes": float(sum(size(one) for one in inputs))}
    more = KINDS.get(node.spec.stage)
    return found | (more(node, place, size) if more else {})


def coldness(function: Callable[..., None]) -> Work:
    """Whether a training is the first of this process: what it imports takes longer than a small
    one.
    """
    return {"cold": float("deepspeed" not in sys.modules)} if info(function).trains else {}


def nominal_speed(place: Placement, width: int | None) -> float:
    """FLOP per second of one training of this width, where none was measured."""
    if place.gpus:
        return GPU_FLOPS * place.gpus * place.workers
    share = min(1.0, ((width or NOMINAL_WIDTH) / NOMINAL_WIDTH) ** 0.8)
    return CPU_FLOPS_PER_THREAD * place.cpu_threads * place.workers * share


def roots(node: Node) -> list[Node]:
    """The trunks that a run of a sweep goes on from."""
    found = (node.arguments.get(name) for name in ("trunk", "before"))
    return [root for root in found if isinstance(root, Node)]


def own_steps(node: Node) -> int:
    """Steps of a run of a sweep that none of its trunks has made."""
    shared = sum(root.literals["settings"].training.steps for root in roots(node))
    return int(node.literals["settings"].training.steps - shared)


def vocabulary(node: Node) -> int:
    """Tokens of the vocabulary that a stage's text is encoded by, as its recipe asks for it."""
    queue = [node]
    while queue:
        one = queue.pop()
        if one.spec.stage == "tokenizer":
            return int(one.literals["settings"].vocab_size)
        queue += [up for value in one.upstream.values() for up in _all(value) if up is not node]
    return 0


def _read(node: Node, place: Placement, size: Sizes) -> Work:
    files = [file for source in resolve(node.literals["settings"].sources) for file in source.files]
    return {"bytes": float(sum(f.text_bytes for f in files)), "files": float(len(files))}


def _tokenizer(node: Node, place: Placement, size: Sizes) -> Work:
    settings = node.literals["settings"]
    text = sum(size(one) for one in _all(node.arguments["text"]))
    # Text lies compressed, at about a third.
    return {"bytes": min(text, settings.text_bytes / 3), "params": 16.0 * settings.vocab_size}


def _vectors(node: Node, place: Placement, size: Sizes) -> Work:
    asked = node.literals["settings"]
    words = sum(size(one) for one in _all(node.arguments["text"])) / 2  # compressed
    found = {"params": float(asked.width * 8 * math.sqrt(words))}  # words differ as Heaps' law says
    if asked.method not in ("skipgram", "cbow"):
        return found
    told = asked.window + 1 if asked.method == "skipgram" else 1
    scored = told * (asked.negatives + 1 if asked.output == "negative_sampling" else TREE_DEPTH)
    flops = 6.0 * asked.width * words * asked.epochs * scored
    return found | {"flops": flops, "rate": VECTOR_FLOPS * place.cpu_threads}


def _dense(node: Node, place: Placement, size: Sizes) -> Work:
    asked = node.literals["settings"]
    rows = float(asked.classes * asked.rows_per_class)
    if not asked.data.startswith(PYTHON):
        rows = _row_tokens(asked.data) / TOKENS_OF_A_ROW
    return {"steps": rows * (1 - asked.heldout_share) * asked.epochs / asked.batch_rows}


def _pretrain(node: Node, place: Placement, size: Sizes) -> Work:
    model, training = node.literals["model"], node.literals["settings"]
    config = model.config(vocabulary(node), training.context)
    asked = _asked_tokens(node.literals.get("exams"))
    tokens = training.tokens + asked / 3  # exams go forward only
    return {
        "flops": float(training_flops(config, training) * tokens),
        "steps": float(training.steps),
        "asked": asked,
        "params": float(parameter_count(config)),
        "kept": float(parameter_count(config) * len(training.kept_steps)),
        "rate": nominal_speed(place, config.width),
    }


def _asked_tokens(exams: ExamsDuring | None) -> float:
    """Tokens that are read for exams during a training, at four bytes each."""
    if exams is None:
        return 0.0
    files = [path for exam in exams.exams for path in exam.asked_files]
    return sum(Path(path).stat().st_size for path in files) / 4 * len(exams.steps)


def _sweep(node: Node, place: Placement, size: Sizes) -> Work:
    settings = node.literals["settings"]
    training = settings.training
    config = settings.model.config(vocabulary(node), training.context)
    each, own = flops_per_token(config, training.context), own_steps(node)
    scored = settings.heldout_tokens if isinstance(settings, MemberSettings) else 0
    state = 3 * parameter_count(config) if isinstance(settings, TrunkSettings) else 0
    return {
        "flops": float(each * (own * training.batch_tokens + scored / 3)),  # scored forward only
        "steps": float(own),
        "params": float(state),
        "rate": nominal_speed(place, config.width),
    }


def _evaluate(node: Node, place: Placement, size: Sizes) -> Work:
    return _scored(node, "model", node.literals["settings"].max_tokens / 3, place, size)


def _classify(node: Node, place: Placement, size: Sizes) -> Work:
    asked = node.literals["settings"]
    rows = asked.classes * asked.rows_per_class * (1 - asked.heldout_share) * asked.epochs
    found = _scored(node, "model", rows * asked.length, place, size)
    return found | {"steps": rows / asked.batch_rows}


def _headed(node: Node, place: Placement, size: Sizes) -> Work:
    """Of a tuning that makes passes over a file of rows."""
    asked = node.literals["settings"]
    tokens = _row_tokens(asked.data)
    found = _scored(node, "model", tokens * asked.epochs, place, size)
    return found | {"steps": tokens / TOKENS_OF_A_ROW * asked.epochs / asked.batch_rows}


def _instruct(node: Node, place: Placement, size: Sizes) -> Work:
    asked = node.literals["settings"]
    found = _scored(node, "model", asked.tokens, place, size)
    return found | {"steps": asked.tokens / asked.batch_tokens}


def _distill(node: Node, place: Placement, size: Sizes) -> Work:
    asked = node.literals["settings"]
    tokens = _row_tokens(asked.data) * asked.epochs
    found = _scored(node, "model", 4 / 3 * tokens, place, size)  # the teacher reads them too
    return found | {"steps": tokens / asked.length / asked.batch_rows}


def _text_to_text(node: Node, place: Placement, size: Sizes) -> Work:
    asked = node.literals["settings"]
    tokens = sum(_row_tokens(one.data) for one in (asked, *asked.also)) * asked.epochs
    found = _scored(node, "model", tokens, place, size)
    return found | {"steps": tokens / asked.batch_tokens}


def _preferences(node: Node, place: Placement, size: Sizes) -> Work:
    tokens = _row_tokens(node.literals["settings"].data)
    return _scored(node, "model", tokens / 3, place, size) | {"params": 0.0}


def _row_tokens(data: str) -> float:
    """Tokens of a file of rows, at four bytes each."""
    (source,) = resolve((SourceSettings(path=data, format="lines"),))
    return sum(file.text_bytes for file in source.files) / 4


def _answers(node: Node, place: Placement, size: Sizes) -> Work:
    asked = node.literals["settings"]
    drawn = asked.rows + asked.samples * min(asked.rows, asked.sampled_rows)
    found = _scored(node, "instruct", drawn * asked.max_tokens / 3, place, size)
    return {**found, "steps": float(drawn * asked.max_tokens), "params": 0.0}


def _infer(node: Node, place: Placement, size: Sizes) -> Work:
    asked = node.literals["settings"]
    read = _row_tokens(asked.data)
    written = read / TOKENS_OF_A_ROW * (asked.max_tokens or MOST_TOKENS)
    found = _scored(node, "model", (read + written) / 3, place, size)
    return {**found, "steps": written, "params": 0.0}


def _judge(node: Node, place: Placement, size: Sizes) -> Work:
    asked = node.literals["settings"]
    texts = 2 if asked.model or place.judge_url else 1  # an endpoint rates a constant answer too
    each = len(asked.criteria) * asked.samples + (1 + 2 * asked.questions if asked.qag else 0)
    return {"steps": float(asked.rows * each * texts), "endpoint": float(texts - 1)}


def _synthesize(node: Node, place: Placement, size: Sizes) -> Work:
    asked = node.literals["settings"]
    each = len(asked.rephrase.styles) if asked.rephrase else 0
    each += 1 + (asked.questions.check == "model") * asked.questions.pairs if asked.questions else 0
    if own := asked.instructions:
        each += own.each * (3 if own.check == "model" else 2)
    characters = 3 * sum(size(one) for one in _all(node.arguments["text"]))  # they lie compressed
    passages = characters / asked.passage_characters
    if asked.documents is not None:
        passages = min(passages, asked.documents * asked.passages)
    return {"steps": float(passages * each), "endpoint": float(asked.origin is None)}


def _grade(node: Node, place: Placement, size: Sizes) -> Work:
    asked = node.literals["settings"]
    return {"steps": float(asked.documents), "endpoint": float(asked.origin is None)}


def _steps(node: Node, place: Placement, size: Sizes) -> Work:
    return {"steps": 1.0, "endpoint": 1.0}


def _fit(node: Node, place: Placement, size: Sizes) -> Work:
    runs = node.arguments["runs"]
    return {"steps": float((1 + node.literals["settings"].bootstrap) * len(runs))}


def _report(node: Node, place: Placement, size: Sizes) -> Work:
    return {"files": float(len(_all(node.arguments["artifacts"])))}


def _scored(node: Node, name: str, tokens: float, place: Placement, size: Sizes) -> Work:
    """Of tokens that go forward and backward through an input that is a model."""
    params = sum(size(one) for one in _all(node.arguments[name])) / BYTES_PER_PARAM
    width = round(math.sqrt(params / 36))  # three layers of a decoder; no more than a guess
    rate = nominal_speed(place, width)
    return {"flops": 6 * params * tokens, "params": params, "rate": rate}


def _all(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


KINDS: Mapping[str, Callable[[Node, Placement, Sizes], Work]] = {
    "read": _read,
    "tokenizer": _tokenizer,
    "vectors": _vectors,
    "dense": _dense,
    "pretrain": _pretrain,
    "sweep": _sweep,
    "trunk": _sweep,
    "evaluate": _evaluate,
    "classify": _classify,
    "regress": _headed,
    "label": _headed,
    "extract": _headed,
    "instruct": _instruct,
    "distill": _distill,
    "preferences": _preferences,
    "prefer": _headed,
    "translate": _text_to_text,
    "summarise": _text_to_text,
    "answers": _answers,
    "infer": _infer,
    "judge": _judge,
    "steps": _steps,
    "synthesize": _synthesize,
    "grade": _grade,
    "fit": _fit,
    "report": _report,
}
