"""What Transformers calls the modules of encoders; see `model.hub_names`."""

from model.hub_table import Names, within

BERT_BASE: Names = {
    "embedding": "embeddings.word_embeddings",
    "position_embedding": "embeddings.position_embeddings",
    "segment_embedding": "embeddings.token_type_embeddings",
    "embedding_norm": "embeddings.LayerNorm",
    **within(
        "blocks.*.",
        "encoder.layer.*.",
        {
            "attention.norm": "attention.output.LayerNorm",
            "attention.inner.qkv": (
                "attention.self.query",
                "attention.self.key",
                "attention.self.value",
            ),
            "attention.inner.out": "attention.output.dense",
            "feedforward.norm": "output.LayerNorm",
            "feedforward.inner.up": "intermediate.dense",
            "feedforward.inner.down": "output.dense",
        },
    ),
    "pooler": "pooler.dense",
}
BERT: Names = {
    **within("", "bert.", BERT_BASE),
    "head_transform.dense": "cls.predictions.transform.dense",
    "head_transform.norm": "cls.predictions.transform.LayerNorm",
    "=head_bias": "cls.predictions.bias",
    "head": "cls.predictions.decoder",
}
ROBERTA: Names = {
    **within("", "roberta.", BERT_BASE),
    "head_transform.dense": "lm_head.dense",
    "head_transform.norm": "lm_head.layer_norm",
    "=head_bias": "lm_head.bias",
    "head": "lm_head.decoder",
}


DISTILBERT_BASE: Names = {
    **{name: BERT_BASE[name] for name in ("embedding", "position_embedding", "embedding_norm")},
    **within(
        "blocks.*.",
        "transformer.layer.*.",
        {
            "attention.norm": "sa_layer_norm",
            "attention.inner.qkv": ("attention.q_lin", "attention.k_lin", "attention.v_lin"),
            "attention.inner.out": "attention.out_lin",
            "feedforward.norm": "output_layer_norm",
            "feedforward.inner.up": "ffn.lin1",
            "feedforward.inner.down": "ffn.lin2",
        },
    ),
    "pooler": "pooler.dense",
}
DISTILBERT: Names = {
    **within("", "distilbert.", DISTILBERT_BASE),
    "head_transform.dense": "vocab_transform",
    "head_transform.norm": "vocab_layer_norm",
    "=head_bias": "vocab_projector.bias",
    "head": "vocab_projector",
}
ALBERT_BASE: Names = {
    **BERT_BASE,
    "embedding_projection": "encoder.embedding_hidden_mapping_in",
    **within(
        "blocks.*.",
        "encoder.albert_layer_groups.0.albert_layers.0.",
        {
            "attention.norm": "attention.LayerNorm",
            "attention.inner.qkv": ("attention.query", "attention.key", "attention.value"),
            "attention.inner.out": "attention.dense",
            "feedforward.norm": "full_layer_layer_norm",
            "feedforward.inner.up": "ffn",
            "feedforward.inner.down": "ffn_output",
        },
    ),
    "pooler": "pooler",
}
ALBERT: Names = {
    **within("", "albert.", ALBERT_BASE),
    "head_transform.dense": "predictions.dense",
    "head_transform.norm": "predictions.LayerNorm",
    "=head_bias": "predictions.bias",
    "head": "predictions.decoder",
}
DEBERTA_V2_BASE: Names = {
    **BERT_BASE,
    "blocks.*.attention.inner.qkv": tuple(
        f"encoder.layer.*.attention.self.{part}_proj" for part in ("query", "key", "value")
    ),
    "relative_embedding": "encoder.rel_embeddings",
    "relative_norm": "encoder.LayerNorm",
}
DEBERTA_V2: Names = {
    **BERT,
    **within("", "deberta.", DEBERTA_V2_BASE),
    "pooler": "pooler.dense",
}
ELECTRA_BASE: Names = {**BERT_BASE, "embedding_projection": "embeddings_project"}
ELECTRA: Names = {
    **within("", "electra.", ELECTRA_BASE),
    "detector.dense": "discriminator_predictions.dense",
    "detector.out": "discriminator_predictions.dense_prediction",
    "head_transform.dense": "generator_predictions.dense",
    "head_transform.norm": "generator_predictions.LayerNorm",
    "=head_bias": "generator_lm_head.bias",
    "head": "generator_lm_head",
}
XLNET_BASE: Names = {
    "embedding": "word_embedding",
    "=query_embedding": "mask_emb",
    **within(
        "blocks.*.",
        "layer.*.",
        {
            "attention.norm": "rel_attn.layer_norm",
            "=attention.inner.qkv.weight": ("rel_attn.q", "rel_attn.k", "rel_attn.v"),
            "=attention.inner.out.weight": "rel_attn.o",
            "=attention.inner.distance.weight": "rel_attn.r",
            "=attention.inner.content_bias": "rel_attn.r_w_bias",
            "=attention.inner.distance_bias": "rel_attn.r_r_bias",
            "=attention.inner.segment_bias": "rel_attn.r_s_bias",
            "=attention.inner.segment_embedding.weight": "rel_attn.seg_embed",
            "feedforward.norm": "ff.layer_norm",
            "feedforward.inner.up": "ff.layer_1",
            "feedforward.inner.down": "ff.layer_2",
        },
    ),
    "pooler": "pooler.dense",
}
XLNET: Names = {
    **within("", "transformer.", XLNET_BASE),
    "=head_bias": "lm_loss.bias",
    "head": "lm_loss",
}
MODERNBERT_BASE: Names = {
    "embedding": "embeddings.tok_embeddings",
    "embedding_norm": "embeddings.norm",
    **within(
        "blocks.*.",
        "layers.*.",
        {
            "attention.norm": "attn_norm",
            "attention.inner.qkv": "attn.Wqkv",
            "attention.inner.out": "attn.Wo",
            "feedforward.norm": "mlp_norm",
            "feedforward.inner.up": "mlp.Wi",
            "feedforward.inner.down": "mlp.Wo",
        },
    ),
    "norm": "final_norm",
}
MODERNBERT: Names = {
    **within("", "model.", MODERNBERT_BASE),
    "head_transform.dense": "head.dense",
    "head_transform.norm": "head.norm",
    "=head_bias": "decoder.bias",
    "head": "decoder",
}
