"""The DAG, as plain function calls: each adds stages to a plan and returns what stands for them.

Read `end_to_end` from top to bottom and you have read the pipeline.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from cluster.artifact import Artifact
from cluster.errors import BadInput
from flows.ablation import Scores, ablation
from flows.mixing import mixing
from flows.own_stages import behind, beside
from flows.plan.agreement import check_tokenizers
from flows.plan.dag import Dag, Node
from flows.plan.mixing import mixture_of, packing_of
from flows.recipe import Recipe
from flows.reproducing import reproduction
from flows.sweeping import sweep
from flows.synthetic import Text, grades, lessons, made_beside, taken_in
from tasks.adoption.stage import adopt_tokenizer
from tasks.data.decontamination.stage import decontaminate
from tasks.data.deduplication.stage import dedup, earlier_artifacts
from tasks.data.filtering.stage import filter_text
from tasks.data.privacy.stage import redact
from tasks.data.reading.hashes import FILE
from tasks.data.reading.stage import ReadSettings, read
from tasks.dense.stage import dense
from tasks.evaluation.answers import answers
from tasks.evaluation.exams.definition import EXAM
from tasks.evaluation.exams.during import ExamsDuring
from tasks.evaluation.exams.settings import ExamSettings, sets_of
from tasks.evaluation.exams.stage import exam
from tasks.evaluation.heldout.stage import evaluate
from tasks.evaluation.judging.settings import JudgeSettings
from tasks.evaluation.judging.stage import judge
from tasks.evaluation.judging.steps import StepsSettings, write_steps
from tasks.report.stage import report
from tasks.serving.batch.stage import infer
from tasks.tokens.packing.stage import packing
from tasks.tokens.shards.stage import shards
from tasks.tokens.vocabulary.stage import train_tokenizer
from tasks.training.fresh import fresh
from tasks.training.stage import pretrain
from tasks.tuning.classify.stage import classify
from tasks.tuning.distill.stage import distill
from tasks.tuning.extract.stage import extract
from tasks.tuning.instruct.stage import instruct
from tasks.tuning.label.stage import label
from tasks.tuning.prefer.settings import PreferSettings
from tasks.tuning.prefer.stage import prefer, preferences
from tasks.tuning.regress.stage import regress
from tasks.tuning.text_to_text.settings import TextToTextSettings
from tasks.tuning.text_to_text.stage import summarise, translate
from tasks.vectors.stage import vectors, word_scores


class Data(NamedTuple):
    """What training needs."""

    tokenizer: Node | Artifact
    shards: Node
    made: Node | None


def prepared_text(dag: Dag, recipe: Recipe) -> Text:
    """Sources to clean text, and what a model makes of it."""
    reading = ReadSettings(sources=recipe.sources, **dict(recipe.read))
    then = partial(behind, dag, recipe.stages)
    raw = then(dag.add(read, settings=reading))
    graded = grades(dag, recipe, raw)
    good = then(dag.add(filter_text, raw=raw, settings=recipe.filters, **graded))
    against = earlier_artifacts(dag.store, recipe.dedup)
    earlier: dict[str, Any] = {"against": against} if against else {}
    first = dag.add(dedup, text=good, settings=recipe.dedup, **earlier)
    unique = then(first)
    if recipe.decontaminate:
        unique = then(dag.add(decontaminate, text=unique, settings=recipe.decontaminate))
    clean = then(dag.add(redact, text=unique, settings=recipe.redact))
    return made_beside(dag, recipe, first, clean)


def prepare_data(dag: Dag, recipe: Recipe) -> Data:
    """Sources to token shards."""
    text = prepared_text(dag, recipe)
    tokenizer = tokenized(dag, recipe, text.clean)
    packed = dag.add(shards, text=text.clean, tokenizer=tokenizer, settings=recipe.shards)
    return Data(tokenizer, packed, text.made)


def tokenized(dag: Dag, recipe: Recipe, text: Node) -> Node | Artifact:
    """The tokenizer: one that exists, that of the model to start from, or a new one."""
    if recipe.tokenizer.origin:
        return dag.add(adopt_tokenizer, settings=recipe.tokenizer)
    if recipe.model.origin:
        return started(dag, recipe)
    return dag.add(train_tokenizer, text=text, settings=recipe.vocabulary())


def word_vectors(dag: Dag, recipe: Recipe) -> None:
    """Vectors of the words of the clean text, how they agree with people, what learns from them."""
    if recipe.vectors is None:
        return
    text = prepared_text(dag, recipe).clean
    made = dag.add(vectors, text=text, settings=recipe.vectors, seed=recipe.seed)
    asked = recipe.evaluate.words
    if asked.similarity or asked.analogies:
        dag.add(word_scores, vectors=made, settings=asked)
    for one in recipe.dense:
        dag.add(dense, label=one.name, vectors=made, settings=one, seed=recipe.seed)


def untrained(dag: Dag, recipe: Recipe, task: TextToTextSettings) -> Node:
    """A network without pretraining, for texts of a task; the sources are its tokenizer's."""
    tokenizer = tokenized(dag, recipe, prepared_text(dag, recipe).clean)
    model = recipe.model
    context = (2 if model.family == "decoder" else 1) * (task.length + 1)
    return dag.add(fresh, tokenizer=tokenizer, model=model, context=context, seed=recipe.seed)


def begun(dag: Dag, recipe: Recipe) -> Node | Artifact:
    """What is tuned of a recipe that pretrains nothing."""
    task = recipe.from_nothing
    return untrained(dag, recipe, task) if task else started(dag, recipe)


def started(dag: Dag, recipe: Recipe) -> Node | Artifact:
    """The model that a recipe starts from: an artifact of this home, or one taken in."""
    origin = recipe.model.origin
    assert origin is not None
    given: dict[str, Any] = {}
    if recipe.tokenizer.origin:
        given["tokenizer"] = dag.add(adopt_tokenizer, settings=recipe.tokenizer)
    return taken_in(dag, origin, **given)


def pretrained(dag: Dag, recipe: Recipe, data: Data | None = None, variant: bool = False) -> Node:
    """A pretrained model and its held-out score; a `variant` may fail without failing the run."""
    data = data or prepare_data(dag, recipe)
    arranged = arrangement(dag, recipe, data)
    drawn: dict[str, Any] = {"mixture": mixture} if (mixture := mixture_of(dag, recipe)) else {}
    drawn |= {"variant": True} if variant else {}
    drawn |= {"start": started(dag, recipe)} if recipe.model.origin else {}
    drawn |= sat_on_the_way(dag, recipe)
    model = dag.add(
        pretrain,
        shards=data.shards,
        tokenizer=data.tokenizer,
        settings=recipe.training.model_copy(update={"mixture": (), "exams": None}),
        model=recipe.model,
        seed=recipe.seed,
        **arranged,
        **drawn,
    )
    scored = recipe.evaluate.heldout
    dag.add(evaluate, model=model, shards=data.shards, settings=scored, **arranged)
    return model


def sat_on_the_way(dag: Dag, recipe: Recipe) -> dict[str, Any]:
    """The exams that training is to stop for; none where the recipe names none."""
    training = recipe.training
    if training.exams is None:
        return {}
    asked = tuple(dag.look_up(EXAM, path) for path in training.exams.files)
    if len({one.name for one in asked}) < len(asked):
        names = ", ".join(one.name for one in asked)
        raise BadInput(f"pretrain.exams.files: of {names} two have the same name; rename one")
    return {"exams": ExamsDuring(exams=asked, steps=training.exams.steps(training.steps))}


def arrangement(dag: Dag, recipe: Recipe, data: Data) -> dict[str, Any]:
    """The packing that training needs; nothing where the shards are cut as they lie."""
    settings = packing_of(recipe)
    if settings is None:
        return {}
    return {"packing": dag.add(packing, shards=data.shards, settings=settings)}


def scaling_laws(dag: Dag, recipe: Recipe, data: Data | None = None) -> Node:
    """A grid of small runs, the law fitted to them, and the larger runs that it predicts."""
    if recipe.varies or (recipe.seeds > 1 and not recipe.pretrain):
        return ablation(dag, recipe, partial(variant_score, tuned_too=bool(recipe.variants)))
    if recipe.seeds > 1 or recipe.one_at_a_time:
        asked = f"seeds: {recipe.seeds}, one_at_a_time: {recipe.one_at_a_time}".lower()
        raise BadInput(f"{asked}: of what? Name keys and their values: --over model.depth=2,3")
    if not recipe.asks_for("sweep") or recipe.sweep is None:
        why = next((w for w in recipe.left_out() if w.startswith("sweep")), "give it one")
        raise BadInput(f"recipe '{recipe.name}' has no `sweep` section: {why}")
    data = data or prepare_data(dag, recipe)
    return sweep(dag, recipe, recipe.sweep, data.shards)


def variant_score(dag: Dag, recipe: Recipe, tuned_too: bool) -> Scores:
    """The held-out score of a pretrained model that is one of several, and the last of its tunings
    where it is `tuned_too`; of a recipe that pretrains none, the last of its tunings.
    """
    if recipe.pretrain is None:
        data = prepare_data(dag, recipe) if recipe.synthesize else None
        return Scores(tuned(dag, recipe, begun(dag, recipe), data)[-1])
    model = pretrained(dag, recipe, variant=not tuned_too)
    heldout = next(n for n in dag if n.spec.stage == "evaluate" and n.arguments["model"] is model)
    tunings = tuned(dag, recipe, model) if tuned_too else []
    return Scores(tunings[-1], heldout) if tunings else Scores(heldout)


def tuned(dag: Dag, recipe: Recipe, model: Node | Artifact, data: Data | None = None) -> list[Node]:
    """With heads, to write texts, as a smaller model, to answer and to be preferred."""
    tasks = {
        classify: recipe.classify,
        regress: recipe.regress,
        label: recipe.label,
        extract: recipe.extract,
        translate: recipe.translate,
        summarise: recipe.summarise,
        distill: recipe.distill,
    }
    made = [
        dag.add(task, model=model, settings=settings, seed=recipe.seed)
        for task, settings in tasks.items()
        if recipe.asks_for(task.__name__)
    ]
    if recipe.asks_for("instruct"):
        learnt = lessons(recipe, data.made if data else None)
        settings = recipe.instruct
        made.append(dag.add(instruct, model=model, settings=settings, seed=recipe.seed, **learnt))
    if recipe.asks_for("prefer") and recipe.prefer is not None:
        spoken = next((node for node in made if node.spec.stage == "instruct"), model)
        made.append(preferred(dag, recipe.prefer, recipe.seed, spoken))
    return made


def adapted(dag: Dag, recipe: Recipe, model: Node | Artifact, data: Data | None) -> None:
    """The tunings; answers of the last that answers, and their judgement; exams; rows answered."""
    last = model
    for node in tuned(dag, recipe, model, data):
        last = node if node.spec.stage in ("instruct", "prefer") else last
    if isinstance(last, Node) and last is not model:
        answered(dag, recipe, last)
    for path in recipe.evaluate.exams:
        asked = dag.look_up(EXAM, path)
        asking = ExamSettings(exam=asked, model=_named(last))
        split = searched(dag, [dag.look_up(FILE, rows) for rows in asked.asked_files])
        dag.add(exam, label=asked.name, model=last, settings=asking, **split)
    if recipe.asks_for("infer"):
        dag.add(infer, model=last, settings=recipe.infer, seed=recipe.seed)


def preferred(dag: Dag, settings: PreferSettings, seed: int, model: Node | Artifact) -> Node:
    """A model that has learned from preferences."""
    pairs = dag.add(
        preferences,
        model=model,
        settings=settings.rows(),
        reference=settings.has_reference,
        single=settings.loss == "kto",
    )
    return dag.add(prefer, model=model, preferences=pairs, settings=settings, seed=seed)


def _named(model: Node | Artifact) -> str:
    return model.name if isinstance(model, Artifact) else f"{model.spec.stage}/{model.spec.folder}"


def answered(dag: Dag, recipe: Recipe, tuned: Node) -> None:
    """The answers of a tuned model, and what a judge says of them."""
    if recipe.evaluate.answers:
        asked, judging = recipe.evaluate.answers, recipe.evaluate.judge
        replies = dag.add(answers, instruct=tuned, settings=asked, seed=recipe.seed)
        dag.add(
            judge, answers=replies, instruct=tuned, settings=judging, **rating_steps(dag, judging)
        )


def rating_steps(dag: Dag, settings: JudgeSettings) -> dict[str, Any]:
    """The steps that a judge behind an endpoint writes, once for each criterion, to rate by."""
    if settings.model is None:
        return {}
    wanted = {
        one.name: StepsSettings(
            judge=settings.model, definition=one.definition, scale=one.scale or settings.scale
        )
        for one in settings.chosen()
    }
    nodes = [dag.add(write_steps, label=name, settings=one) for name, one in wanted.items()]
    return {"steps": list({node.name: node for node in nodes}.values())}


def searched(dag: Dag, hashes: Sequence[str]) -> dict[str, Node]:
    """Stage `decontaminate`, where it looks for the rows of these files."""
    stages = (node for node in dag if node.spec.stage == "decontaminate")
    found = [node for node in stages if sets_of(node.spec.settings["settings"], hashes)]
    return {"searched": found[0]} if found else {}


def end_to_end(dag: Dag, recipe: Recipe) -> None:
    """Everything: data, model, tuning and scores, scaling laws; or that of each variant."""
    word_vectors(dag, recipe)
    if recipe.variants:
        scaling_laws(dag, recipe)
    if recipe.variants or not recipe.has_model:
        return
    data = prepare_data(dag, recipe) if recipe.sources and not recipe.from_nothing else None
    model = pretrained(dag, recipe, data) if recipe.pretrain else begun(dag, recipe)
    adapted(dag, recipe, model, data)
    if recipe.asks_for("sweep") and not recipe.over:
        scaling_laws(dag, recipe, data)


def published_law(dag: Dag, recipe: Recipe) -> Node:
    """The claims of a paper, beside its runs refitted and sweeps of one's own."""
    return reproduction(dag, recipe, lambda dag, arm: prepare_data(dag, arm).shards)


def mixed(dag: Dag, recipe: Recipe) -> Node:
    """A mixture of the sources, found by a swarm of small runs and confirmed by larger ones."""
    data = prepare_data(dag, recipe)
    return mixing(dag, recipe, data.shards, data.tokenizer)


def plan(goal: str, dag: Dag, recipe: Recipe) -> Dag:
    """Add the stages of a goal, and the report on them, to a plan."""
    GOALS[goal](dag, recipe)
    beside(dag, recipe.stages, whole=goal == "all")
    dag.add(report, artifacts=list(dag))
    dag.check_rebuild()
    check_tokenizers(dag)
    return dag


GOALS: dict[str, Callable[[Dag, Recipe], object]] = {
    "all": end_to_end,
    "data": prepare_data,
    "pretrain": pretrained,
    "sweep": scaling_laws,
    "reproduce": published_law,
    "mix": mixed,
}
