"""Sweeps: a grid of small runs planned, and its trunks and members trained."""
