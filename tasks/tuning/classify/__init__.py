"""Stage `classify`: fine-tune a pretrained model to name the class of a text."""
