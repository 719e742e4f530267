"""Estimate how good a translation is, without a reference: what is measured of it, the fit, its record in a folder.

The fit predicts chrF by a weighted sum of a few features, and the share of similar translations that reached a
threshold is the confidence. `translation.calibration` makes it from pairs that took no part in training.
"""
