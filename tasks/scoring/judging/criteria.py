"""The criteria G-Eval comes with: definition, evaluation steps, and the material each looks at."""

from dataclasses import dataclass

ALL_MATERIAL = ("input", "context", "reference", "answer")


@dataclass(frozen=True)
class Criterion:
    """One criterion. `steps` are frozen text; empty for a criterion of the user's own.

    `material` are the fields shown where a row has them; a row needs one of `needs`, if any.
    """

    name: str
    definition: str
    steps: tuple[str, ...]
    material: tuple[str, ...]
    needs: tuple[str, ...] = ()


CRITERIA = {
    criterion.name: criterion
    for criterion in (
        Criterion(
            "correctness",
            "Whether what the answer states is right, judged by the reference where there is one.",
            (
                "List what the reference (or, without one, the input) requires of an answer.",
                "Check each statement of the answer against it: right, wrong, or missing.",
                "Rate low for any wrong statement that matters, in the middle for omissions, "
                "high when everything that matters is there and right.",
            ),
            ALL_MATERIAL,
        ),
        Criterion(
            "fluency",
            "Whether the answer is well-formed language: grammar, spelling, word choice.",
            (
                "Read the answer alone, without regard to whether it is right.",
                "Look for broken sentences, repetitions, wrong words and misspellings.",
                "Rate low when it is hard to read, high when nothing makes a reader stop.",
            ),
            ("answer",),
        ),
        Criterion(
            "coherence",
            "Whether the sentences of the answer follow from each other and form a whole.",
            (
                "Find the main point of the answer.",
                "Check that every sentence serves it, in an order that a reader can follow.",
                "Rate low for a heap of unrelated sentences, high for one line of thought.",
            ),
            ("input", "answer"),
        ),
        Criterion(
            "relevance",
            "Whether the answer addresses what was asked, and nothing else.",
            (
                "State in your own words what the input asks for.",
                "Find the parts of the answer that address it, and those that do not.",
                "Rate low when it misses the question, high when all of it is to the point.",
            ),
            ("input", "answer"),
        ),
        Criterion(
            "naturalness",
            "Whether the answer is what a person would say in this place.",
            (
                "Read what came before, then the answer as a person's next words.",
                "Look for what nobody would say so: stilted, repeated or abrupt phrases.",
                "Rate low for words that only a machine would put so, high for those of a person.",
            ),
            ("input", "context", "answer"),
        ),
        Criterion(
            "consistency",
            "Whether everything the answer states is supported by the source.",
            (
                "List the facts that the answer states.",
                "Look each of them up in the source: supported, contradicted, or not there.",
                "Rate low for a contradicted fact, in the middle for unsupported ones, high when "
                "the source supports them all.",
            ),
            ("context", "reference", "answer"),
            ("context", "reference"),
        ),
    )
}
CRITERIA["hallucination"] = CRITERIA["consistency"]  # the same question by its other name


def custom(text: str) -> Criterion:
    """A criterion in the user's own words."""
    return Criterion("custom", text, (), ALL_MATERIAL)
