"""What `benchmarks/gpu.py` measures, part by part."""
