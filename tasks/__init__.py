"""WHAT: one stage per module, a plain function from artifacts and settings to an artifact.

Imports `model` and `cluster`, never `flows`.
"""
