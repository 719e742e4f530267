"""Draw the figures of an inspection from plain numbers and labels: what they show is decided elsewhere."""
