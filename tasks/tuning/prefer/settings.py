"""Settings of the stages `preferences` and `prefer`: the rows, the loss, and the training."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from cluster.settings import Settings
from tasks.data.reading.hashes import SOURCE
from tasks.training.settings import OptimizerSettings
from tasks.tuning.settings import TuningSettings

GROUP = 8
"""Answers of a sample of KTO, which together tell how far the model is from its reference."""


class PreferenceRows(Settings):
    """Answers, and which of them people want."""

    data: Annotated[str, SOURCE] = Field(
        description="a .jsonl file (also compressed): rows of a prompt with `chosen` and "
        "`rejected`, or, for kto, with a `completion` and its `label`"
    )
    heldout: Annotated[str | None, SOURCE] = Field(
        None, description="a .jsonl file to measure on; null holds out a share of `data`"
    )
    heldout_share: float = Field(0.1, gt=0, lt=1, description="share of rows measured on")
    length: int | None = Field(
        None, ge=2, description="tokens of prompt and answer at most; null is the model's context"
    )

    def rows(self) -> "PreferenceRows":
        """The rows alone, of settings that hold more."""
        return PreferenceRows(**self.model_dump(include=set(PreferenceRows.model_fields)))


class PreferSettings(TuningSettings, PreferenceRows):
    """Preference tuning: answers that people want become likelier than those they do not."""

    optimizer: OptimizerSettings = OptimizerSettings(learning_rate=3e-4, schedule="linear")
    loss: Literal["dpo", "ipo", "kto", "orpo"] = Field(
        "dpo", description="dpo, ipo, orpo: of pairs; kto: of single answers, wanted or not"
    )
    beta: float = Field(
        0.1,
        gt=0,
        description="how much staying near the model it begins as counts (ipo: tau); of orpo, how "
        "much the odds count beside the likelihood",
    )
    desirable: float = Field(1.0, gt=0, description="kto: weight of wanted answers")
    undesirable: float = Field(1.0, gt=0, description="kto: weight of unwanted answers")
    epochs: float = Field(1.0, gt=0, description="passes over the training rows")
    batch_rows: int = Field(
        16, ge=1, description=f"pairs of one optimizer step; kto: answers, a multiple of {GROUP}"
    )

    @model_validator(mode="after")
    def _whole_groups(self) -> "PreferSettings":
        if self.loss == "kto" and self.batch_rows % GROUP:
            raise ValueError(f"batch_rows is {self.batch_rows}; with kto a multiple of {GROUP}")
        if self.loss != "kto" and {self.desirable, self.undesirable} != {1.0}:
            raise ValueError(f"desirable and undesirable are of kto, the loss is {self.loss}")
        return self

    @property
    def has_reference(self) -> bool:
        """Whether the loss goes by the model that the tuning begins with."""
        return self.loss != "orpo"

    @property
    def sample_rows(self) -> int:
        """Pairs, or single answers, of one sample."""
        return GROUP if self.loss == "kto" else 1
