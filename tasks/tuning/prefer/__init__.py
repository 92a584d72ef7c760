"""Stages `preferences` and `prefer`: make answers likelier that people prefer to others."""
