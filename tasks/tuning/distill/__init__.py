"""Stage `distill`: a smaller model learns from a larger one."""
