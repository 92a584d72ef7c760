"""Settings of training: the network's shape, the optimizer, the length of a run."""

from typing import TYPE_CHECKING, Literal

from pydantic import Field, model_validator

from cluster.errors import BadInput
from cluster.settings import Settings

if TYPE_CHECKING:
    from model.config import ModelConfig

Precision = Literal["fp32", "bf16"]
ScheduleName = Literal["constant", "linear", "cosine", "wsd", "inverse_sqrt"]


class ModelSettings(Settings):
    """The network: one dial, or a published model's shape."""

    preset: str | None = Field(
        None, description="a published shape, such as gpt2; null is the dial"
    )
    family: Literal["decoder"] = Field("decoder", description="kind of network")
    depth: int = Field(4, ge=1, description="layers; width and heads follow from it")
    width: int | None = Field(None, ge=2, description="size of the residual stream")
    heads: int | None = Field(None, ge=1, description="attention heads")
    kv_heads: int | None = Field(None, ge=1, description="key and value heads; null is all heads")

    def config(self, vocab_size: int, context: int) -> "ModelConfig":
        """The full shape for a vocabulary and a context in tokens.

        Raises BadInput for sizes that do not fit together or a preset that is not known.
        """
        from dataclasses import replace

        from model.config import from_depth
        from model.presets import preset

        try:
            if self.preset:
                return replace(preset(self.preset), vocab_size=vocab_size, context=context)
            sizes = self.model_dump(exclude={"preset"})
            return from_depth(vocab_size=vocab_size, context=context, **sizes)
        except ValueError as error:
            raise BadInput(str(error)) from error


class OptimizerSettings(Settings):
    """AdamW (Loshchilov and Hutter 2019) and the path of its learning rate."""

    learning_rate: float = Field(
        3e-3,
        gt=0,
        description="peak, when pretraining that of matrices at width 128; "
        "with inverse_sqrt it is Noam's factor, peak times the root of warmup_steps",
    )
    betas: tuple[float, float] = Field((0.9, 0.98), description="decay of the two moments")
    epsilon: float = Field(1e-8, gt=0, description="added to the root of the second moment")
    weight_decay: float = Field(0.1, ge=0, description="decoupled, of matrices only")
    clip: float | None = Field(1.0, gt=0, description="largest gradient norm; null does not clip")
    schedule: ScheduleName = Field("wsd", description="path of the learning rate after warm-up")
    warmup_steps: int | None = Field(None, ge=0, description="linear warm-up; null is 5 % of steps")
    cooldown_share: float = Field(0.5, gt=0, le=1, description="wsd: share of steps that cool down")
    final_share: float = Field(
        0.05, ge=0, le=1, description="last learning rate over the peak: linear, cosine, wsd"
    )


class TrainSettings(Settings):
    """What every training has in common."""

    optimizer: OptimizerSettings = OptimizerSettings()
    precision: Precision = Field(
        "fp32", description="bf16: matrix products in bfloat16 (autocast), weights stay fp32"
    )


class PretrainSettings(TrainSettings):
    """Pretraining: how much text, how much at a time."""

    objective: Literal["causal"] = Field("causal", description="what the network learns to predict")
    context: int = Field(256, ge=1, description="tokens of one sample")
    tokens: int = Field(1_000_000, ge=1, description="training tokens, repeats included")
    batch_tokens: int = Field(16_384, ge=1, description="tokens of one optimizer step")
    micro_batch_tokens: int | None = Field(
        None, ge=1, description="tokens one process works on at a time; null is its whole share"
    )

    @model_validator(mode="after")
    def _whole_samples(self) -> "PretrainSettings":
        for name in ("batch_tokens", "micro_batch_tokens"):
            value = getattr(self, name)
            if value is not None and value % self.context:
                raise ValueError(f"{name} must be a multiple of the context {self.context}")
        return self

    @property
    def batch_samples(self) -> int:
        """Samples of one optimizer step."""
        return self.batch_tokens // self.context

    @property
    def micro_batch_samples(self) -> int | None:
        """Samples one process works on at a time; None is its whole share."""
        return self.micro_batch_tokens and self.micro_batch_tokens // self.context

    @property
    def steps(self) -> int:
        """Optimizer steps: as many as see all tokens."""
        return -(-self.tokens // self.batch_tokens)
