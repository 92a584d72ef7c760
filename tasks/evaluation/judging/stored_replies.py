"""A judge whose replies rows bring along: they are read as an endpoint's would be.

A row's `replies` stand in the order in which its metric asks: for qag the questions on the
reference, those on the prediction, then a verdict on each question of either; for pairwise and
prometheus's relative form the verdict in either order; for selfcheck one for each sentence and
sample; else samples of the one rating.
"""

from collections import deque
from collections.abc import Sequence

from tasks.evaluation.judging.free_text import thoughts_end
from tasks.evaluation.judging.questions import Question, Unscored, Verdict
from tasks.evaluation.judging.replies import Reply, frequencies, read_choice
from tasks.evaluation.judging.rows import Row

NONE_LEFT = Unscored("no_replies", "the row has fewer replies than its metric asks questions")


class StoredJudge:
    """Gives one row's replies, each once, in their order."""

    name, writes, repeats, calls, shortened, cost = "stored replies", True, 0, 0, 0, 0.0

    def __init__(self, row: Row) -> None:
        self._replies = deque(row.replies)

    def distributions(self, questions: Sequence[Question]) -> list[Verdict]:
        """What the next replies answer."""
        return [self._verdict(question) for question in questions]

    def texts(self, prompts: Sequence[str], sample: int = 0) -> list[str | Unscored]:
        """The next replies, without thoughts."""
        return [self._text() for _ in prompts]

    def _text(self) -> str | Unscored:
        if not self._replies:
            return NONE_LEFT
        reply = self._replies.popleft()
        return reply[thoughts_end(reply) :].lstrip()

    def _verdict(self, question: Question) -> Verdict:
        if not self._replies:
            return NONE_LEFT
        read = read_choice(Reply(self._replies.popleft()), question.choices)
        return frequencies([read], question.choices)
