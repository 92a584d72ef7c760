"""Stage `redact`: e-mail and IP addresses, numbers of telephones, cards, accounts and persons, and
secrets leave the text; no row is dropped.
"""

import hashlib
import hmac
import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, field_validator

from cluster.artifact import Artifact
from cluster.errors import BadInput
from cluster.settings import NONE, Content, Contents, Settings
from cluster.stage import stage
from cluster.store import Draft

if TYPE_CHECKING:
    import pyarrow as pa

    from tasks.data.ledger import Sorter
    from tasks.data.privacy.batch import Found
    from tasks.data.privacy.spans import Span

CHANGED = "documents"
Kind = Literal["email", "ip", "phone", "card", "iban", "national_id", "secret", "address", "name"]
KEY_VARIABLE = "HEADRACE_REDACT_KEY"
KEY_CHARS = 16
# Reserved for documentation, or invalid: nobody's.
FIXED = {
    "email": "email@example.com",
    "ip": "192.0.2.1",
    "phone": "+1-202-555-0100",
    "card": "4000 0000 0000 0000",
    "iban": "XX00 0000 0000 0000",
    "national_id": "000-00-0000",
    "secret": "REDACTED_SECRET",
    "address": "1 Example Street",
    "name": "Jane Doe",
}


def _model_hash(model: str) -> str:
    from tasks.data.privacy.names import identity

    return identity(model)


def _labelled_hash(path: Path) -> str:
    from tasks.data.privacy.quality import content_hash

    return content_hash(path)


def _keyed(how: str) -> str:
    """The manner; of pseudonyms, with a hash of their key."""
    key = f":{hashlib.sha256(pseudonym_key()).hexdigest()}" if how == "pseudonymise" else ""
    return how + key


class NameSettings(Settings):
    """The model that recognises person names."""

    model: Annotated[str, Content(_model_hash)] = Field(
        description="folder of a Hugging Face token classification model, or the name of an "
        "installed spaCy pipeline"
    )


class RedactSettings(Settings):
    """What to take out, and what to put in its place."""

    kinds: tuple[Kind, ...] = Field(
        ("email", "ip", "phone", "card", "iban", "national_id", "secret"),
        description="what to look for; address is by rules too, name takes the model of `names`",
    )
    how: Annotated[Literal["mask", "replace", "pseudonymise"], Content(_keyed)] = Field(
        "mask",
        description="<EMAIL>; a fixed email@example.com; or <EMAIL:1f0c...>, the same for the same "
        f"value, keyed by ${KEY_VARIABLE}",
    )
    regions: tuple[str, ...] = Field(
        (),
        description="countries (ISO 3166 codes) whose telephone numbers count when written without "
        "their country code; none: 33 of the most populous and best connected",
    )
    names: NameSettings | None = Field(
        None, description="also redact the person names that this model recognises (kind name)"
    )
    labelled: Annotated[Path | None, Content(_labelled_hash)] = Field(
        None, description="labelled sentences to measure precision and recall on, besides our own"
    )

    @field_validator("regions")
    @classmethod
    def _known(cls, regions: tuple[str, ...]) -> tuple[str, ...]:
        if regions:
            from phonenumbers import SUPPORTED_REGIONS

            if unknown := [region for region in regions if region not in SUPPORTED_REGIONS]:
                raise ValueError(f"unknown region '{unknown[0]}': give ISO 3166 codes such as DE")
        return regions

    @property
    def sought(self) -> tuple[str, ...]:
        """The kinds, names included when there is a model for them."""
        named = ("name",) if self.names and "name" not in self.kinds else ()
        return (*self.kinds, *named)

    def identity(self, found: Contents = NONE) -> dict[str, Any]:
        """The kinds in whatever order they were given."""
        return super().identity(found) | {"kinds": sorted(self.sought)}


@stage(version=3)
def redact(text: Artifact, settings: RedactSettings, draft: Draft) -> None:
    """Replace every instance of the kinds; all rows stay, in order.

    Raises BadInput when pseudonyms are asked for without a key, or names without a model.
    """
    from tasks.data.blocks import map_text

    if settings.how == "pseudonymise":
        pseudonym_key()
    if "name" in settings.kinds and not settings.names:
        raise BadInput("redact.kinds has 'name', which needs a model: set redact.names.model")
    account = map_text(text, draft, partial(_redact_block, settings))
    counts = {kind: account.counts[kind] for kind in sorted(settings.sought)}
    draft.facts["counts"] = counts
    draft.facts["quality"] = _quality(settings)
    draft.metrics["documents_changed"] = account.counts[CHANGED]
    draft.metrics["instances"] = sum(counts.values())


def _redact_block(
    settings: RedactSettings, batches: "Iterator[pa.RecordBatch]", rows: "Sorter"
) -> None:
    from tasks.data.privacy.batch import replace_all

    replacement = replacer(settings.how)
    for batch in batches:
        index = batch.schema.get_field_index("text")
        found = _found(batch.column(index), settings)
        rows.account.counts.update(span.kind for spans in found.values() for span in spans)
        rows.account.counts[CHANGED] += len(found)
        texts = replace_all(batch.column(index), found, replacement)
        rows.keep(batch.set_column(index, batch.schema.field(index), texts))


def _found(texts: "pa.Array", settings: RedactSettings) -> "Found":
    """The instances in every text: by pattern, and by the model when there is one."""
    from tasks.data.privacy.batch import add_spans, find_all
    from tasks.data.privacy.names import recogniser

    found = find_all(texts, settings.kinds, settings.regions)
    if settings.names is None:
        return found
    recognised = recogniser(settings.names.model)(texts.to_pylist())
    return add_spans(texts, found, (_wanted(spans, settings) for spans in recognised))


def _wanted(spans: "list[Span]", settings: RedactSettings) -> "list[Span]":
    return [span for span in spans if span.kind in settings.sought]


def _quality(settings: RedactSettings) -> list[dict[str, Any]]:
    """Precision and recall by kind on the labelled sentences, for the report."""
    import pyarrow as pa

    from tasks.data.privacy.batch import char_spans
    from tasks.data.privacy.quality import OWN, measure, read_labelled

    rows = read_labelled(OWN)
    if settings.labelled:
        rows += read_labelled(settings.labelled)

    def redactions(text: str) -> "list[Span]":
        return char_spans(text, _found(pa.array([text], pa.large_string()), settings).get(0, []))

    return [
        row._asdict() | {"recall": row.recall, "precision": row.precision}
        for row in measure(rows, redactions, settings.sought)
    ]


def replacer(how: str) -> Callable[[str, str], str]:
    """The function from kind and value to what stands in the value's place."""
    if how == "mask":
        return lambda kind, value: f"<{kind.upper()}>"
    if how == "replace":
        return lambda kind, value: FIXED[kind]
    key = pseudonym_key()
    return lambda kind, value: f"<{kind.upper()}:{_pseudonym(key, kind, value)}>"


def pseudonym_key() -> bytes:
    """The key of the pseudonyms. Raises BadInput when it is absent or short enough to guess."""
    key = os.environ.get(KEY_VARIABLE, "")
    if len(key) < KEY_CHARS:
        raise BadInput(
            f"redact.how is 'pseudonymise', and ${KEY_VARIABLE} has {len(key)} characters; it "
            f"needs {KEY_CHARS} or more: export {KEY_VARIABLE}=$(openssl rand -hex 32)"
        )
    return key.encode()


def _pseudonym(key: bytes, kind: str, value: str) -> str:
    from tasks.data.privacy.disguise import canonical

    said = f"{kind}:{canonical(kind, value)}"
    return hmac.new(key, said.encode(), hashlib.sha256).hexdigest()[:16]
