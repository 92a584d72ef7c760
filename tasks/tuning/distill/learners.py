"""Student and teacher of stage `distill`, as every training process builds them."""

from dataclasses import replace
from pathlib import Path

from cluster.artifact import brought
from cluster.errors import BadInput
from model import hub, hub_heads
from model.heads import Headed
from model.objectives.distillation import Distilled, Learner, Shares
from model.objectives.modules import TokenLM, with_objective
from model.shrink import shrunk
from model.transformer import Transformer
from tasks.tokens.encoder import load
from tasks.tokens.origins import folder_of
from tasks.tuning.distill.settings import DistillSettings
from tasks.tuning.headed import pooling_of
from tasks.tuning.trained_part import trained_part

OBJECTIVES = {"decoder": "causal", "encoder": "masked"}


def distilled(base: Path, settings: DistillSettings) -> Distilled:
    """The student, which the folder `base` gives its weights, with its teacher.

    Raises BadInput where the two do not belong together: other tokens, another family, a teacher
    whose head is of no classes, a student as wide as it is not, more layers than there are.
    """
    folder = folder_of(settings.teacher) if settings.teacher else base
    if (ours := load(base).sha256) != (theirs := load(folder).sha256):
        raise BadInput(
            f"teacher {folder} reads other tokens than {base}: SHA-256 of its tokenizer is "
            f"{theirs[:12]}, here {ours[:12]}. What it says of a token means nothing to the other; "
            "take two models of one tokenizer"
        )
    try:
        student, teacher = _pair(Path(brought(base)), Path(brought(folder)), settings)
    except ValueError as error:
        raise BadInput(str(error)) from error
    widths = [learner.network.config.width for learner in (student, teacher)]
    same = widths[0] == widths[1]
    if settings.hidden and not same:
        raise BadInput(
            f"hidden is {settings.hidden}: the student's states are {widths[0]} wide and the "
            f"teacher's {widths[1]}, so that there is no angle between them; set it to 0 or null"
        )
    hidden = float(same) if settings.hidden is None else settings.hidden
    shares = Shares(settings.soft, settings.hard, hidden, settings.temperature)
    return Distilled(trained_part(student, settings, base), teacher, shares)


def _pair(base: Path, folder: Path, settings: DistillSettings) -> tuple[Learner, Learner]:
    if hub_heads.read(hub.read_config(folder)):
        teacher = hub.load_headed(folder)
        return _classifier(base, teacher, folder, settings.layers), teacher
    teacher = readable(hub.load(folder), folder)
    student = _some_layers(readable(hub.load(base), base), settings.layers)
    if student.config.family != teacher.config.family:
        raise BadInput(
            f"teacher {folder} is of family {teacher.config.family}, and {base} of family "
            f"{student.config.family}: they predict other things"
        )
    return _language_model(student, base), _language_model(teacher, folder)


def _language_model(network: Transformer, folder: Path) -> TokenLM:
    if network.config.detector:
        raise BadInput(
            f"{folder} predicts no tokens: its head finds those that were replaced. Take a model "
            "with an LM head, or a classifier as the teacher"
        )
    module = with_objective(network, OBJECTIVES[network.config.family])
    assert isinstance(module, TokenLM)
    return module


def _classifier(base: Path, teacher: Headed, folder: Path, layers: int | None) -> Headed:
    """A student of a classifier: one of as many classes, or a model with a new head."""
    head = teacher.head
    if head.kind != "sequence" or head.problem != "single_label_classification":
        raise BadInput(f"teacher {folder} names no classes of texts: its head is of {head.problem}")
    if not hub_heads.read(hub.read_config(base)):
        network = _some_layers(readable(hub.load(base), base), layers)
        return Headed(network, replace(head, pooling=pooling_of(None, network.config)))
    own = hub.load_headed(base)
    if own.head.outputs != head.outputs:
        raise BadInput(
            f"{base} tells {own.head.outputs} classes apart, teacher {folder} {head.outputs}"
        )
    student = Headed(_some_layers(readable(own.network, base), layers), own.head)
    student.classifier.load_state_dict(own.classifier.state_dict())
    return student


def readable(network: object, base: Path) -> Transformer:
    """The network of a decoder or encoder. Raises BadInput for an encoder-decoder."""
    if not isinstance(network, Transformer):
        raise BadInput(
            f"{base} is an encoder_decoder; a student or a teacher is a decoder or an encoder: "
            "pretrain one with `--set model.family=decoder` or `encoder`"
        )
    return network


def _some_layers(network: Transformer, layers: int | None) -> Transformer:
    return network if layers is None else shrunk(network, layers)
