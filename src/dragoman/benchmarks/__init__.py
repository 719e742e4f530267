"""Measurements that anyone can rerun. Contenders take turns, so that a machine whose speed drifts is fair to all."""
