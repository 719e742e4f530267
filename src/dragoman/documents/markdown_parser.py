"""CommonMark as markdown-it parses it, with two rules more, and with the span of each inline token."""

import re
from collections.abc import Callable
from functools import cache

from markdown_it import MarkdownIt, rules_inline
from markdown_it.rules_block import StateBlock
from markdown_it.rules_inline import StateInline

from dragoman.text.verbatim.detect import TEMPLATE

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
# Footnotes, boxes of task lists and kinds of alerts: they are not CommonMark, but not words either.
BRACKETS = re.compile(r"\[(?:\^[^\]\[\s]+\]:?|[ xX]\](?=\s)|![A-Z]+\])")
# A formula of TeX, $x$ or $$x$$; "$5 and 6$" is none.
FORMULA = re.compile(
    r"(?<![\w$])(?:\$(?![\s$]|\d[\d.,]*\s+[^\W\d_]{2})(?:[^$\\]|\\.)+(?<!\s)\$|\$\$(?:[^$\\]|\\.)+\$\$)(?![\w$])",
    re.DOTALL,
)
EXPRESSION = re.compile(r"\{\{[^{}]*+\}\}")  # of a template
# What would be markup inside a line.
SPECIAL = re.compile(r"[\\`*\[\]<|]|(?<![^\W_])_|_(?![^\W_])|~(?=~)|&(?=#?\w+;)|!(?=\[)")


@cache
def parser() -> MarkdownIt:
    """Return a CommonMark parser with tables and strikethrough, whose inline tokens know their spans."""
    markdown = MarkdownIt("commonmark").enable(["table", "strikethrough"]).disable("text_join")
    for name, rule in INLINE_RULES.items():
        markdown.inline.ruler.at(name, record_spans(rule))
    markdown.inline.ruler.before("link", "brackets", record_spans(parse_bracket))
    markdown.block.ruler.before("fence", "formula", parse_formula, {"alt": ["paragraph", "blockquote", "list"]})
    return markdown


def parse_formula(state: StateBlock, first: int, stop: int, silent: bool) -> bool:
    """Parse lines from $$ to $$ as a block without text, whatever is in them: a rule of markdown-it.

    It returns whether the line `first` begins one that ends before the line `stop`.
    """
    for number in range(first, stop):
        line = state.src[state.bMarks[number] + state.tShift[number] : state.eMarks[number]].strip()
        if number == first:
            if state.is_code_block(first) or not line.startswith("$$"):
                return False
            line = line[2:]
        _, mark, behind = line.partition("$$")
        if behind or not (line or number == first):
            return False
        if mark:
            if not silent:
                state.push("formula", "", 0).map = [first, number + 1]
            state.line = number + 1
            return True
    return False


def parse_bracket(state: StateInline, silent: bool) -> bool:
    """Parse one of BRACKETS, a formula, or a template's statement, as a token of its own: a rule of markdown-it.

    So is an expression with characters that would be escaped. It returns whether it applies, and moves the position of
    `state` behind the token; with `silent` it adds none.
    """
    at = state.src, state.pos, state.posMax
    match = BRACKETS.match(*at) or FORMULA.match(*at) or TEMPLATE.match(*at) or EXPRESSION.match(*at)
    if match and match.re is EXPRESSION and not SPECIAL.search(match[0]):
        return False
    if match:
        if not silent:
            state.push("brackets", "", 0).content = match[0]
        state.pos = match.end()
    return bool(match)


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
