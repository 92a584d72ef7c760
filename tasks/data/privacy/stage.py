"""Stage `redact`: e-mail and IP addresses, numbers of telephones, cards, accounts and persons, and
secrets leave the text; no row is dropped.
"""

import hashlib
import hmac
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from cluster.artifact import Artifact
from cluster.errors import BadInput
from cluster.stage import stage
from cluster.store import Draft
from tasks.data.privacy.names import recogniser
from tasks.data.privacy.settings import RedactSettings, pseudonym_key

if TYPE_CHECKING:
    import pyarrow as pa

    from tasks.data.ledger import Splitter
    from tasks.data.privacy.batch import Found
    from tasks.data.privacy.spans import Span

CHANGED = "documents"
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


@stage(version=3)
def redact(text: Artifact, settings: RedactSettings, draft: Draft) -> None:
    """Replace every instance of the kinds; all rows stay, in order.

    Facts: `counts` (instances by kind), `quality` (precision and recall by kind on the labelled
    sentences). Metrics: `instances`, and `documents_changed`, those that held one.
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
    settings: RedactSettings, batches: "Iterator[pa.RecordBatch]", rows: "Splitter"
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


def _pseudonym(key: bytes, kind: str, value: str) -> str:
    from tasks.data.privacy.obfuscation import canonical

    said = f"{kind}:{canonical(kind, value)}"
    return hmac.new(key, said.encode(), hashlib.sha256).hexdigest()[:16]
