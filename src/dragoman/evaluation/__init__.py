"""Measure how good translations are, and how fast a model finds them."""
