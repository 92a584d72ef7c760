"""Stage `instruct`: tune a pretrained model to answer instructions."""
