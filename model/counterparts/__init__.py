"""Which Transformers models have our blocks, and what their `config.json` calls our fields.

One table a model: a field of ours has either an `Entry` there, which writes and reads it, or one
value that it always has. A field in no table has its default. `model.hub_config` works the tables;
`model.hub_names` and `model.hub_weights` have the same for the names of tensors.
"""

from model.counterparts import decoders, encoder_decoders, encoders

COUNTERPARTS = {
    "llama": decoders.LLAMA,
    "gpt2": decoders.GPT2,
    "openai-gpt": decoders.OPENAI_GPT,
    "mistral": decoders.MISTRAL,
    "mixtral": decoders.MIXTRAL,
    "qwen2": decoders.QWEN2,
    "qwen3": decoders.QWEN3,
    "qwen3_moe": decoders.QWEN3_MOE,
    "gemma": decoders.GEMMA,
    "gemma2": decoders.GEMMA2,
    "gemma3_text": decoders.GEMMA3,
    "olmo2": decoders.OLMO2,
    "olmo3": decoders.OLMO3,
    "smollm3": decoders.SMOLLM3,
    "phi3": decoders.PHI3,
    "falcon": decoders.FALCON,
    "gpt_neox": decoders.GPT_NEOX,
    "deepseek_v3": decoders.DEEPSEEK_V3,
    "bert": encoders.BERT,
    "roberta": encoders.ROBERTA,
    "xlm-roberta": encoders.XLM_ROBERTA,
    "distilbert": encoders.DISTILBERT,
    "albert": encoders.ALBERT,
    "electra": encoders.ELECTRA,
    "deberta-v2": encoders.DEBERTA_V2,
    "xlnet": encoders.XLNET,
    "modernbert": encoders.MODERNBERT,
    "t5": encoder_decoders.T5,
    "mt5": encoder_decoders.MT5,
    "bart": encoder_decoders.BART,
}
"""By `model_type`. Where several have a shape, it is saved as the first."""
