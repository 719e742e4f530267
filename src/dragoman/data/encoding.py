"""Say which encodings a file may declare."""

import codecs
import re

# Supersets of ASCII in which a character's bytes do not depend on what is around it.
DECLARED = re.compile(
    r"ascii|iso8859-\d+|cp(125\d|874|932|949|950)|koi8-[rut]|shift_jis|euc_(jp|kr)|gb(2312|k|18030)|big5"
)


def is_supported(declared: str) -> bool:
    """Return whether a file may declare this encoding: whether Python knows it, and it is one of DECLARED."""
    try:
        return bool(DECLARED.fullmatch(codecs.lookup(declared).name))
    except (LookupError, ValueError):
        return False
