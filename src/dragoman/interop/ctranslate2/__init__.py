"""CTranslate2, the fast engine for CPUs: copies of our models in its format, and the search with them.

`conversion` writes a model as CTranslate2 reads it, `engine` searches with it, and `cache` keeps the copies that
translate as their model does.
"""
