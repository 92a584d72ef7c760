"""Filters that know from files or models what to keep: prepared once, applied batch by batch.

They come after the rules, on what these have kept, the cheapest first.
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cluster.artifact import Artifact
from cluster.errors import BadInput
from tasks.data.filtering.byte_model import ByteModel
from tasks.data.filtering.classifier import Classifier, Features, cross_validate
from tasks.data.filtering.languages import check_codes, identify
from tasks.data.filtering.settings import (
    BadWordSettings,
    LanguageSettings,
    PerplexitySettings,
    QualitySettings,
)
from tasks.data.reading.settings import SourceSettings
from tasks.data.reading.whole import read_source
from tasks.data.text import read_table

if TYPE_CHECKING:
    from tasks.data.filtering.settings import FilterSettings

Reasons = list[str | None]
MIN_LABELLED = 20
# Written without spaces: a word of the list counts wherever it stands.
UNSPACED = re.compile(r"[\u0e00-\u0e7f\u3040-\u30ff\u3400-\u9fff]")


def prepare(
    settings: "FilterSettings", folder: Path, graded: Artifact | None = None
) -> dict[str, Any]:
    """Fit what is asked for, quality on `graded` documents where no labelled rows are named, and
    write it to a folder; facts for the report.

    Raises BadInput for unusable files and MissingExtra for a missing package, before any document
    is looked at.
    """
    facts: dict[str, Any] = {}
    if settings.languages:
        check_codes(settings.languages.keep)
    if settings.perplexity:
        texts = _reference(settings.perplexity)
        ByteModel.train(texts, settings.perplexity.order).save(folder / PERPLEXITY)
        facts["perplexity"] = {"reference_bytes": int(pc.sum(pc.binary_length(texts)).as_py())}
    if settings.quality:
        texts, labels = _labelled(settings.quality, graded)
        features = Features.of(texts)
        facts["quality"] = cross_validate(
            features, labels, settings.quality.folds, settings.quality.repeats
        )
        Classifier.train(features, labels).save(folder / QUALITY)
    return facts


def filters(settings: "FilterSettings", folder: Path) -> list[Callable[[pa.Array], Reasons]]:
    """The functions that give each text its reason or None, in the order they are tried."""
    found: list[Callable[[pa.Array], Reasons]] = []
    if settings.bad_words:
        found.append(bad_words(settings.bad_words))
    if settings.perplexity:
        found.append(perplexity(settings.perplexity, ByteModel.load(folder / PERPLEXITY)))
    if settings.quality:
        found.append(quality(settings.quality, Classifier.load(folder / QUALITY)))
    if settings.languages:
        found.append(language(settings.languages))
    return found


PERPLEXITY, QUALITY = "perplexity.npz", "quality.npz"


def language(settings: LanguageSettings) -> Callable[[pa.Array], Reasons]:
    """Reason `language:<code>`, or `language:unknown`."""

    def reasons(texts: pa.Array) -> Reasons:
        found = identify(texts.to_pylist(), settings.accuracy)
        return [
            None
            if code in settings.keep and probability >= settings.min_probability
            else f"language:{code or 'unknown'}"
            for code, probability in found
        ]

    return reasons


def perplexity(settings: PerplexitySettings, model: ByteModel) -> Callable[[pa.Array], Reasons]:
    """Reason `perplexity`."""
    return lambda texts: _where(
        model.bits_per_byte(texts) > settings.max_bits_per_byte, "perplexity"
    )


def quality(settings: QualitySettings, model: Classifier) -> Callable[[pa.Array], Reasons]:
    """Reason `low_quality`."""
    return lambda texts: _where(
        model.probability(Features.of(texts)) < settings.min_probability, "low_quality"
    )


def bad_words(settings: BadWordSettings) -> Callable[[pa.Array], Reasons]:
    """Reason `bad_words`. One pass of RE2 a batch, whatever the length of the lists."""
    words = {word for path in settings.lists for word in _words(Path(path).expanduser())}
    spaced = "|".join(re.escape(w) for w in sorted(words) if not UNSPACED.search(w))
    joined = "|".join(re.escape(w) for w in sorted(words) if UNSPACED.search(w))
    bounded = rf"(?:^|[^\pL\pN_])(?:{spaced})(?:$|[^\pL\pN_])" if spaced else ""
    pattern = "(?i)" + "|".join(filter(None, (bounded, joined)))

    def reasons(texts: pa.Array) -> Reasons:
        counts = pc.count_substring_regex(texts, pattern).to_numpy(zero_copy_only=False)
        return _where(counts > settings.max_count, "bad_words")

    return reasons


def _where(broken: npt.NDArray[np.bool_], reason: str) -> Reasons:
    return [reason if one else None for one in broken]


def _words(path: Path) -> list[str]:
    try:
        lines = map(str.strip, path.read_text(encoding="utf-8").splitlines())
        words = [line for line in lines if line]
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"filters.bad_words: {path} cannot be read: {error}") from error
    if not words:
        raise BadInput(f"filters.bad_words: {path} has no word; it holds one a line")
    return words


def _reference(settings: PerplexitySettings) -> pa.Array:
    table, _ = read_source(SourceSettings(path=settings.reference, text=settings.text))
    if not table.num_rows:
        raise BadInput(f"filters.perplexity: no row of {settings.reference} has a text")
    return table["text"].combine_chunks()


def _labelled(
    settings: QualitySettings, graded: Artifact | None
) -> tuple[pa.Array, npt.NDArray[np.int64]]:
    if settings.labelled is None:
        assert graded is not None  # a recipe without either is refused
        table, where = read_table(graded, ["text", "label"]), graded.name
        cure = "; grade more `grade.documents`, or set `grade.good` between those that there are"
    else:
        source = SourceSettings(path=settings.labelled, text=settings.text, label=settings.label)
        (table, _), where, cure = read_source(source), settings.labelled, ""
    found = table["label"].to_pylist()
    if other := sorted({str(label) for label in found} - {"0", "1"}):
        raise BadInput(
            f"filters.quality: {where} has labels {', '.join(other[:5])}; "
            f"'{settings.label}' is 1 for good rows and 0 for others"
        )
    labels = np.array([int(label) for label in found], np.int64)
    least = max(settings.folds, MIN_LABELLED // 2)
    if min((labels == 0).sum(), (labels == 1).sum()) < least:
        raise BadInput(
            f"filters.quality: {where} has {int((labels == 1).sum())} good rows and "
            f"{int((labels == 0).sum())} others; it needs {least} of each{cure}"
        )
    return table["text"].combine_chunks(), labels
