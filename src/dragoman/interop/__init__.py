"""Other programs' models and engines. Each file needs its package only when it is used."""
