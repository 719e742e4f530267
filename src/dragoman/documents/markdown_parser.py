"""CommonMark as markdown-it parses it, with rules for its dialects, and with the span of each inline token."""

from collections.abc import Callable
from functools import cache, partial

from markdown_it import MarkdownIt, rules_inline
from markdown_it.rules_inline import StateInline

from dragoman.documents.markdown_dialects import ALTERNATIVES, INLINES, REFERENCES, parse_inline, parse_markup

InlineRule = Callable[[StateInline, bool], bool]


def parse_link(state: StateInline, silent: bool) -> bool:
    """Parse a link: a rule of markdown-it, for which the footnote of [text][^1] is no target."""
    end, limit = state.md.helpers.parseLinkLabel(state, state.pos, True), state.posMax
    if end >= 0 and state.src.startswith("[^", end + 1):
        state.posMax = end + 1
    applies = rules_inline.link(state, silent)
    state.posMax = limit
    return applies


INLINE_RULES: dict[str, InlineRule] = {
    "newline": rules_inline.newline,
    "escape": rules_inline.escape,
    "backticks": rules_inline.backtick,
    "strikethrough": rules_inline.strikethrough.tokenize,
    "emphasis": rules_inline.emphasis.tokenize,
    "link": parse_link,
    "image": rules_inline.image,
    "autolink": rules_inline.autolink,
    "html_inline": rules_inline.html_inline,
    "entity": rules_inline.entity,
}


@cache
def parser() -> MarkdownIt:
    """Return a CommonMark parser with tables and strikethrough, whose inline tokens know their spans."""
    markdown = MarkdownIt("commonmark").enable(["table", "strikethrough"]).disable("text_join")
    setattr(markdown, "validateLink", bool)  # noqa: B010  # nothing is opened here, so any target will do
    for name, rule in INLINE_RULES.items():
        markdown.inline.ruler.at(name, record_spans(rule))
    markdown.inline.ruler.before("escape", "markup", record_spans(partial(parse_inline, INLINES)))
    markdown.inline.ruler.after("image", "reference", record_spans(partial(parse_inline, REFERENCES)))
    markdown.block.ruler.before("table", "markup", parse_markup, ALTERNATIVES)
    return markdown


def record_spans(rule: InlineRule) -> InlineRule:
    """Return a rule that does the same and also stores the span of each token, and the end of a link's label, in it."""

    def recorded_rule(state: StateInline, silent: bool) -> bool:
        start, count = state.pos, len(state.tokens)
        if not rule(state, silent):
            return False
        if not silent:
            end = state.pos
            for token in reversed(state.tokens[count:]):
                if token.type != "text":
                    token.meta.setdefault("span", (start, state.pos))
                elif end > start:  # each delimiter has a token, which later may become that of emphasis
                    end -= len(token.content)
                    token.meta.setdefault("span", (end, end + len(token.content)))
            if rule in (parse_link, rules_inline.image):
                image = rule is rules_inline.image
                state.tokens[-1].meta["label"] = state.md.helpers.parseLinkLabel(state, start + image, not image)
        return True

    return recorded_rule
