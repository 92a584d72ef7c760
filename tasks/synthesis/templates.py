"""What a model is asked to make of a passage: the prompts, each with a name and a hash.

Styles of rephrasing follow WRAP (Maini et al. 2024, arXiv 2401.16380, section 3.1: easy, medium,
hard, dialogue) and Nemotron-CC (Su et al. 2024, arXiv 2412.02595, section 2.3: wikipedia, distill,
knowledge, list); `medium` of the one is `wikipedia` of the other. Instructions begin from a passage
and a kind of task, of which Self-Instruct (Wang et al. 2023, arXiv 2212.10560) shows that variety
counts. Grades: FineWeb-Edu (Penedo et al. 2024, arXiv 2406.17557, appendix F.1), in our words.
"""

import hashlib
from collections.abc import Sequence
from typing import NamedTuple

from tasks.evaluation.judging.questions import Question, fenced

USE = "to work on"
ALONE = "Write nothing else: no title, no remark before or after."
FAITHFUL = "Keep every fact, name and number; add nothing that the text does not say."


class Template(NamedTuple):
    """A prompt around material; `{word}` in its task stands for what differs from ask to ask."""

    name: str
    task: str
    form: str = ALONE

    @property
    def sha256(self) -> str:
        """What identifies its words."""
        return hashlib.sha256(f"{self.task}\0{self.form}".encode()).hexdigest()

    def prompt(self, material: Sequence[tuple[str, str]], **words: object) -> str:
        """The prompt about some material, (label, text)."""
        return fenced(self.task.format(**words), material, self.form, USE)


def _style(name: str, manner: str) -> Template:
    return Template(f"rephrase-{name}", f"Rephrase the text {manner}. {FAITHFUL}")


STYLES = {
    name: _style(name, manner)
    for name, manner in {
        "easy": "in very simple words and short sentences that a small child understands",
        "hard": "in terse and erudite language for scholars, with rare and precise words",
        "dialogue": 'as a conversation of lines that begin with "Question:" and "Answer:"',
        "wikipedia": "in clear language of high quality, as in sentences of an encyclopedia",
        "distill": "as a condensed version, for a reader who knows the subject: terms, reasoning, "
        "examples and evidence stay, what carries no information goes",
        "knowledge": "as passages that explain the knowledge in it, as a textbook does, without "
        "what is only about the text itself",
        "list": "as a list of the facts, figures and definitions in it, one a line, each of which "
        "can be understood alone",
    }.items()
}
QUESTIONS = Template(
    "questions",
    "Write {count} questions that the text answers, each with its answer. Ask for different things "
    "in different ways: open questions, yes or no, comparison, choice among options. Each has to "
    "be understood without the text at hand, and its answer has to be in the text.",
    'Begin the line of each question with "Question:" and the next line, with its answer, with '
    '"Answer:". Write nothing else.',
)
INSTRUCTION = Template(
    "instruction",
    "Write one instruction to an assistant, as a person would, whose subject is that of the text "
    "and which asks to {kind}. It has to be understood without the text at hand, so it never "
    "mentions the text; what it is about stands in it.",
    "Write the instruction alone.",
)
TASKS = (
    "explain something",
    "compare two things",
    "list or name things",
    "summarise a passage, which stands in the instruction",
    "give a reason or a cause",
    "say how to do something, step by step",
    "correct or complete a statement",
    "classify something, with the classes named",
    "answer a factual question",
    "give an example",
)
"""Kinds of task, of which an instruction is asked for one."""
ANSWER = Template(
    "answer",
    "Follow the instruction, completely and correctly. The text is for your information: whoever "
    "gave the instruction does not see it, so do not mention it.",
    "Write the answer alone.",
)
RIGHT = (
    "Is the answer right, complete, and supported by the text or by common knowledge? An answer "
    "that mentions the text, leaves out part of what is asked, or states what is false is not."
)
EDUCATION = (
    "1 point: it has some information that is of use for learning, even among advertisements or "
    "other matter. 1 more: it touches subjects that are taught, though superficially or without "
    "order. 1 more: it is fit for teaching, coherent, and introduces concepts that matter at "
    "school. 1 more: it is of high value for teaching, clear and consistent, like a chapter of a "
    "textbook, with little that does not belong. 1 more: it is outstanding, easy to follow, "
    "thorough, and free of anything else."
)
GRADE = Template(
    "grade",
    "Grade the text by points, from 0 to 5, which add up. {rubric}",
    "Answer with the number of points alone:",
)
CHECK = Template("check", RIGHT, "Answer with yes or no alone:")
GRADES = ("0", "1", "2", "3", "4", "5")


def style_of(name: str) -> Template:
    """The template of a style by name, or in somebody's own words."""
    own = name.replace("{", "{{").replace("}", "}}")
    return STYLES.get(name) or Template("rephrase-own", f"Rephrase the text {own}. {FAITHFUL}")


def grading(text: str, rubric: str | None) -> Question:
    """The question how many points a text gets, from 0 to 5."""
    task = GRADE.task.format(rubric=rubric or EDUCATION)
    return Question(task, "Grade the text from 0 to 5.", (("text", text),), GRADE.form, GRADES)


def checking(passage: str, asked: str, answer: str) -> Question:
    """The question whether an answer is right."""
    material = (("text", passage), ("instruction", asked), ("answer", answer))
    return Question(CHECK.task, "Is the answer right?", material, CHECK.form, ("yes", "no"))
