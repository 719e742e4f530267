"""The scripts that have no spaces between words: there, each character counts as a word."""

# For a set of characters of the library `regex`, [...], or a part of one.
UNSPACED = "".join(rf"\p{{{script}}}" for script in "Han Hiragana Katakana Bopomofo Thai Lao Khmer Myanmar".split())
