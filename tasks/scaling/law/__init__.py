"""Stages `fit` and `forecast`: a law through the runs of a sweep, its forecasts."""
