"""The recipe: the one typed description of a run, composed of each stage's own settings.

A recipe is YAML; it needs `name` and `sources`, every other section has defaults. Shipped ones lie
in `flows/recipes/`. Everything is identity but `placement`, which says where a run happens.
"""

import typing
from datetime import date
from pathlib import Path
from typing import Annotated, Any

from pydantic import (
    Field,
    ValidationError,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    field_validator,
    model_validator,
)

from cluster.errors import BadInput
from cluster.placement import Placement
from cluster.settings import Settings, nearest
from flows.days import is_dated, on_day
from flows.lessons import check_made
from flows.overrides import apply_override, assign
from flows.own_stages import OwnStageSettings
from flows.recipe_faults import explain
from flows.yaml_values import read_yaml
from model.objectives.catalog import DEFAULT, special_tokens
from tasks.data.decontamination.settings import DecontaminateSettings
from tasks.data.deduplication.settings import DedupSettings
from tasks.data.filtering.settings import FilterSettings
from tasks.data.privacy.settings import RedactSettings
from tasks.data.reading.settings import ReadingSettings
from tasks.data.reading.stage import SourceSettings
from tasks.dense.settings import DenseSettings
from tasks.evaluation.answers import AnswerSettings
from tasks.evaluation.heldout.settings import HeldoutSettings
from tasks.evaluation.judging.settings import JudgeSettings
from tasks.mixing.settings import MixSettings
from tasks.reproduction.settings import ReproduceSettings
from tasks.scaling.law.settings import FitSettings
from tasks.scaling.sweep.plan import SweepSettings
from tasks.serving.batch.settings import InferSettings
from tasks.synthesis.settings import GradeSettings, ShareSettings, SynthesizeSettings
from tasks.tokens.encoder import special_token
from tasks.tokens.shards.settings import ShardSettings
from tasks.tokens.vocabulary.settings import TokenizerSettings
from tasks.training.agreement import check_exams, check_objective, check_rates, check_sharding
from tasks.training.costs import paid
from tasks.training.model_settings import ModelSettings
from tasks.training.settings import PretrainSettings
from tasks.tuning.classify.settings import ClassifySettings
from tasks.tuning.distill.settings import DistillSettings
from tasks.tuning.extract.settings import ExtractSettings
from tasks.tuning.instruct.settings import InstructSettings
from tasks.tuning.label.settings import LabelSettings
from tasks.tuning.prefer.settings import PreferSettings
from tasks.tuning.regress.settings import RegressSettings
from tasks.tuning.text_to_text.settings import TextToTextSettings
from tasks.vectors.settings import VectorSettings, WordScoreSettings

SHIPPED = Path(__file__).parent / "recipes"
NAME = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$"
ADDED = ("sweep", "classify", "instruct")
"""Sections that are there by default, of a model that is trained from nothing."""
TUNED = (
    *("classify", "regress", "label", "extract"),
    *("instruct", "prefer", "distill", "translate", "summarise"),
)
"""All that a model is tuned to."""


class EvaluateSettings(Settings):
    """How the finished models are measured."""

    heldout: HeldoutSettings = HeldoutSettings()
    answers: AnswerSettings | None = Field(
        AnswerSettings(), description="null: a tuned model is not asked, and nothing is judged"
    )
    judge: JudgeSettings = JudgeSettings()
    exams: tuple[str, ...] = Field((), description="YAML files of exams for the finished model")
    words: WordScoreSettings = WordScoreSettings()


class Recipe(Settings):
    """What to make, stage by stage; `null` leaves an optional stage out."""

    name: str = Field(pattern=NAME, description="names the folders")
    seed: int = Field(
        0, ge=0, description="seed of what is trained, tuned and sampled; text and tokens have none"
    )
    sources: tuple[SourceSettings, ...] = Field(
        (), description="where text comes from; none where pretrain is null"
    )
    read: ReadingSettings = ReadingSettings()
    grade: GradeSettings | None = None
    filters: FilterSettings = FilterSettings()
    dedup: DedupSettings = DedupSettings()
    decontaminate: DecontaminateSettings | None = None
    redact: RedactSettings = RedactSettings()
    synthesize: SynthesizeSettings | None = None
    vectors: VectorSettings | None = None
    dense: tuple[DenseSettings, ...] = Field((), description="networks on these word vectors")
    tokenizer: TokenizerSettings = TokenizerSettings()
    shards: ShardSettings = ShardSettings()
    model: ModelSettings = ModelSettings()
    pretrain: PretrainSettings | None = Field(PretrainSettings(), validate_default=True)
    sweep: SweepSettings | None = SweepSettings()
    fit: FitSettings = FitSettings()
    mix: MixSettings = MixSettings()
    reproduce: ReproduceSettings | None = Field(
        None, description="a published law that `headrace reproduce` puts to the test"
    )
    over: dict[str, Annotated[tuple[Any, ...], Field(min_length=1)]] = Field(
        {}, description="any fields, by dotted key, and the values `headrace sweep` tries instead"
    )
    seeds: int = Field(
        1, ge=1, description="trainings of each variant of `over`: with `seed` and those after it"
    )
    one_at_a_time: bool = Field(
        False,
        description="vary `over` one value at a time, beside the recipe as it is; not as a grid",
    )
    variants: dict[Annotated[str, Field(pattern=NAME)], dict[str, Any]] = Field(
        {}, description="trained and tuned side by side: a name each, and fields by dotted key"
    )
    classify: ClassifySettings | None = ClassifySettings()
    regress: RegressSettings | None = None
    label: LabelSettings | None = None
    extract: ExtractSettings | None = None
    instruct: InstructSettings | None = InstructSettings()
    prefer: PreferSettings | None = None
    distill: DistillSettings | None = None
    translate: TextToTextSettings | None = None
    summarise: TextToTextSettings | None = None
    evaluate: EvaluateSettings = EvaluateSettings()
    infer: InferSettings | None = None
    stages: tuple[OwnStageSettings, ...] = Field((), description="functions of your own as stages")
    placement: Placement = Placement()

    @field_validator("pretrain", mode="wrap")
    @classmethod
    def _for_the_model(
        cls, value: Any, checked: ValidatorFunctionWrapHandler, info: ValidationInfo
    ) -> PretrainSettings | None:
        """A recipe that names no objective has its family's; FLOPs pay for tokens of its model."""
        if isinstance(value, PretrainSettings):
            value = value.model_dump(exclude_unset=True)
        named = not isinstance(value, dict) or "objective" in value or "model" not in info.data
        if not named:
            value = {**value, "objective": info.data["model"].objective}
        found: PretrainSettings | None = checked(value)
        if found and not named:
            found.model_fields_set.discard("objective")  # of another model it is another
        if found is None or not found.flops or not {"model", "tokenizer"} <= info.data.keys():
            return found
        return paid(found, info.data["model"], info.data["tokenizer"].vocab_size)

    @model_validator(mode="before")
    @classmethod
    def _stages_of_the_model(cls, values: Any) -> Any:
        """Stages that the model cannot do are left out, unless the recipe asks for them; and those
        that nobody asked for of a model that exists, or of one that is rather to write.
        """
        if not isinstance(values, dict):
            return values
        alone = values.get("pretrain", ...) is None and values.get("vectors") is not None
        family, objective = _described(values)
        own = alone or _starts_from_a_model(values)
        absent = ADDED if own else impossible(family, objective)
        also = ("classify",) if family == "encoder_decoder" else ()
        return {**dict.fromkeys((*absent, *also)), **values}

    @model_validator(mode="after")
    def _buildable_model(self) -> "Recipe":
        """What does not fit together is refused before any stage runs."""
        self._something_to_train_on()
        trains = self.from_nothing is None
        check_made(self.grade, self.filters, self.synthesize, self.instruct, trains)
        if self.pretrain is not None:
            self.model.config(self.tokenizer.vocab_size, self.pretrain.context)
            check_objective(self.model, self.pretrain)
            check_rates(self.model, self.pretrain.optimizer)
            stage = self.placement.zero_stage
            check_sharding(self.pretrain.optimizer, self.pretrain.precision, stage)
            check_exams(self.pretrain.exams, self.model.family)
            self.vocabulary()
        return self

    def _something_to_train_on(self) -> None:
        """Training needs text, and where there is none a model that exists."""
        if self.pretrain is not None and not self.sources:
            without = " (or `pretrain: null`)" if self.model.origin else ""
            raise ValueError(f"'sources' is missing: training needs text{without}")
        if self.vectors and not self.sources:
            raise ValueError("vectors are of the words of a text: give `sources`")
        if self.dense and not self.vectors:
            raise ValueError("dense: its features are means of word vectors: give `vectors`, too")
        if len({one.name for one in self.dense}) < len(self.dense):
            raise ValueError("dense: two networks have the same name; give each a `name`")
        if not self.has_model:
            self._nothing_but_vectors()
        if self.model.origin and self.sweep:
            raise ValueError("sweep: its networks are trained from nothing; leave out model.from")

    def _nothing_but_vectors(self) -> None:
        """Without a model there is none to tune."""
        asked = [name for name in (*TUNED, "sweep", "infer") if getattr(self, name)]
        if asked or not self.vectors:
            raise ValueError(
                "pretrain: null is for a model that exists: give `model: {from: ...}`; or for "
                "`translate` or `summarise` from nothing, with `sources` for the tokenizer; or for "
                + (f"`vectors` alone, without {', '.join(asked)}" if asked else "`vectors`")
            )

    @property
    def has_model(self) -> bool:
        """Whether a language model is trained or tuned: else there are word vectors alone."""
        return bool(self.pretrain or self.model.origin or self.from_nothing)

    @property
    def varies(self) -> bool:
        """Whether it is compared with others like it."""
        return bool(self.over or self.variants)

    @property
    def from_nothing(self) -> "TextToTextSettings | None":
        """The task that a network without pretraining learns, by its pairs alone; None if none."""
        if self.pretrain or self.model.origin or not self.sources:
            return None
        return self.translate or self.summarise

    @property
    def training(self) -> PretrainSettings:
        """How the model is trained. Raises BadInput for a recipe that trains none."""
        if self.pretrain is None:
            raise BadInput(f"recipe '{self.name}' has `pretrain: null`: it trains no model on text")
        return self.pretrain

    def vocabulary(self) -> TokenizerSettings:
        """The tokenizer's settings, with the special tokens that the objective needs."""
        if self.tokenizer.origin or self.pretrain is None:
            return self.tokenizer
        training, own = self.training, self.tokenizer.special_tokens
        kinds = special_tokens(
            training.objective, self.model.family, training.context, training.rates
        )
        needed = tuple(special_token(kind) for kind in kinds)
        tokens = needed + tuple(token for token in own if token not in needed)
        values = self.tokenizer.model_dump() | {"special_tokens": tokens}
        return TokenizerSettings.model_validate(values)

    @property
    def mixes(self) -> bool:
        """Whether training draws from the sources by weight, rather than from all text in turn."""
        made = self.made_sources.values()
        weights = {source.weight for source in self.sources} | {share.weight for share in made}
        caps = [source.max_epochs for source in self.sources] + [s.max_epochs for s in made]
        capped = any(most is not None for most in caps)
        return len(weights) > 1 or capped or bool(self.training.mixture)

    @property
    def made_sources(self) -> dict[str, ShareSettings]:
        """What a model makes for pretraining, by its label as a source."""
        return self.synthesize.sources_of("pretrain") if self.synthesize else {}

    def asks_for(self, stage: str) -> bool:
        """Whether an optional stage is wanted. Raises BadInput when this model cannot do it."""
        why = impossible(self.model.family, self._objective).get(stage)
        if getattr(self, stage) and why:
            raise BadInput(
                f"recipe '{self.name}' has a section `{stage}`, but {why}; "
                f"leave it out, or `--set {stage}=null`"
            )
        return getattr(self, stage) is not None

    def left_out(self) -> list[str]:
        """The usual stages that this model cannot do, each with the reason, for a plan's reader."""
        if self.model.origin or not self.has_model:  # only what is asked for is made
            return []
        reasons = impossible(self.model.family, self._objective)
        return [f"{name} is left out: {reasons[name]}" for name in reasons if name in ADDED]

    @property
    def _objective(self) -> str:
        return self.pretrain.objective if self.pretrain else self.model.objective

    @property
    def dated(self) -> bool:
        """Whether its sources are those of a day."""
        return any(is_dated(source.path) for source in self.sources)

    def on(self, day: date) -> "Recipe":
        """The recipe of a day, which `{date}` in the paths of its sources stands for."""
        if not self.dated:
            return self
        paths = ((source, on_day(source.path, day)) for source in self.sources)
        sources = tuple(source.model_copy(update={"path": path}) for source, path in paths)
        return self.model_copy(update={"sources": sources})

    @field_validator("sources", mode="before")
    @classmethod
    def _bare_paths(cls, value: Any) -> Any:
        """A source may be written as its bare path."""
        if isinstance(value, list | tuple):
            return [{"path": item} if isinstance(item, str) else item for item in value]
        return value


def impossible(family: str, objective: str) -> dict[str, str]:
    """The optional stages that a model cannot do, by their section, each with the reason."""
    found = {}
    if family != "decoder":
        article = "an encoder" if family == "encoder" else "an encoder_decoder"
        found["instruct"] = f"{article} is not tuned to answer, which takes a decoder"
        found["prefer"] = f"{article} writes no answers to prefer, which takes a decoder"
        found["infer"] = f"{article} is not run in batches, which takes a decoder"
    if family == "encoder":
        found |= dict.fromkeys(("translate", "summarise"), "an encoder writes no texts")
    if family == "encoder_decoder":
        found["distill"] = "a student is a decoder or an encoder"
    if objective != "causal":
        found["sweep"] = f"scaling laws are of causal losses, the objective is {objective}"
    return found


def _starts_from_a_model(values: dict[str, Any]) -> bool:
    model = values.get("model")
    if isinstance(model, ModelSettings):
        return model.origin is not None
    return isinstance(model, dict) and bool(model.get("from"))


def _described(values: dict[str, Any]) -> tuple[str, str]:
    """Family and objective of a recipe that is not validated yet; what is wrong is found later."""
    model, training = values.get("model") or {}, values.get("pretrain") or {}
    try:
        family = ModelSettings.model_validate(model).family
    except ValidationError:
        return "decoder", "causal"
    if isinstance(training, PretrainSettings):
        return family, training.objective
    named = training.get("objective") if isinstance(training, dict) else None
    return family, named if isinstance(named, str) else DEFAULT[family]


def load(name_or_path: str, overrides: typing.Sequence[str] = ()) -> Recipe:
    """A shipped recipe by name or any by path, with `a.b=value` overrides applied.

    Raises BadInput for a recipe that cannot be found, read or validated; the message quotes the
    key, its value and what is allowed.
    """
    path = find(name_or_path)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{path} cannot be read as a recipe, a text in YAML: {error}") from error
    values = read_yaml(text, str(path))
    if not isinstance(values, dict):
        kind = {list: "a list", type(None): "nothing"}.get(type(values), f"the value {values!r}")
        raise BadInput(
            f"{path}: a recipe is a mapping of keys, found {kind}; write `name: mine`, then "
            "`sources:` and a list of `- path: FILE`"
        )
    for override in overrides:
        apply_override(values, override)
    return validate(values, str(path))


def find(name_or_path: str) -> Path:
    """The file of a recipe."""
    path = Path(name_or_path).expanduser()
    shipped = SHIPPED / f"{name_or_path}.yaml"
    if path.suffix in (".yaml", ".yml") or path.is_file():
        if path.is_file():
            return path
        raise BadInput(f"no recipe file at {path.resolve()}")
    if shipped.is_file():
        return shipped
    names = [p.stem for p in SHIPPED.glob("*.yaml")]
    raise BadInput(f"no recipe '{name_or_path}': {nearest(name_or_path, names)}, or give a path")


def overridden(recipe: Recipe, values: typing.Mapping[str, Any]) -> Recipe:
    """The recipe with other values, by dotted key; errors as of `load`."""
    plain = recipe.model_dump(mode="json", exclude_unset=True)
    for key, value in values.items():
        assign(plain, key, value, key)
    return validate(plain, recipe.name)


def validate(values: dict[str, Any], origin: str) -> Recipe:
    """A recipe from plain values; see `load` for errors."""
    try:
        return Recipe.model_validate(values)
    except ValidationError as error:
        lines = [explain(fault, Recipe) for fault in error.errors()]
        raise BadInput(f"{origin}: " + "; ".join(lines)) from None
