"""Stage `compare`: variants of one recipe side by side, told apart by paired tests over seeds."""
