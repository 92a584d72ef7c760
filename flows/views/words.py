"""What is said of word vectors: neighbours side by side, and how they agree with people."""

from collections.abc import Mapping, Sequence
from typing import Any

from flows.views.output import Output, estimate


def show_vectors(out: Output, result: Mapping[str, Any]) -> None:
    """A table of each thing that was asked for."""
    out.say(f"{result['words']:,} words of {result['width']} numbers each")
    for word, found in result["nearest"].items():
        _near(out, f"like {word}", found)
    if result["analogy"]:
        _near(out, "answer", result["analogy"])
    for name, figure in (("similarity", "spearman"), ("analogies", "accuracy")):
        rows = (_scored(row, figure) for row in result[name])
        out.section(("file", figure, "of", "unknown"), rows)
    if "path" in result:
        out.say(f"\nwritten to {result['path']}")


def _near(out: Output, title: str, found: Sequence[Mapping[str, Any]]) -> None:
    rows = ((one["word"], f"{one['similarity']:.3f}") for one in found)
    out.section((title, "cosine"), rows)


def _scored(row: Mapping[str, Any], figure: str) -> tuple[str, ...]:
    return (
        row["file"],
        estimate(row[figure], row["interval"]),
        f"{row['n']:,}",
        f"{row['unknown']:,}",
    )
