"""Stage `extract`: fine-tune a pretrained model to find the answer in a text."""
