"""What a tuning would teach, token by token, before it begins."""

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from cluster.errors import BadInput
from tasks.tuning.instruct.settings import InstructSettings
from tasks.tuning.prefer.settings import PreferSettings

SHOWN = 3


def shown_targets(folder: Path, settings: Any) -> list[str]:
    """The first training examples of these settings, decoded with the model's special tokens; what
    is taught stands between ⟦ and ⟧.

    Raises BadInput as the tuning would, and for one that teaches no tokens.
    """
    return list(islice(_targets(folder, settings), SHOWN))


def _targets(folder: Path, settings: Any) -> Iterator[str]:
    from tasks.inference.generation import load_model
    from tasks.tuning.instruct.engine import check_supervised, supervise
    from tasks.tuning.prefer.encode import encode
    from tasks.tuning.prefer.rows import preference_rows
    from tasks.tuning.sources import instruction_pairs
    from tasks.tuning.supervised import marked

    network, encoder = load_model(folder)
    if isinstance(settings, InstructSettings):
        rows = supervise(instruction_pairs(settings)[0], encoder, network.config.context)
        check_supervised(settings.data or "synthesize", rows, encoder)
        yield from (marked(encoder, example) for example in rows.examples)
    elif isinstance(settings, PreferSettings):
        length = min(settings.length or network.config.context, network.config.context)
        found = encode(preference_rows(settings, settings.loss == "kto")[0], encoder, length)
        yield from (marked(encoder, one) for examples in found.examples for one in examples)
    else:
        raise BadInput("--show-targets: this task teaches no tokens; instruct and prefer do")
