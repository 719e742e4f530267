"""Serve translations over HTTP to the clients of other programs.

What knows no client: `models` (what translates), `texts` (texts as people send them), `spans` (where segments are, and
what a model says of words), `files` and `store` (documents, and all that is kept), `routes` (what is served, as a
table), `reading` (requests), `keys` (who may ask, and how much), `app` (from a request to its answer), `protocol` (slow
clients), `run` (start and stop), `processes` (several on one machine), `ray` (replicas on a cluster). Each API has a
file of its own, with its rows of the table.
"""
