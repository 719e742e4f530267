"""Use the engines and formats of other programs. Each folder imports its package only when it is used."""
