"""Text from a model folder: the function behind `headrace generate MODEL --prompt TEXT`."""

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from cluster.errors import BadInput
from cluster.settings import Settings

if TYPE_CHECKING:
    from model.transformer import Transformer
    from tasks.tokens.encoder import Encoder

FILES = ("config.json", "model.safetensors", "tokenizer.json")


class GenerationSettings(Settings):
    """How to decode."""

    decoding: Literal["greedy", "sample", "beam", "mbr"] = Field(
        "greedy", description="mbr draws samples and returns the one most like the others"
    )
    temperature: float = Field(
        1.0, ge=0, description="divides the logits before sampling; 0 takes the likeliest token"
    )
    top_k: int | None = Field(None, ge=1, description="sample among the k most likely tokens")
    top_p: float | None = Field(
        None, gt=0, le=1, description="sample among the fewest tokens that hold this probability"
    )
    num_beams: int = Field(4, ge=1, description="hypotheses kept by beam search")
    samples: int = Field(8, ge=2, description="samples drawn by mbr")
    max_tokens: int = Field(64, ge=1, description="new tokens at most")
    seed: int = Field(0, ge=0, description="of sampling")
    chat: bool = Field(False, description="put the prompt as a user's turn to a tuned model")


def generate_text(model_path: Path, prompt: str, settings: GenerationSettings) -> dict[str, Any]:
    """What the model of a folder writes after `prompt`: `text`, and `tokens`, its ids.

    Ends at the end of document, which is not among the tokens. Raises BadInput for a folder that
    is not a model, naming what is missing, and for settings the model's context has no room for.
    """
    from tasks.tokens.chat import render_prompt

    network, encoder = load_model(model_path)
    ids = render_prompt(encoder, prompt) if settings.chat else encoder.encode(prompt)
    tokens = continuation(network, encoder, ids, settings)
    return {"text": encoder.decode(tokens), "tokens": tokens}


def load_model(folder: Path) -> "tuple[Transformer, Encoder]":
    """Network and encoder of a model folder. Raises BadInput naming what is missing."""
    from model import hub
    from tasks.tokens import encoder

    if missing := [name for name in FILES if not (folder / name).is_file()]:
        raise BadInput(
            f"{folder} is not a model folder: it has no {', '.join(missing)}; "
            "`headrace ls` lists the models of this machine"
        )
    try:
        network, tokens = hub.load(folder), encoder.load(folder)
    except ValueError as error:
        raise BadInput(str(error)) from error
    if tokens.vocab_size != network.config.vocab_size:
        raise BadInput(
            f"{folder}: its tokenizer has {tokens.vocab_size} tokens and its model "
            f"{network.config.vocab_size}; they do not belong together"
        )
    return network, tokens


def continuation(
    network: "Transformer", encoder: "Encoder", prompt: list[int], settings: GenerationSettings
) -> list[int]:
    """New tokens after the prompt's; an empty prompt is the start of a document.

    Raises BadInput for settings the model's context has no room for.
    """
    from model.generate import generate

    prompt = prompt or [encoder.eod]  # the mark that documents follow in pretraining
    if settings.temperature == 0 and settings.decoding != "beam":
        settings = settings.model_copy(update={"decoding": "greedy", "temperature": 1.0})
    shape = settings.model_dump(include={"max_tokens", "temperature", "top_k", "top_p"})
    try:
        if settings.decoding == "mbr":
            return _minimum_risk(network, encoder, prompt, settings, shape)
        return generate(
            network,
            prompt,
            decoding=settings.decoding,
            num_beams=settings.num_beams,
            stop_ids=[encoder.eod],
            seed=settings.seed,
            **shape,
        )
    except ValueError as error:
        raise BadInput(str(error)) from error


def _minimum_risk(
    network: "Transformer",
    encoder: "Encoder",
    prompt: list[int],
    settings: GenerationSettings,
    shape: dict[str, Any],
) -> list[int]:
    """Minimum Bayes risk: of several samples the one with the largest expected similarity."""
    from model.generate import generate_batch

    seeds = range(settings.seed, settings.seed + settings.samples)
    drawn = generate_batch(
        network,
        [prompt] * settings.samples,
        decoding="sample",
        stop_ids=[encoder.eod],
        seeds=seeds,
        **shape,
    )
    return drawn[most_typical([encoder.decode(tokens) for tokens in drawn])]


def most_typical(texts: list[str]) -> int:
    """The text with the largest mean chrF, all others being references; the first of equals."""
    from sacrebleu.metrics.chrf import CHRF

    chrf = CHRF()

    def gain(i: int) -> float:
        others = texts[:i] + texts[i + 1 :]
        return sum(chrf.sentence_score(texts[i], [other]).score for other in others)

    return max(range(len(texts)), key=gain)
