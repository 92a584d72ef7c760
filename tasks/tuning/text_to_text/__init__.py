"""Stages `translate` and `summarise`: tune a model to write one text for another."""
