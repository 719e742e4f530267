"""Make a trained model fast for searches: matrices in the type and order that a processor multiplies fastest, and steps
of few operations.
"""
