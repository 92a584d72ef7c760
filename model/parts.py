"""The pieces of a network with their costs in closed form. Arithmetic only, no PyTorch.

`parts` lists them from input to output; `model.flops` adds them up and `headrace show` prints them.
The tests hold them equal to the built modules.

Letters: d width, H heads, K key-value heads, e head dimension, V vocabulary.
"""

from collections.abc import Iterator
from dataclasses import replace

from model.config import ExpertConfig, ModelConfig
from model.part import Part, Role
from model.recurrent_parts import recurrent_parts


def parts(config: ModelConfig, context: int | None = None) -> Iterator[Part]:
    """The pieces of a network from input to output, with their costs at `context` tokens."""
    context = context or config.context
    yield from _embeddings(config)
    if config.family == "encoder_decoder":
        yield from _stack(config, context, config.encoder_depth or config.depth, "encoder ")
        yield from _stack(config, context, config.depth, "decoder ")
    else:
        yield from _stack(config, context, config.depth)
    if config.pooler:
        yield Part(name="pooler", vectors=config.width**2 + config.width)  # one token of a row
    yield from _head(config)
    if config.multi_token:
        yield from _multi_token(config, context)


def _embeddings(config: ModelConfig) -> Iterator[Part]:
    """One table of tokens; of the rest one a stack."""
    stacks = 2 if config.family == "encoder_decoder" else 1
    learned = config.positions == "learned"
    rows = {
        "token embedding": config.vocab_size,
        "position embedding": learned * stacks * (config.context + config.position_offset),
        "segment embedding": stacks * config.segments * config.segment_table,
    }
    for name, count in rows.items():
        if count:
            yield Part(name=name, role="embedding", vectors=count * config.embedded)
    if config.query_embedding:
        yield Part(name="query embedding", role="embedding", vectors=config.width)
    if config.positions == "relative":
        buckets = config.relative_buckets * config.heads
        yield Part(name="relative positions", layers=stacks, vectors=buckets)
    if config.positions == "disentangled":
        vectors = config.relative_buckets * config.width + _norm(config)
        yield Part(name="relative positions", vectors=vectors)
    if config.embedding_norm:
        yield Part(name="embedding norm", layers=stacks, vectors=_norm(config, config.embedded))
    if config.embedding_width:
        weights = config.embedding_width * config.width
        yield Part(name="embedding projection", weights=weights, vectors=config.width)


def _stack(config: ModelConfig, context: int, depth: int, name: str = "") -> Iterator[Part]:
    """The layers of one stack and its last norm."""
    if config.recurrent is not None:
        yield from recurrent_parts(config, config.recurrent, context, depth, name)
        return
    for part in _layers(config, context, range(depth), name):
        if not config.shared_layers:
            yield part
            continue
        yield replace(part, layers=1)
        again = f"{part.name} (shared)"
        yield replace(part, name=again, layers=depth - 1, shared=part.weights, vectors=0, divided=0)
    if config.norm_placement != "post":
        yield Part(name=f"{name}final norm", vectors=_norm(config))


def _layers(config: ModelConfig, context: int, layers: range, name: str) -> Iterator[Part]:
    """The parts of these layers, those of a kind together."""
    crossed = name == "decoder "
    causal = crossed or config.family == "decoder"
    spans = [_span(config.layer_window(layer), context, causal) for layer in layers]
    attention = _latent_attention if config.latent else _attention
    yield attention(config, f"{name}attention", len(layers), sum(spans) / len(layers))
    if crossed:
        yield _attention(config, f"{name}cross-attention", len(layers), context)
    dense = sum(config.layer_experts(layer) is None for layer in layers)
    if dense:
        yield _feedforward(config, f"{name}feed-forward", dense)
    if config.experts and dense < len(layers):
        yield _expert_layer(config, config.experts, f"{name}experts", len(layers) - dense)
    first = int(config.skip_first_norm and 0 in layers)
    if first:
        yield _norms(config, f"{name}first norm", 1, sublayers=1)
    if len(layers) > first:
        yield _norms(config, f"{name}norms", len(layers) - first, sublayers=2 + crossed)


def _span(window: int | None, context: int, causal: bool) -> int:
    """How many tokens one looks at; an encoder's window reaches to both sides."""
    if window is None:
        return context
    return min(context, window if causal else 2 * window - 1)


def _attention(config: ModelConfig, name: str, layers: int, span: float) -> Part:
    """Multi-head attention: 4 d^2 where keys are not shared and the heads are as wide as d."""
    queries, keys = config.heads * config.head_dim, config.kv_heads * config.head_dim
    qkv = queries + 2 * keys
    vectors = qkv * config.qkv_bias + config.width * config.attention_bias
    normed = {"none": 0, "head": 2 * config.head_dim, "all": queries + keys}[config.qk_norm]
    vectors += normed if "cross" not in name else 0
    pairs = 2 * queries * span
    if config.positions == "disentangled":
        # Of each distance a query and a key; a token's own meet those of all distances.
        distances = min(config.relative_buckets, 2 * span - 1)
        pairs += 2 * queries * distances * (1 + config.width / span)
    if config.positions == "relative_sinusoidal":
        # A matrix that all distances are multiplied with, and biases of distance, content, segment.
        vectors += queries * (config.width + 2 + (config.segments > 0) * (1 + config.segments))
        pairs += queries * (2 * span - 1) * (1 + config.width / span)
    return Part(
        name=name,
        layers=layers,
        weights=config.width * (qkv + queries),
        vectors=vectors,
        pairs=pairs,
        kept=3 * (queries + keys),
        products=2 * (queries + keys) + config.width,
        divided=config.width * (qkv + queries) + qkv * config.qkv_bias,
    )


def _latent_attention(config: ModelConfig, name: str, layers: int, span: float) -> Part:
    """Multi-head latent attention (DeepSeek-V2, section 2.1, equations 9 to 19)."""
    latent = config.latent
    assert latent is not None
    queries, values = config.heads * config.head_dim, config.heads * latent.value_dim
    expanded = queries - config.heads * latent.rope_dim + values
    rank, compressed = latent.query_rank or 0, latent.kv_rank + latent.rope_dim
    weights = rank * (config.width + queries) if rank else config.width * queries
    weights += config.width * compressed + latent.kv_rank * expanded + values * config.width
    return Part(
        name=name,
        layers=layers,
        weights=weights,
        vectors=latent.kv_rank + rank,
        pairs=(queries + values) * span,
        kept=rank + compressed + 3 * queries + expanded + values,
        products=rank + compressed + queries + expanded + values + config.width,
    )


def _feedforward(config: ModelConfig, name: str, layers: int) -> Part:
    """Two matrices, or three with a gate."""
    inner = config.ffn_width * (1 + config.gated)
    return Part(
        name=name,
        layers=layers,
        weights=config.width * (inner + config.ffn_width),
        vectors=(inner + config.width) * config.feedforward_bias,
        kept=2 * inner,
        products=inner + config.width,
        divided=config.width * (inner + config.ffn_width) + inner * config.feedforward_bias,
    )


def _expert_layer(config: ModelConfig, experts: ExpertConfig, name: str, layers: int) -> Part:
    """Shared and routed experts, and the router: a score for each routed expert."""
    one = config.width * experts.width * (2 + config.gated)
    used = experts.active + experts.shared
    return Part(
        name=f"{name}, {experts.active} of {experts.routed}",
        layers=layers,
        weights=used * one + config.width * experts.routed,
        idle=(experts.routed - experts.active) * one,
        kept=used * experts.width * 2 * (1 + config.gated) + experts.routed,
        products=used * (experts.width * (1 + config.gated) + config.width) + experts.routed,
        divided=(experts.routed + experts.shared) * one,
    )


def _norms(config: ModelConfig, name: str, layers: int, sublayers: int) -> Part:
    """One a sublayer, or two; parallel branches may share one."""
    count = 1 if config.residual == "parallel" else sublayers
    count *= 2 if config.norm_placement == "sandwich" else 1
    given = sublayers * config.width
    return Part(
        name=name,
        layers=layers,
        vectors=count * _norm(config),
        kept=2 * given,
        wide=given,
        written_out=2 * given if config.norm == "rms" else 0,
    )


def _multi_token(config: ModelConfig, context: int) -> Iterator[Part]:
    """A layer for each further token, which joins the state with that token's embedding, and
    another pass through the head (DeepSeek-V3, section 2.2, equations 21 to 23).
    """
    further = range(config.depth, config.depth + config.multi_token)
    yield from _layers(config, context, further, "multi-token ")
    head = config.vocab_size * config.width
    yield Part(
        name="multi-token join and head",
        layers=config.multi_token,
        weights=2 * config.width**2 + head,
        vectors=3 * _norm(config),
        shared=head,
    )


def _head(config: ModelConfig) -> Iterator[Part]:
    role: Role = "own head" if config.family == "encoder" else "head"
    read = config.head_width
    if config.detector:
        weights, vectors = read**2 + read, read + 1
        yield Part(name="detector", role=role, weights=weights, vectors=vectors)
        return
    if config.head_transform:
        vectors = read * (config.bias == "all") + _norm(config, read)
        yield Part(name="head transform", role=role, weights=config.width * read, vectors=vectors)
    weights = config.vocab_size * read
    tied = config.tie_embeddings
    name = "LM head (tied)" if tied else "LM head"
    vectors = config.vocab_size * config.biased_head
    shared = weights if tied else 0
    yield Part(name=name, role=role, weights=weights, vectors=vectors, shared=shared)
    if config.apart:
        yield Part(name=f"{name}, backwards", role=role, weights=weights, shared=weights)


def _norm(config: ModelConfig, width: int | None = None) -> int:
    width = width or config.width
    return width * (2 if config.norm == "layer" and config.norm_bias else 1)
