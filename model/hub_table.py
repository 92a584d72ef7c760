"""A table of names, ours -> theirs (`model.hub_names` says how to read it), and its usual parts."""

Names = dict[str, str | tuple[str, ...]]
QKV = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")


def within(ours: str, theirs: str, names: Names) -> Names:
    """A table with a prefix on each side."""
    return {
        "=" * name.startswith("=") + ours + name.lstrip("="): (
            theirs + there if isinstance(there, str) else tuple(theirs + t for t in there)
        )
        for name, there in names.items()
    }


def layers(theirs: str, *layer: Names) -> Names:
    """The tables of a layer, for each of a stack, which they find at `theirs`."""
    return {k: v for names in layer for k, v in within("blocks.*.", theirs, names).items()}


def attention(norm: str, qkv: str | tuple[str, ...], out: str) -> Names:
    """The attention of a layer, and the norm that belongs to it."""
    return {"attention.norm": norm, "attention.inner.qkv": qkv, "attention.inner.out": out}


def feedforward(norm: str, up: str | tuple[str, ...], down: str) -> Names:
    """The feed-forward part of a layer, and the norm that belongs to it."""
    return {"feedforward.norm": norm, "feedforward.inner.up": up, "feedforward.inner.down": down}


def cross(norm: str, query: str, kv: tuple[str, ...], out: str) -> Names:
    """The attention of a decoder's layer to the encoder, and the norm that belongs to it."""
    inner = {"query": query, "kv": kv, "out": out}
    return {"cross.norm": norm} | {f"cross.inner.{name}": there for name, there in inner.items()}


def masked_head(dense: str, norm: str, bias: str, decoder: str) -> Names:
    """The head of a masked language model: a layer with a norm, then the vocabulary's vectors."""
    transform: Names = {"head_transform.dense": dense, "head_transform.norm": norm}
    return transform | {"=head_bias": bias, "head": decoder}
