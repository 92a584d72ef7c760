"""What Transformers calls the modules of encoders; see `model.hub_names`."""

from model.hub_table import Names, attention, feedforward, layers, masked_head, within

BERT_QKV = ("attention.self.query", "attention.self.key", "attention.self.value")
BERT_BASE: Names = {
    "embedding": "embeddings.word_embeddings",
    "position_embedding": "embeddings.position_embeddings",
    "segment_embedding": "embeddings.token_type_embeddings",
    "embedding_norm": "embeddings.LayerNorm",
    **layers(
        "encoder.layer.*.",
        attention("attention.output.LayerNorm", BERT_QKV, "attention.output.dense"),
        feedforward("output.LayerNorm", "intermediate.dense", "output.dense"),
    ),
    "pooler": "pooler.dense",
}
BERT: Names = {
    **within("", "bert.", BERT_BASE),
    **within(
        "",
        "cls.predictions.",
        masked_head("transform.dense", "transform.LayerNorm", "bias", "decoder"),
    ),
}
ROBERTA: Names = {
    **within("", "roberta.", BERT_BASE),
    **within("", "lm_head.", masked_head("dense", "layer_norm", "bias", "decoder")),
}
DISTILBERT_BASE: Names = {
    **{name: BERT_BASE[name] for name in ("embedding", "position_embedding", "embedding_norm")},
    **layers(
        "transformer.layer.*.",
        attention(
            "sa_layer_norm",
            ("attention.q_lin", "attention.k_lin", "attention.v_lin"),
            "attention.out_lin",
        ),
        feedforward("output_layer_norm", "ffn.lin1", "ffn.lin2"),
    ),
    "pooler": "pooler.dense",
}
DISTILBERT: Names = {
    **within("", "distilbert.", DISTILBERT_BASE),
    **within("", "vocab_", masked_head("transform", "layer_norm", "projector.bias", "projector")),
}
ALBERT_BASE: Names = {
    **BERT_BASE,
    "embedding_projection": "encoder.embedding_hidden_mapping_in",
    **layers(
        "encoder.albert_layer_groups.0.albert_layers.0.",
        attention(
            "attention.LayerNorm",
            ("attention.query", "attention.key", "attention.value"),
            "attention.dense",
        ),
        feedforward("full_layer_layer_norm", "ffn", "ffn_output"),
    ),
    "pooler": "pooler",
}
ALBERT: Names = {
    **within("", "albert.", ALBERT_BASE),
    **within("", "predictions.", masked_head("dense", "LayerNorm", "bias", "decoder")),
}
DEBERTA_V2_BASE: Names = {
    **BERT_BASE,
    "blocks.*.attention.inner.qkv": tuple(
        f"encoder.layer.*.attention.self.{part}_proj" for part in ("query", "key", "value")
    ),
    "relative_embedding": "encoder.rel_embeddings",
    "relative_norm": "encoder.LayerNorm",
}
DEBERTA_V2: Names = {**BERT, **within("", "deberta.", DEBERTA_V2_BASE), "pooler": "pooler.dense"}
ELECTRA_BASE: Names = {**BERT_BASE, "embedding_projection": "embeddings_project"}
ELECTRA: Names = {
    **within("", "electra.", ELECTRA_BASE),
    "detector.dense": "discriminator_predictions.dense",
    "detector.out": "discriminator_predictions.dense_prediction",
    **within(
        "",
        "generator_",
        masked_head("predictions.dense", "predictions.LayerNorm", "lm_head.bias", "lm_head"),
    ),
}
XLNET_BASE: Names = {
    "embedding": "word_embedding",
    "=query_embedding": "mask_emb",
    **layers(
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
        },
        feedforward("ff.layer_norm", "ff.layer_1", "ff.layer_2"),
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
    **layers(
        "layers.*.",
        attention("attn_norm", "attn.Wqkv", "attn.Wo"),
        feedforward("mlp_norm", "mlp.Wi", "mlp.Wo"),
    ),
    "norm": "final_norm",
}
MODERNBERT: Names = {
    **within("", "model.", MODERNBERT_BASE),
    **masked_head("head.dense", "head.norm", "decoder.bias", "decoder"),
}
