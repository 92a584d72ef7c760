"""What one stage leaves for others to work with: a typed record among the facts of its manifest.

class Packed(Facts):
    context: int

draft.facts |= Packed(context=128).noted()     # the stage that makes it
Packed.of(artifact).context                    # one that uses it
"""

from typing import Any, Self

from pydantic import BaseModel, ConfigDict, ValidationError

from cluster.artifact import Artifact
from cluster.errors import BadInput


class Facts(BaseModel):
    """Part of the facts of an artifact; what else it has is left alone."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    @classmethod
    def of(cls, artifact: Artifact) -> Self:
        """These facts of an artifact. Raises BadInput where one is missing or of another type."""
        try:
            return cls.model_validate(artifact.manifest.facts)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"]))
            raise BadInput(
                f"{artifact.name} does not tell its '{where}' ({first['msg']}): made by another "
                f"version; run `headrace run RECIPE --rebuild {artifact.manifest.stage}`"
            ) from error

    def noted(self) -> dict[str, Any]:
        """As plain JSON types, to put into `Draft.facts`."""
        return self.model_dump(mode="json")
