"""Whether somebody learns from what a model makes: what a recipe's sections say of each other."""

from tasks.data.filtering.settings import FilterSettings
from tasks.synthesis.settings import GradeSettings, SynthesizeSettings
from tasks.tuning.instruct.settings import InstructSettings


def check_made(
    grade: GradeSettings | None,
    filters: FilterSettings,
    asked: SynthesizeSettings | None,
    tuning: InstructSettings | None,
    trains: bool,
) -> None:
    """Raise ValueError where nothing learns from what a model makes, or what learns has nothing;
    `trains`: whether anything is trained on text.
    """
    quality = filters.quality
    teaches = quality is not None and quality.labelled is None
    if teaches and grade is None:
        raise ValueError(
            "filters.quality.labelled is missing: name labelled rows, or have a model grade "
            "documents, `grade: {model: ...}`"
        )
    if grade and not teaches:
        raise ValueError(
            "grade: nothing learns from its grades; give `filters: {quality: {}}`, without "
            "`labelled`, or leave it out"
        )
    if asked and not trains:
        raise ValueError("synthesize: a recipe that trains on no text learns nothing from it")
    lessons = asked.sources_of("instruct") if asked else {}
    if lessons and tuning is None:
        raise ValueError(
            f"synthesize: {', '.join(lessons)} are for `instruct`, which this recipe does not do; "
            "give it (`instruct: {data: null}`), or `into: pretrain`"
        )
    if tuning and tuning.data is None and not lessons:
        raise ValueError(
            "instruct.data is null, and nothing is made for it; name data, or give `synthesize: "
            "{model: ..., instructions: {}}`"
        )
