"""Scaling laws: plan a grid of small runs, train its members, fit their losses, forecast."""
