"""Text from a model folder: the function behind `headrace generate MODEL --prompt TEXT`."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from cluster.artifact import Artifact, is_fetched
from cluster.errors import BadInput
from cluster.manifest import MANIFEST
from cluster.settings import Settings
from tasks.inference.few_shot import STOP, Shot, few_shot_chat, few_shot_prompt
from tasks.inference.text_stream import TextStream, before_stop, first_stop
from tasks.tokens import encoder

if TYPE_CHECKING:
    from model.generation import Ending, Network, Sampling, Token
    from tasks.tokens.encoder import Encoder

MOST_TOKENS = 64
Precision = Literal["fp32", "fp16", "bf16"]
"""What weights are rounded to as they are read, and a network computes in; in fp16 on a CPU large
matrices alone are rounded, and all is computed in fp32.
"""
FILES = ("config.json", "tokenizer.json")


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
    min_p: float | None = Field(
        None, gt=0, le=1, description="sample among tokens this share as likely as the likeliest"
    )
    num_beams: int = Field(4, ge=1, description="hypotheses kept by beam search")
    length_penalty: float = Field(
        0.0, description="exponent on (5 + tokens) / 6, which divides a hypothesis's score"
    )
    samples: int = Field(8, ge=2, description="samples drawn by mbr")
    max_tokens: int | None = Field(
        None, ge=1, description="new tokens at most; 64, or as many as the context has room for"
    )
    stop: list[str] = Field([], description="texts before which the answer ends")
    seed: int = Field(0, ge=0, description="of sampling")
    chat: bool = Field(False, description="put the prompt as a user's turn to a tuned model")
    top_logprobs: int = Field(
        0, ge=0, description="likeliest tokens of each step that are told too; none by beam search"
    )
    compile: bool = Field(
        False,
        description="fuse a step of decoding (torch.compile): half a minute more at first, less "
        "for each token; for long texts, and none of beam search",
    )
    precision: Precision = Field(
        "fp32",
        description="fp16: half the memory, on a CPU less time a token, scores to three digits; "
        "bf16: to two or three, and less time where a device multiplies it",
    )


def generate_text(
    model_path: Path,
    prompt: str,
    settings: GenerationSettings,
    shots: Sequence[Shot] = (),
    on_text: Callable[[str], object] | None = None,
) -> dict[str, Any]:
    """What the model of a folder writes after `shots` (examples) and `prompt`.

    `text`; `tokens`, the ids of it; `logprobs`, of each token in nats; `top_logprobs`, [id, nats]
    of the likeliest in place of each, where asked for; `ended`, `stop` or `length`.
    Ends at the end of document, which is not among the tokens. `on_text` is given the text piece
    by piece as it comes. Raises BadInput for a folder that is not a model, naming what is missing,
    and for settings the model's context has no room for.
    """
    if settings.decoding == "beam" and (settings.compile or settings.top_logprobs):
        raise BadInput("compile and top_logprobs are of greedy, sample and mbr, not of beam search")
    network, encoder = load_model(model_path, settings.precision)
    network.to(best_device())
    start = start_ids(model_path, network, encoder)
    if shots and not settings.chat:
        settings = settings.model_copy(update={"stop": [*settings.stop, STOP]})
    ids = prompt_ids(encoder, prompt, settings, shots)
    text, tokens = TextStream(encoder.decode, settings.stop), []
    try:
        for token in write(network, encoder, ids, settings, start_ids=start):
            tokens.append(token)
            piece = text.push(token.id)
            if on_text is not None and piece:
                on_text(piece)
    except ValueError as error:
        raise BadInput(str(error)) from error
    if on_text is not None:
        on_text(text.finish())
    kept = tokens[: len(text.ids)]
    return {
        "text": text.text,
        "tokens": text.ids,
        "logprobs": [token.log_prob for token in kept],
        **({"top_logprobs": [t.likeliest for t in kept]} if settings.top_logprobs else {}),
        "ended": "stop" if text.stopped or len(tokens) < _most(network, settings) else "length",
    }


def best_device() -> str:
    """Where a network that is asked by hand answers soonest."""
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def load_model(folder: Path, precision: Precision = "fp32") -> "tuple[Network, Encoder]":
    """Network and encoder of a model folder, or of a folder of adapters with their base. Raises
    BadInput naming what is missing, or changed where the folder is an artifact.
    """
    import torch

    from model import hub

    if (folder / MANIFEST).exists() or is_fetched(folder):
        Artifact.load(folder).folder()

    try:
        whole = hub.base_of(folder) or folder
    except ValueError as error:
        raise BadInput(str(error)) from error
    if missing := [name for name in FILES if not (whole / name).is_file()]:
        raise BadInput(
            f"{folder} is not a model folder: it has no {', '.join(missing)}; "
            "`headrace ls` lists the models of this machine"
        )
    kinds = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
    rounded = precision == "fp16" and not torch.cuda.is_available()
    try:
        network = hub.load(folder, torch.float32 if rounded else kinds[precision])
        tokens = encoder.load(whole)
    except ValueError as error:
        raise BadInput(str(error)) from error
    if rounded:
        network = _in_halves(network)
    if tokens.ids > network.config.vocab_size:
        raise BadInput(
            f"{folder}: its tokenizer has {tokens.ids} tokens and its model "
            f"{network.config.vocab_size}; they do not belong together"
        )
    network.usable = tokens.ids
    return network, tokens


def _in_halves(network: "Network") -> "Network":
    """The network with its large matrices in fp16. Raises BadInput where PyTorch cannot multiply
    them.
    """
    from model.generation.packed import Half, available, packed

    if not available(Half):
        raise BadInput("precision is fp16, which PyTorch cannot multiply on this CPU; take fp32")
    return packed(network, Half)


def start_ids(folder: Path, network: "Network", encoder: "Encoder") -> list[int]:
    """What the decoder of an encoder-decoder begins with; nothing for a decoder."""
    from model import hub

    if network.config.family != "encoder_decoder":
        return []
    return [hub.read_config(folder).get("decoder_start_token_id", encoder.pad)]


def prompt_ids(
    encoder: "Encoder", prompt: str, settings: GenerationSettings, shots: Sequence[Shot] = ()
) -> list[int]:
    """The tokens of a prompt behind its examples; an empty one is the start of a document."""
    if settings.chat:
        return few_shot_chat(encoder, shots, prompt)
    # The end of a document is the mark that documents follow in pretraining.
    return [*encoder.opening, *encoder.encode(few_shot_prompt(shots, prompt))] or [encoder.eod]


def write(
    network: "Network",
    encoder: "Encoder",
    prompt: list[int],
    settings: GenerationSettings,
    start_ids: Sequence[int] = (),
) -> "Iterator[Token]":
    """The tokens after the prompt's, up to the one that completes a stop text.

    Greedy and sampled ones come as they are chosen, those of beam search and mbr all at last.
    Raises ValueError for settings the model's context has no room for.
    """
    from model.generation import beam_search, tokens

    ending, sampling = _ending(network, encoder, settings), _sampling(settings)
    if settings.decoding == "beam":
        beams, penalty = settings.num_beams, settings.length_penalty
        found = beam_search(
            network, prompt, ending, beams=beams, length_penalty=penalty, start_ids=start_ids
        )
        yield from found.tokens
    elif settings.decoding == "mbr" and not sampling.greedy:
        yield from _minimum_risk(network, encoder, prompt, settings, start_ids)
    else:
        yield from tokens(
            network,
            prompt,
            ending,
            sampling,
            seed=settings.seed,
            likeliest=settings.top_logprobs,
            start_ids=start_ids,
            compiled=settings.compile,
        )


def most_typical(texts: Sequence[str]) -> int:
    """The number of the text with the largest mean utility (chrF), all others being references."""
    from model.generation import minimum_bayes_risk

    return minimum_bayes_risk(texts, _chrf())


def _chrf() -> Callable[[str, str], float]:
    from sacrebleu.metrics.chrf import CHRF

    chrf = CHRF()
    return lambda text, reference: chrf.sentence_score(text, [reference]).score


def _most(network: "Network", settings: GenerationSettings) -> int:
    return settings.max_tokens or min(MOST_TOKENS, network.config.context - 1)


def _ending(network: "Network", encoder: "Encoder", settings: GenerationSettings) -> "Ending":
    from model.generation import Ending

    def stopped(tokens: Sequence[int]) -> bool:
        return first_stop(encoder.decode(tokens), settings.stop) is not None

    if not settings.stop:
        return Ending(_most(network, settings), encoder.ends)
    return Ending(_most(network, settings), encoder.ends, stopped)


def _sampling(settings: GenerationSettings) -> "Sampling":
    from model.generation import GREEDY, Sampling

    if settings.decoding == "greedy":
        return GREEDY
    return Sampling(**settings.model_dump(include={"temperature", "top_k", "top_p", "min_p"}))


def _minimum_risk(
    network: "Network",
    encoder: "Encoder",
    prompt: list[int],
    settings: GenerationSettings,
    start_ids: Sequence[int],
) -> "tuple[Token, ...]":
    """The one of several samples that is most like the others, texts being cut at stop texts."""
    from model.generation import generate

    drawn = generate(
        network,
        [prompt],
        _ending(network, encoder, settings),
        _sampling(settings),
        samples=settings.samples,
        seeds=range(settings.seed, settings.seed + settings.samples),
        likeliest=settings.top_logprobs,
        start_ids=start_ids,
        compiled=settings.compile,
    )
    texts = [before_stop(encoder.decode(one.ids), settings.stop) for one in drawn]
    return drawn[most_typical(texts)].tokens
