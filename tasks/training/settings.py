"""Settings of training: the objective, the optimizer, the length of a run."""

from typing import Annotated, Any, Literal

from pydantic import (
    Field,
    SerializerFunctionWrapHandler,
    field_validator,
    model_serializer,
    model_validator,
)

from cluster.settings import Aside, Settings
from model.config import MATRIX_KINDS, ParameterKind
from model.objectives.catalog import OBJECTIVES, ObjectiveName
from model.objectives.generator import SIZE
from model.objectives.lengths import Rates
from tasks.tokens.mixture.settings import MixtureStage, check_stages
from tasks.tokens.packing.settings import PackingKind
from tasks.tokens.steps import Steps
from tasks.training.exams import ExamTimes
from tasks.training.model_settings import DETECTION

Precision = Literal["fp32", "bf16", "fp16", "bf16_weights"]
OptimizerName = Literal["sgd", "momentum", "adagrad", "rmsprop", "adam", "adamw", "muon"]
UNSHARDED = ("adagrad", "muon")
"""Optimizers that need whole tensors, or their state from the start: ZeRO 0 only."""
WITHOUT_HEAD = ("sentence_comparison", DETECTION)
"""Objectives that the network learns without its LM head."""
ScheduleName = Literal["constant", "linear", "cosine", "wsd", "inverse_sqrt"]


class RateScales(Settings):
    """Learning rates of the kinds of parameters, in shares of `learning_rate`; null is the share at
    which a model that goes on was trained, where its config says so, and 1 in a new one.
    """

    matrices: float | None = Field(None, gt=0, description="matrices inside the blocks")
    head: float | None = Field(
        None, gt=0, description="the LM head, or the embedding tied to it; heads of other tasks"
    )
    embeddings: float | None = Field(None, gt=0, description="embeddings of tokens, where not tied")
    positions: float | None = Field(None, gt=0, description="learned positions")
    vectors: float | None = Field(None, gt=0, description="gains and biases")


class OptimizerSettings(Settings):
    """The optimizer (`tasks.training.optimizers`) and the path of its learning rate."""

    name: OptimizerName = Field(
        "adamw", description="rule of the update; muon is for matrices in blocks, the rest adamw"
    )
    learning_rate: float = Field(
        3e-3,
        gt=0,
        description="peak; with inverse_sqrt it is Noam's factor, peak times the root of "
        "warmup_steps. The rate of all parameters, as far as scales and base_width say no other",
    )
    scales: RateScales = RateScales()
    base_width: int | None = Field(
        None,
        ge=1,
        description="rates of matrices and head are base_width / width of theirs; null is the same "
        "at every width, or with model.mup its base width",
    )
    betas: tuple[float, float] = Field(
        (0.9, 0.98), description="decay of adam's two moments; rmsprop uses the second"
    )
    momentum: float = Field(0.95, ge=0, lt=1, description="decay of momentum's and muon's sum")
    epsilon: float = Field(1e-8, gt=0, description="added to the root of the second moment")
    weight_decay: float = Field(
        0.1, ge=0, description="of the kinds in decayed; decoupled in adamw and muon"
    )
    decayed: tuple[ParameterKind, ...] = Field(
        MATRIX_KINDS,
        description="kinds of parameters, as in scales, whose weights decay",
    )
    clip: float | None = Field(1.0, gt=0, description="largest gradient norm; null does not clip")
    schedule: ScheduleName = Field("wsd", description="path of the learning rate after warm-up")
    warmup_steps: int | None = Field(None, ge=0, description="linear warm-up; null is 5 % of steps")
    cooldown_share: float = Field(0.5, gt=0, le=1, description="wsd: share of steps that cool down")
    final_share: float = Field(
        0.05, ge=0, le=1, description="last learning rate over the peak: linear, cosine, wsd"
    )


def over_defaults(defaults: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """What is given, section by section, over the defaults of what is left out."""
    inner = {
        key: over_defaults(defaults[key], value)
        for key, value in given.items()
        if isinstance(value, dict) and isinstance(defaults.get(key), dict)
    }
    return {**defaults, **given, **inner}


class TrainSettings(Settings):
    """What every training has in common."""

    optimizer: OptimizerSettings = OptimizerSettings()

    @field_validator("optimizer", mode="before")
    @classmethod
    def _the_rest_as_this_training_has_it(cls, value: Any) -> Any:
        """What a recipe leaves out of the optimizer is as this training's default has it."""
        default: OptimizerSettings = cls.model_fields["optimizer"].default
        own = default.model_dump(exclude_unset=True)
        return over_defaults(own, value) if isinstance(value, dict) else value

    precision: Precision = Field(
        "fp32",
        description="bf16, fp16: such matrix products (autocast), weights stay fp32; in fp16 the "
        "loss is scaled, and steps whose gradients overflow are skipped; bf16_weights: all in bf16 "
        "but the copy of the weights that the optimizer steps, with placement.zero_stage 2 or 3",
    )


class NoiseSettings(Settings):
    """What an objective hides of a text."""

    rate: float | None = Field(
        None,
        gt=0,
        le=1,
        description="share of the tokens; null is the objective's own: 0.15, but text_infilling "
        "0.3, mass 0.5, permuted (predicted) 1/6",
    )
    span: float | None = Field(
        None, ge=1, description="mean tokens of a hidden span; null is 3, where there are spans"
    )
    dynamic: bool = Field(
        True, description="draw anew in every epoch (RoBERTa); false hides the same (BERT)"
    )


class ObjectiveSettings(Settings):
    """What the network learns to say about a text."""

    objective: ObjectiveName = Field(
        "causal",
        description="what the network learns to predict; left out of a recipe, it is causal for "
        "a decoder, masked for an encoder, span_corruption for an encoder_decoder",
    )
    context: int = Field(256, ge=1, description="tokens of one sample, as the network reads it")
    noise: NoiseSettings = NoiseSettings()
    generator_size: float | None = Field(
        None,
        gt=0,
        le=1,
        description="replaced_token_detection: heads and width of the network that fills in "
        f"tokens, in shares of the one that finds them; null is {SIZE}",
    )

    @model_validator(mode="after")
    def _noise_that_is_used(self) -> "ObjectiveSettings":
        about = OBJECTIVES[self.objective]
        if self.noise.rate and about.rate is None:
            users = ", ".join(name for name, a in OBJECTIVES.items() if a.rate)
            raise ValueError(f"noise.rate: {self.objective} has none; it is for {users}")
        if self.noise.span and not about.spans:
            users = ", ".join(name for name, a in OBJECTIVES.items() if a.spans)
            raise ValueError(f"noise.span: {self.objective} has none; it is for {users}")
        if self.generator_size and self.objective != DETECTION:
            raise ValueError(f"generator_size: {self.objective} has none; it is for {DETECTION}")
        return self

    @property
    def generator(self) -> float:
        """The size of the generator, where there is one."""
        return self.generator_size or SIZE

    @property
    def rates(self) -> Rates:
        """Shares and spans, with the objective's own where none were given."""
        rate = self.noise.rate or OBJECTIVES[self.objective].rate or Rates.rate
        return Rates(rate=rate, span=self.noise.span or Rates.span)

    def of(self) -> "ObjectiveSettings":
        """The objective alone, of settings that hold more."""
        return ObjectiveSettings(**self.model_dump(include=set(ObjectiveSettings.model_fields)))


class RampStage(Settings):
    """A stretch of training with smaller batches."""

    tokens: int = Field(ge=1, description="how many are trained on in such batches")
    batch_tokens: int = Field(ge=1, description="tokens of one optimizer step")


class PretrainSettings(TrainSettings, ObjectiveSettings):
    """Pretraining: what is learnt, from how much text, how much at a time."""

    tokens: int = Field(1_000_000, ge=1, description="training tokens, repeats included")
    flops: Annotated[float | None, Aside()] = Field(
        None,
        gt=0,
        description="in place of tokens: FLOPs of the training, forward and backward; tokens are "
        "then those that they pay for",
    )
    batch_tokens: int = Field(16_384, ge=1, description="tokens of one optimizer step")
    batch_ramp: tuple[RampStage, ...] = Field(
        (),
        description="smaller batches at first, stage by stage; learning-rate schedules then count "
        "tokens, in full batches",
    )
    most_skipped: int = Field(
        5,
        ge=0,
        description="batches with a loss over 3 times the usual, or not finite, that are skipped "
        "before training counts as diverged",
    )
    z_loss: float = Field(
        0.0, ge=0, description="times log^2 Z, added to the loss: keeps logits small (PaLM: 1e-4)"
    )
    packing: PackingKind = Field(
        "concatenate",
        description="how samples are filled: documents end to end, as many whole ones as fit best, "
        "or one each",
    )
    mixture: tuple[MixtureStage, ...] = Field(
        (), description="shares of the sources by stages of training; empty: sources[].weight"
    )

    kept_checkpoints: Annotated[int, Aside()] = Field(
        0,
        ge=0,
        description="checkpoints, of steps at equal distances, that the finished model keeps: "
        "weights and moments, 12 bytes a parameter each; `headrace erase` trains again from them",
    )
    exams: Annotated[ExamTimes | None, Aside()] = Field(
        None, description="exams that the network sits on the way, as it is after some steps"
    )

    @model_validator(mode="before")
    @classmethod
    def _tokens_or_flops(cls, values: Any) -> Any:
        """One of the two says how long."""
        if isinstance(values, dict) and values.get("flops") and values.get("tokens"):
            raise ValueError("give tokens or flops, and leave out the other, which follows from it")
        return values

    @model_serializer(mode="wrap")
    def _what_was_given(self, plain: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Tokens that follow from FLOPs follow again, from those of another network."""
        found: dict[str, Any] = plain(self)
        if self.flops is not None:
            found.pop("tokens", None)
        return found

    @model_validator(mode="after")
    def _exams_on_the_way(self) -> "PretrainSettings":
        if self.exams:
            self.exams.steps(self.steps)
        return self

    @model_validator(mode="after")
    def _fitting_stages(self) -> "PretrainSettings":
        check_stages(self.mixture)
        if self.packing != "concatenate" and self.objective != "causal":
            raise ValueError(
                f"packing is {self.packing!r}, which is for objective causal; {self.objective} "
                "needs full samples: concatenate"
            )
        return self

    @model_validator(mode="after")
    def _logits_to_keep_small(self) -> "PretrainSettings":
        if self.z_loss and self.objective in WITHOUT_HEAD:
            raise ValueError(f"z_loss: {self.objective} has no LM head whose logits it could keep")
        return self

    @model_validator(mode="after")
    def _whole_samples(self) -> "PretrainSettings":
        sizes = [("batch_tokens", self.batch_tokens)]
        sizes += [("batch_ramp: batch_tokens", stage.batch_tokens) for stage in self.batch_ramp]
        for name, value in sizes:
            if value % self.context:
                raise ValueError(f"{name} must be a multiple of the context {self.context}")
        return self

    @model_validator(mode="after")
    def _growing_batches(self) -> "PretrainSettings":
        sizes = [stage.batch_tokens for stage in self.batch_ramp] + [self.batch_tokens]
        if sizes != sorted(set(sizes)):
            raise ValueError(f"batch_ramp: batches must grow, up to batch_tokens; they are {sizes}")
        ramped = self.batches.before(1 + sum(steps for steps, _ in self.batches.ramp))
        if ramped * self.context > self.tokens:
            raise ValueError(
                f"batch_ramp takes {ramped * self.context} tokens, all there are is {self.tokens}"
            )
        return self

    @property
    def batch_samples(self) -> int:
        """Samples of one optimizer step."""
        return self.batch_tokens // self.context

    @property
    def steps(self) -> int:
        """Optimizer steps: as many as see all tokens."""
        return self.batches.count

    @property
    def kept_steps(self) -> frozenset[int]:
        """The steps whose checkpoints are kept; the last step's would be for nothing."""
        parts = self.kept_checkpoints + 1
        return frozenset(self.steps * part // parts for part in range(1, parts)) - {0}

    @property
    def batches(self) -> Steps:
        """Which samples each step takes."""
        ramp = tuple(
            (-(-stage.tokens // stage.batch_tokens), stage.batch_tokens // self.context)
            for stage in self.batch_ramp
        )
        left = self.tokens - self.context * sum(steps * samples for steps, samples in ramp)
        count = sum(steps for steps, _ in ramp) + -(-left // self.batch_tokens)
        return Steps(count, self.batch_samples, ramp)
