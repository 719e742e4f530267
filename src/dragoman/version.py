"""The version of dragoman, which is that of the distribution."""

__version__ = "0.2.0"
