"""Fine-tuning of a pretrained model: classification and instruction tuning."""
