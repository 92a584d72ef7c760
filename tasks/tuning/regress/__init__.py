"""Stage `regress`: fine-tune a pretrained model to give a text a number."""
