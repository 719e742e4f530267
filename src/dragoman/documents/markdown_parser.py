"""CommonMark as markdown-it parses it, with two rules more, and with the span of each inline token."""

from collections.abc import Callable
from functools import cache

from markdown_it import MarkdownIt, rules_inline
from markdown_it.rules_inline import StateInline

from dragoman.documents.markdown_dialects import ALTERNATIVES, parse_inline, parse_markup

InlineRule = Callable[[StateInline, bool], bool]
INLINE_RULES: dict[str, InlineRule] = {
    "newline": rules_inline.newline,
    "escape": rules_inline.escape,
    "backticks": rules_inline.backtick,
    "strikethrough": rules_inline.strikethrough.tokenize,
    "emphasis": rules_inline.emphasis.tokenize,
    "link": rules_inline.link,
    "image": rules_inline.image,
    "autolink": rules_inline.autolink,
    "html_inline": rules_inline.html_inline,
    "entity": rules_inline.entity,
}


@cache
def parser() -> MarkdownIt:
    """Return a CommonMark parser with tables and strikethrough, whose inline tokens know their spans."""
    markdown = MarkdownIt("commonmark").enable(["table", "strikethrough"]).disable("text_join")
    for name, rule in INLINE_RULES.items():
        markdown.inline.ruler.at(name, record_spans(rule))
    markdown.inline.ruler.before("escape", "markup", record_spans(parse_inline))
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
            if rule in (rules_inline.link, rules_inline.image):
                image = rule is rules_inline.image
                state.tokens[-1].meta["label"] = state.md.helpers.parseLinkLabel(state, start + image, not image)
        return True

    return recorded_rule
