"""The words that a model card names as being mostly about grammar."""

from dragoman.server.own.models import common_words


class Subwords:
    """A tokenizer that has learned pieces, the most frequent ones first."""

    def __init__(self, *pieces: str):
        self.pieces = list(pieces)

    def __len__(self) -> int:
        return len(self.pieces)


def test_common_words_are_frequent_and_have_no_other_ending():
    frequent = [" the", " file", " Which", " could", "tion", " which", " x1yz", " that", " files"]
    rare = [" zebra", " compute", " computers", " xylophone", " weasel", " a", " b", " c", " d"]
    assert common_words(Subwords(*frequent, *rare)) == ["which", "could", "that", "files"]  # type: ignore[arg-type]
    assert common_words(Subwords(*rare, *frequent)) == ["zebra", "computers", "xylophone", "weasel"]  # type: ignore[arg-type]
