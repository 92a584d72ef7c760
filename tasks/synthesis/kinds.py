"""What is made of passages, kind by kind: prompts, replies, and what is wrong with these."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from tasks.evaluation.judging.questions import Distribution, Unscored
from tasks.synthesis import rules
from tasks.synthesis.pairs import Pair, pairs_in
from tasks.synthesis.passages import Ask
from tasks.synthesis.settings import PairSettings, SynthesizeSettings
from tasks.synthesis.templates import (
    ANSWER,
    GRADE,
    INSTRUCTION,
    QUESTIONS,
    TASKS,
    Template,
    checking,
    style_of,
)
from tasks.synthesis.writers import Asked, Writer, Written

CUT, WRONG = "cut_off", "wrong_answer"
TEMPLATES = {"questions": (QUESTIONS,), "instructions": (INSTRUCTION, ANSWER), "grade": (GRADE,)}
"""The prompts of each kind but `rephrase`, whose styles have one each."""


class Made(NamedTuple):
    """A text, or pairs of what is asked and answered, with the number of pairs that were `dropped`
    by reason. A graded document has a class (`label`, 0 or 1) and a `score`, its mean grade.
    """

    text: str = ""
    pairs: tuple[Pair, ...] = ()
    dropped: Mapping[str, int] = {}
    label: str | None = None
    score: float | None = None


class Refused(NamedTuple):
    """Why nothing was made, and what the model or the endpoint said."""

    reason: str
    said: str = ""


Outcome = Made | Refused
Maker = Callable[[Sequence[Ask], Writer, SynthesizeSettings], list[Outcome]]


def templates_of(kind: str, how: str) -> tuple[Template, ...]:
    """The prompts behind what is made, in the order in which they are put."""
    if kind == "rephrase":
        return (style_of(how),)
    return TEMPLATES[kind]


def make(asked: Sequence[Ask], writer: Writer, settings: SynthesizeSettings) -> list[Outcome]:
    """What comes of each of some asks, in order."""
    found: dict[str, Outcome] = {}
    for kind, maker in MAKERS.items():
        own = [ask for ask in asked if ask.kind == kind]
        found |= zip((ask.id for ask in own), maker(own, writer, settings), strict=True)
    outcomes = [found[ask.id] for ask in asked]
    return _in_one_language(asked, outcomes) if settings.same_language else outcomes


def rephrased(asked: Sequence[Ask], writer: Writer, settings: SynthesizeSettings) -> list[Outcome]:
    """Each passage in another style."""
    own = settings.rephrase
    if own is None:
        return []
    prompts = [style_of(ask.how).prompt([("text", ask.passage)]) for ask in asked]
    replies = _written(writer, asked, prompts)
    return [
        _taken(reply, rules.fault_of_text(reply, ask.passage, own.shortest, own.longest))
        if isinstance(reply, str)
        else reply
        for ask, reply in zip(asked, replies, strict=True)
    ]


def questioned(asked: Sequence[Ask], writer: Writer, settings: SynthesizeSettings) -> list[Outcome]:
    """Questions with answers from each passage."""
    own = settings.questions
    if own is None:
        return []
    prompts = [QUESTIONS.prompt([("text", ask.passage)], count=own.pairs) for ask in asked]
    replies = _written(writer, asked, prompts)
    found = [r if isinstance(r, Refused) else _paired(pairs_in(r)[: own.pairs], r) for r in replies]
    return _checked(asked, found, writer, own)


def instructed(asked: Sequence[Ask], writer: Writer, settings: SynthesizeSettings) -> list[Outcome]:
    """An instruction from each passage, and what a second request answers to it."""
    own = settings.instructions
    if own is None:
        return []
    prompts = [
        INSTRUCTION.prompt(
            [("text", ask.passage)], kind=TASKS[(ask.seed + int(ask.how)) % len(TASKS)]
        )
        for ask in asked
    ]
    instructions = [_instruction(reply) for reply in _written(writer, asked, prompts)]
    open_ = [n for n, one in enumerate(instructions) if isinstance(one, str)]
    answering = [
        ANSWER.prompt([("text", asked[n].passage), ("instruction", str(instructions[n]))])
        for n in open_
    ]
    answers = dict(zip(open_, _written(writer, [asked[n] for n in open_], answering), strict=True))
    found: list[Outcome] = []
    for number, one in enumerate(instructions):
        answer = answers.get(number)
        if isinstance(one, Refused):
            found.append(one)
        elif isinstance(answer, str):
            found.append(_paired([Pair(one, answer)], answer))
        else:
            assert answer is not None
            found.append(answer)
    return _checked(asked, found, writer, own)


MAKERS: dict[str, Maker] = {
    "rephrase": rephrased,
    "questions": questioned,
    "instructions": instructed,
}


def _written(writer: Writer, asked: Sequence[Ask], prompts: Sequence[str]) -> list[str | Refused]:
    """What is written to each prompt, whole; else why not."""
    pairs = zip(prompts, asked, strict=True)
    replies = writer.write([Asked(prompt, ask.seed) for prompt, ask in pairs])
    return [_whole(reply) for reply in replies]


def _whole(reply: Written | Unscored) -> str | Refused:
    if isinstance(reply, Unscored):
        return Refused(reply.reason, reply.detail)
    return Refused(CUT, reply.text) if reply.cut else rules.bare(reply.text)


def _instruction(reply: str | Refused) -> str | Refused:
    if isinstance(reply, Refused):
        return reply
    head, _, body = reply.partition(":")
    text = body.strip() if head.strip("* ").casefold() == "instruction" else reply
    fault = rules.fault_of_asked(text)
    return Refused(fault, text) if fault else text


def _taken(text: str, fault: str | None) -> Outcome:
    return Refused(fault, text) if fault else Made(text)


def _paired(pairs: Sequence[Pair], reply: str) -> Outcome:
    """The pairs that keep the rules."""
    faults = [rules.fault_of_pair(pair) for pair in pairs]
    good = tuple(pair for pair, fault in zip(pairs, faults, strict=True) if fault is None)
    dropped = Counter(fault for fault in faults if fault)
    if good:
        return Made(pairs=good, dropped=dropped)
    refused = "refusal" if rules.REFUSED.match(reply) else "no_pairs"
    return Refused(next(iter(dropped), refused), reply)


def _checked(
    asked: Sequence[Ask], found: Sequence[Outcome], writer: Writer, settings: PairSettings
) -> list[Outcome]:
    """The outcomes without the pairs whose answer the model, where it is to check, finds wrong. A
    pair without a verdict is dropped too, for the reason that there is none.
    """
    if settings.check == "rules":
        return list(found)
    every = [
        (n, pair) for n, one in enumerate(found) if isinstance(one, Made) for pair in one.pairs
    ]
    questions = [checking(asked[n].passage, *pair) for n, pair in every]
    verdicts: dict[int, list[str | None]] = {}
    for (n, _), verdict in zip(every, writer.judge.distributions(questions), strict=True):
        verdicts.setdefault(n, []).append(_fault(verdict))
    return [
        _right(one, verdicts[n]) if isinstance(one, Made) else one for n, one in enumerate(found)
    ]


def _fault(verdict: Distribution | Unscored) -> str | None:
    if isinstance(verdict, Unscored):
        return verdict.reason
    return None if verdict.likeliest == "yes" else WRONG


def _right(made: Made, faults: Sequence[str | None]) -> Outcome:
    good = tuple(p for p, fault in zip(made.pairs, faults, strict=True) if fault is None)
    dropped = Counter(made.dropped) + Counter(fault for fault in faults if fault)
    if good:
        return Made(pairs=good, dropped=dropped)
    return Refused(next(fault for fault in faults if fault), made.pairs[0].answer)


def _in_one_language(asked: Sequence[Ask], outcomes: Sequence[Outcome]) -> list[Outcome]:
    """Refused, too, is what is in another language than its passage."""
    made = [n for n, one in enumerate(outcomes) if isinstance(one, Made)]
    texts = [_text_of(outcomes[n]) for n in made]
    codes = dict(zip(made, rules.foreign(texts, [asked[n].passage for n in made]), strict=True))
    return [
        Refused(f"language:{code}", _text_of(one)) if (code := codes.get(n)) else one
        for n, one in enumerate(outcomes)
    ]


def _text_of(one: Outcome) -> str:
    if isinstance(one, Refused):
        return one.said
    return one.text or "\n".join(f"{asked}\n{answer}" for asked, answer in one.pairs)
