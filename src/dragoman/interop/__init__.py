"""Use the engines and formats of other programs. Each folder needs its package only when it is used."""
