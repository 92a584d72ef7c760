"""Exams that a network sits while it is trained (`tasks.training.exams` says when).

    asked = ExamsDuring(exams=(read_exam("capitals.yaml"),), steps=(1000, 2000))
    for sitting in asked.sittings(config, encoder, []):
        sitting.sit(network, progress)

Rows are read, and every question is tried out, before a network is there.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cluster.errors import BadInput
from cluster.settings import Settings
from tasks.evaluation.exams.definition import Exam
from tasks.evaluation.exams.harness.task import Group, Task

if TYPE_CHECKING:
    from model.config import ModelConfig
    from model.generation import Network
    from tasks.evaluation.exams.candidates import Progress
    from tasks.evaluation.exams.paper import Paper
    from tasks.tokens.encoder import Encoder

log = logging.getLogger("headrace.exams")


class ExamsDuring(Settings):
    """What is asked, and after which steps."""

    exams: tuple[Exam | Task | Group, ...]
    steps: tuple[int, ...]

    def sittings(
        self, config: "ModelConfig", encoder: "Encoder", start: Sequence[int]
    ) -> "list[OneExam]":
        """See `tasks.training.exams.AskedExams`."""
        from tasks.evaluation.exams.paper import read_paper
        from tasks.evaluation.exams.trial import try_out

        found = []
        for exam in self.exams:
            try:
                paper = read_paper(exam)
                try_out(paper, config, encoder, start)
            except ValueError as error:
                raise BadInput(f"pretrain.exams: {exam.name}: {error}") from error
            found.append(OneExam(paper, encoder, tuple(start)))
        return found


@dataclass(frozen=True)
class OneExam:
    """An exam whose rows are read, for any network with a tokenizer."""

    paper: "Paper"
    encoder: "Encoder"
    start: tuple[int, ...]

    @property
    def name(self) -> str:
        """The exam's name."""
        return self.paper.exam.name

    def sit(self, network: "Network", progress: "Progress") -> dict[str, Any]:
        """`results`, as of stage `exam`, `unscored` and what is `better`; or `why` there are none,
        with a warning: training goes on.
        """
        from tasks.evaluation.exams.candidates import NetworkCandidate
        from tasks.evaluation.exams.paper import results_of, sit

        network.usable = self.encoder.ids
        try:
            sheet = sit(self.paper, NetworkCandidate(network, self.encoder, self.start), progress)
            unscored = sheet.unscored
        except ValueError as error:
            log.warning("exam %s has no score: %s", self.name, error)
            return {"why": str(error)}
        better = "lower" if sheet.parts[0].graded.lower_is_better else "higher"
        return {"results": results_of(self.paper, sheet), "unscored": unscored, "better": better}
