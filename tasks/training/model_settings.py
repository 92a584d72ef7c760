"""Settings of the network's shape."""

from typing import TYPE_CHECKING, Annotated, Any

from pydantic import ConfigDict, Field, model_validator

from cluster.errors import BadInput
from cluster.settings import Settings, said
from model.config import Family, Positions
from model.config_records import require
from model.longer import Extension, lengthened
from model.objectives.catalog import DEFAULT, ObjectiveName
from model.presets import PRESETS, preset
from model.shapes import from_depth, resized
from tasks.tokens.origins import MODEL, family_of, shape_of
from tasks.training.recurrent_settings import RecurrentSettings

if TYPE_CHECKING:
    from model.config import ModelConfig

DIAL = 4
"""Layers of a network of which nothing is said."""
DETECTION: ObjectiveName = "replaced_token_detection"
APART: ObjectiveName = "bidirectional"
"""What two directions that are apart learn."""
SIZES = {"depth", "width", "heads", "kv_heads"}
"""Settings that give a shape another size."""
OWN = {"head_dim", "positions", "dropout"}
"""Settings that take the place of what the shape has, where they are given."""


class ModelSettings(Settings):
    """The network: a model that exists, one dial, or a published model's shape, whose sizes may be
    changed.
    """

    model_config = ConfigDict(serialize_by_alias=True)  # `from` is no name in Python

    origin: Annotated[str | None, MODEL] = Field(
        None,
        alias="from",
        description="a model folder to start from, or hf://org/name@revision: `pretrain: null` "
        "tunes it as it is, a `pretrain` section goes on training it",
    )
    longer: Extension = Field(
        "yarn",
        description="with from, where pretrain.context is more than the model was trained on: how "
        "its rotary positions are stretched: yarn (Peng et al. 2023), or theta, a larger base",
    )
    preset: str | None = Field(
        None, description="a published shape, such as gpt2; null is the dial"
    )
    family: Family = Field("decoder", description="kind of network; a preset has its own")
    depth: int | None = Field(
        None, ge=1, description=f"layers; null is the preset's, or {DIAL}; the rest follows from it"
    )
    width: int | None = Field(None, ge=2, description="size of the residual stream")
    heads: int | None = Field(None, ge=1, description="attention heads")
    kv_heads: int | None = Field(None, ge=1, description="key and value heads; null is all heads")
    head_dim: int | None = Field(
        None,
        ge=1,
        description="numbers of a head's queries, keys and values; null: the shape's",
    )
    positions: Positions | None = Field(
        None, description="how tokens know where they are; null is as in the shape"
    )
    dropout: float | None = Field(
        None, ge=0, lt=1, description="share of numbers dropped in training; null is the shape's"
    )
    recurrent: RecurrentSettings | None = Field(
        None, description="layers of an RNN, GRU or LSTM; null is attention and feed-forward"
    )
    mup: bool = Field(
        False,
        description="muP: what was tuned on a narrow network holds on a wide one (Yang et al. "
        "2022): start, scores, and rates of matrices and head, which go by mup_base_width / width",
    )
    mup_base_width: int = Field(
        96, ge=1, description="with mup: the width of the network that was tuned"
    )

    @model_validator(mode="before")
    @classmethod
    def _of_the_model(cls, values: Any) -> Any:
        """A model that exists brings its shape; what else is said of one is refused."""
        if not isinstance(values, dict) or not values.get("from"):
            return values
        if others := sorted(said(cls, values) - {"from", "longer", "family"}):
            raise ValueError(
                f"from: {values['from']} has its own shape; leave out {', '.join(others)}"
            )
        own = family_of(values["from"]) or values.get("family", "decoder")
        if values.get("family", own) != own:
            raise ValueError(f"family is {values['family']!r}; {values['from']} is an {own}")
        return {**values, "family": own}

    @model_validator(mode="before")
    @classmethod
    def _family_of_the_preset(cls, values: Any) -> Any:
        """A preset brings its family; another one given beside it is refused."""
        if not isinstance(values, dict) or not values.get("preset"):
            return values

        try:
            own = preset(values["preset"]).family
        except ValueError:
            return values  # `config` says what is wrong
        if values.get("family", own) != own:
            raise ValueError(f"family is {values['family']!r}; {values['preset']} is an {own}")
        return {**values, "family": own}

    @property
    def objective(self) -> ObjectiveName:
        """What such a network learns unless it is told otherwise."""
        if self.recurrent and self.recurrent.apart:
            return APART
        detects = self.preset in PRESETS and preset(self.preset).detector
        return DETECTION if detects else DEFAULT[self.family]

    def config(self, vocab_size: int, context: int) -> "ModelConfig":
        """The full shape for a vocabulary and a context in tokens; a model that exists has its own
        vocabulary, and no shorter context than it had.

        Raises BadInput for sizes that do not fit together or a preset that is not known.
        """
        from dataclasses import replace

        given = self.model_dump(include=SIZES, exclude_none=True)
        own = self.model_dump(include=OWN, exclude_none=True)
        base = self.mup_base_width if self.mup else None
        try:
            if self.origin:
                return lengthened(shape_of(self.origin), context, self.longer)
            if self.preset:
                require(not self.recurrent, "recurrent", self.recurrent, "null with a preset")
                shape = resized(preset(self.preset), **given)
                own |= {"vocab_size": vocab_size, "context": context}
            else:
                sizes = {"vocab_size": vocab_size, "context": context, "depth": DIAL} | given
                cells = self.recurrent.config() if self.recurrent else None
                shape = from_depth(family=self.family, recurrent=cells, **sizes)
            return replace(shape, mup_base_width=base, **own)
        except ValueError as error:
            raise BadInput(str(error)) from error
