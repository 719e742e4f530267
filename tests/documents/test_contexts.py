"""What a file says of where its texts are shown becomes their tag, if a model has learned a tag of that name."""

from collections.abc import Callable
from pathlib import Path

import polib
from conftest import Ran, save_random, tiny_transformer, toy_pairs

from dragoman.commands.translate.document import tags_of
from dragoman.data.tokenizer import Tokenizer
from dragoman.documents import read_document
from dragoman.translation.translator import Translator

MESSAGE = 'msgid "The dog sees a cat"\nmsgstr ""\n\n'
CONTEXTS = ["", "menu", "a toolbar", "title"]


def test_contexts_of_a_catalogue_are_those_of_its_texts():
    messages = [f'msgctxt "{context}"\n' * bool(context) + MESSAGE for context in ("", "menu", r"\"a\" b")]
    assert read_document("".join(messages).encode(), ".po").contexts == ["", "menu", '"a" b']
    assert read_document(b"One\n\nTwo\n", ".md").contexts == ["", ""]


def test_context_is_the_tag_of_a_model_that_has_learned_it(dragoman: Callable[..., Ran], tmp_path: Path):
    """The controls are contexts that are no tags, and a tag that is asked for."""
    tokenizer = Tokenizer.train((text for pair in toy_pairs() for text in pair), suggested=400, tags=["menu", "title"])
    save_random(tiny_transformer(), tokenizer, tmp_path / "model")
    plain, catalogue = tmp_path / "plain.po", tmp_path / "a.po"
    plain.write_text(MESSAGE)
    catalogue.write_text("".join(f'msgctxt "{context}"\n' * bool(context) + MESSAGE for context in CONTEXTS))

    def translated(source: Path, *flags: str) -> list[str]:
        out = tmp_path / "b.po"
        flags = ("-m", str(tmp_path / "model"), "-i", str(source), "-o", str(out), "--threads", "1", *flags)
        assert dragoman("translate", *flags).code == 0
        return [message.msgstr for message in polib.pofile(str(out))]

    ((untagged,), (menu,), (title,)) = (
        translated(plain, *flags) for flags in ((), ("--tag", "menu"), ("--tag", "title"))
    )
    assert len({untagged, menu, title, ""}) == 4
    assert translated(catalogue) == [untagged, menu, untagged, title]
    assert translated(catalogue, "--tag", "menu") == [menu] * len(CONTEXTS)
    translator = Translator.load(tmp_path / "model")
    assert tags_of(CONTEXTS, translator, "") == ["", "menu", "", "title"]
    translator.tag = "menu"  # as a model folder may record it; '' stands for it
    assert tags_of(CONTEXTS, translator, "") == [""] * len(CONTEXTS)
