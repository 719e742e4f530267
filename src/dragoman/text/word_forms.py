"""stub"""


class WordForms:
    def __init__(self, words):
        self.words = set(words)

    def explains(self, w):
        return w.casefold() in self.words

    @classmethod
    def unpack(cls, s):
        return cls(s.split("\n"))

    def pack(self):
        return "\n".join(sorted(self.words))
