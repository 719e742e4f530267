"""Find what is wrong with sentence pairs before anything is learned from them (`dragoman check`)."""
