"""Stage `packing`: which stretches of the training stream make up each sample."""
