"""Stage `label`: fine-tune a pretrained model to tag every word of a sentence."""
