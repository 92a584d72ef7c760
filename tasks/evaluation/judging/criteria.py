"""The criteria G-Eval comes with, and criteria of one's own: definition, steps, material, range.

A criterion in a recipe or a YAML file:

    name: groundedness
    definition: Whether the answer makes use of the fact in the context.
    scale: [0, 1]
    material: [input, context, answer]
    needs: [context]
"""

import difflib
import re
from pathlib import Path
from typing import Literal

from pydantic import Field, field_validator

from cluster.errors import BadInput
from cluster.settings import Settings

Material = Literal["input", "context", "reference", "answer"]
ALL_MATERIAL: tuple[Material, ...] = ("input", "context", "reference", "answer")
WIDEST = 100  # points on a scale


class Criterion(Settings):
    """What answers are rated by."""

    name: str = Field(pattern=r"^[a-z][a-z0-9_]*$", description="a word that scores are named by")
    definition: str = Field(min_length=1, description="the question to rate by")
    steps: tuple[str, ...] = Field((), description="steps to rate by, if the judge writes none")
    material: tuple[Material, ...] = Field(ALL_MATERIAL, description="fields shown to the judge")
    needs: tuple[Material, ...] = Field((), description="fields of which a row must have one")
    scale: tuple[int, int] | None = Field(None, description="allowed range; null: that of the run")

    @field_validator("scale")
    @classmethod
    def _rising(cls, scale: tuple[int, int] | None) -> tuple[int, int] | None:
        if scale and not (0 <= scale[0] < scale[1] <= scale[0] + WIDEST):
            raise ValueError(f"scale {scale}: lowest rating first, from 0 on, {WIDEST} points most")
        return scale


CRITERIA: dict[str, Criterion] = {
    criterion.name: criterion
    for criterion in (
        Criterion(
            name="correctness",
            definition="Whether what the answer states is right, judged by the reference where "
            "there is one.",
            steps=(
                "List what the reference (or, without one, the input) requires of an answer.",
                "Check each statement of the answer against it: right, wrong, or missing.",
                "Rate low for any wrong statement that matters, in the middle for omissions, "
                "high when everything that matters is there and right.",
            ),
        ),
        Criterion(
            name="fluency",
            definition="Whether the answer is well-formed language: grammar, spelling, word "
            "choice.",
            steps=(
                "Read the answer alone, without regard to whether it is right.",
                "Look for broken sentences, repetitions, wrong words and misspellings.",
                "Rate low when it is hard to read, high when nothing makes a reader stop.",
            ),
            material=("answer",),
        ),
        Criterion(
            name="coherence",
            definition="Whether the sentences of the answer follow from each other and form a "
            "whole.",
            steps=(
                "Find the main point of the answer.",
                "Check that every sentence serves it, in an order that a reader can follow.",
                "Rate low for a heap of unrelated sentences, high for one line of thought.",
            ),
            material=("input", "answer"),
        ),
        Criterion(
            name="relevance",
            definition="Whether the answer addresses what was asked, and nothing else.",
            steps=(
                "State in your own words what the input asks for.",
                "Find the parts of the answer that address it, and those that do not.",
                "Rate low when it misses the question, high when all of it is to the point.",
            ),
            material=("input", "answer"),
        ),
        Criterion(
            name="naturalness",
            definition="Whether the answer is what a person would say in this place.",
            steps=(
                "Read what came before, then the answer as a person's next words.",
                "Look for what nobody would say so: stilted, repeated or abrupt phrases.",
                "Rate low for words that only a machine would put so, high for those of a person.",
            ),
            material=("input", "context", "answer"),
        ),
        Criterion(
            name="consistency",
            definition="Whether everything the answer states is supported by the source.",
            steps=(
                "List the facts that the answer states.",
                "Look each of them up in the source: supported, contradicted, or not there.",
                "Rate low for a contradicted fact, in the middle for unsupported ones, high when "
                "the source supports them all.",
            ),
            material=("context", "reference", "answer"),
            needs=("context", "reference"),
        ),
    )
}
CRITERIA["hallucination"] = CRITERIA["consistency"]  # the same question by its other name


def named(text: str) -> Criterion:
    """A shipped criterion by its name, or one in the user's own words.

    Raises BadInput for a word that is nearly a shipped name.
    """
    if text in CRITERIA:
        return CRITERIA[text]
    close = difflib.get_close_matches(text, CRITERIA, n=1, cutoff=0.6)
    if close and " " not in text:
        raise BadInput(f"unknown criterion '{text}'; did you mean '{close[0]}'?")
    words = re.findall("[a-z0-9]+", text.casefold())[:6]
    name = "_".join(words)
    return Criterion(name=name if name[:1].isalpha() else f"own_{name}", definition=text)


def read_criterion(text: str) -> Criterion:
    """What `named` gives, or the criterion in a `.yaml` file. Raises BadInput for a bad file."""
    if not text.endswith((".yaml", ".yml")):
        return named(text)
    import yaml

    try:
        return Criterion(**yaml.safe_load(Path(text).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError, yaml.YAMLError) as error:
        raise BadInput(f"criterion file {text} cannot be read: {error}") from error
