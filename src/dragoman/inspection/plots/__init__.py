"""The pictures of an inspection, each from plain numbers and labels: what they show is decided elsewhere."""
