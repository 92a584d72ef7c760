"""A local classifier of premise and hypothesis, for SelfCheck: the chance of a contradiction."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cluster.errors import BadInput, MissingExtra

BATCH = 16
WANTED = (
    "selfcheck by nli needs a classifier with the labels entailment and contradiction: "
    "--encoder FOLDER, which `hf download potsawee/deberta-v3-large-mnli --local-dir FOLDER` fills"
)


class Contradiction:
    """A sequence classifier in a local folder; nothing is downloaded.

    Raises BadInput for a folder that is none, or whose labels do not say what they are.
    """

    def __init__(self, folder: Path | None) -> None:
        if folder is None:
            raise BadInput(WANTED)
        try:
            from transformers import AutoModelForSequenceClassification, AutoTokenizer
        except ImportError as error:
            raise MissingExtra(
                "selfcheck by nli needs transformers: uv pip install 'headrace[transformers]'"
            ) from error
        try:
            self._tokenizer: Any = AutoTokenizer.from_pretrained(folder, local_files_only=True)
            self._model = AutoModelForSequenceClassification.from_pretrained(
                folder, local_files_only=True, use_safetensors=True
            ).eval()
        except (OSError, ValueError) as error:
            raise BadInput(f"{folder} holds no classifier ({error}); {WANTED}") from error
        self._labels = [self._label(folder, part) for part in ("entail", "contradict")]

    def probabilities(self, pairs: Sequence[tuple[str, str]]) -> list[float]:
        """For each (sentence, sample) the probability of a contradiction rather than an entailment,
        over these two classes alone, as in SelfCheckGPT.
        """
        import torch

        found: list[float] = []
        for start in range(0, len(pairs), BATCH):
            first, second = zip(*pairs[start : start + BATCH], strict=True)
            batch = self._tokenizer(
                list(first), list(second), padding=True, truncation=True, return_tensors="pt"
            )
            with torch.inference_mode():
                logits = self._model(**batch).logits[:, self._labels]
            found.extend(logits.softmax(-1)[:, 1].tolist())
        return found

    def _label(self, folder: Path, part: str) -> int:
        labels = self._model.config.id2label
        found = [int(i) for i, label in labels.items() if part in label.casefold()]
        if len(found) != 1:
            raise BadInput(
                f"{folder} has the labels {', '.join(sorted(labels.values()))}; {WANTED}"
            )
        return found[0]
