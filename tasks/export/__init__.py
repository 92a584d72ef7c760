"""Handing a model over: a Hugging Face folder or a GGUF file, with its model card."""
