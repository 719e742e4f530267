"""What documentation sites add to Markdown, as tables of patterns: two rules for markdown-it read them.

A line that is markup becomes a token `markup`, after it come tokens with the texts in it: `inline`, which are Markdown,
and `raw`, which are not. What stands inside a box is parsed like the rest of the page.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

from markdown_it.ruler import RuleOptionsType
from markdown_it.rules_block import StateBlock
from markdown_it.rules_inline import StateInline
from markdown_it.token import Token

from dragoman.text.verbatim.detect import TEMPLATE

# A formula of TeX, $x$ or $$x$$; "$5 and 6$" is none.
FORMULA = re.compile(
    r"(?<![\w$])(?:\$(?![\s$]|\d[\d.,]*\s+[^\W\d_]{2})(?:[^$\\]|\\.)+(?<!\s)\$|\$\$(?:[^$\\]|\\.)+\$\$)(?![\w$])",
    re.DOTALL,
)
# What would be markup inside a line.
SPECIAL = re.compile(r"[\\`*\[\]<|]|(?<![^\W_])_|_(?![^\W_])|~(?=~)|&(?=#?\w+;)|!(?=\[)")
ALTERNATIVES: RuleOptionsType = {
    "alt": ["paragraph", "reference", "blockquote", "list"]
}  # the blocks that these rules end
VALUE = r"""(?:"[^"]*+"|'[^']*+'|[^\s{}"'=]++)"""
ATTRIBUTE = rf"(?:[#.][\w:./-]++|[\w:@-]++={VALUE})"
ATTRIBUTES = rf"\{{(?::[^{{}}\n]*+|[ \t]*+{ATTRIBUTE}(?:[ \t]++{ATTRIBUTE})*+[ \t]*+)\}}"
LABEL = r"\[(?P<{}>(?:[^\[\]\\\n]|\\.|\[[^\[\]\n]*+\])*+)\]"
BRACES = r"\{(?:[^{}]++|\{(?:[^{}]++|\{(?:[^{}]++|\{[^{}]*+\})*+\})*+\})*+\}"  # four deep
JSX = (
    r"</?(?:[A-Z](?=[\w.]*[a-z])[\w.]*+(?=[\s/>])"
    rf"(?:[^<>{{}}\"'`/]++|/(?!>)|=>|\"[^\"]*+\"|'[^']*+'|{BRACES})*+/?)?+>"
)
STATEMENT = r"\{%(?:[^%]|%(?!\}))*+%\}|\{\{[<%][^{}]*+\}\}"  # of Liquid and Jinja; a shortcode of Hugo
ENVIRONMENTS = r"(?:equation|align|alignat|gather|multline|eqnarray|flalign|math|displaymath)\*?"


class Line(NamedTuple):
    """How a line of markup is written, and where the Markdown is that belongs to it.

    Groups: `text` and `label` are Markdown, `raw` is plain text. body: '' for none, 'below' for what is indented below
    the line, 'behind' for what follows on the line and is indented below it. why: what to say of a line left alone.
    """

    pattern: re.Pattern[str]
    body: str = ""
    why: str = ""


LINES = [
    Line(re.compile(pattern), *details)
    for pattern, *details in (
        # Docusaurus, VitePress, Pandoc: ::: name Title {.class}, ::: name[Title], :::
        (rf":{{3,}}+[ \t]*+(?:[\w.:/-]++(?:{LABEL.format('label')}|[ \t]++(?P<text>[^\s{{]++(?:[ \t]++[^\s{{]++)*+))?+"
         rf")?+[ \t]*+(?:{BRACES})?+[ \t]*+:*+\Z",),
        (rf"::[\w-]++{LABEL.format('label')}(?:\{{[^{{}}]*+\}})?+\Z",),
        (r":::", "", "a line with ::: that is not understood"),
        # MkDocs: !!! note "Title", ??? note, === "Tab", /// note | Title
        (r'(?:!!!|\?\?\?\+?)(?:[ \t]*+[\w-]++)*+(?:[ \t]*+"(?P<text>.*)")?[ \t]*\Z', "below"),
        (r'===[+!]*[ \t]++"(?P<text>.*)"\Z', "below"),
        (r"/{3,}+[ \t]*+(?:[\w-]++(?:[ \t]*+\|[ \t]*+(?P<text>.++))?+)?\Z",),
        # Definitions, fields of MyST, footnotes, abbreviations; alerts of GitHub and Obsidian.
        (r":(?:\w[^:`]*+:)?+[ \t]++(?=\S)", "behind"),
        (r"\[\^[^\]\[\s]++\]:[ \t]*+(?=\S)", "behind"),
        (r"\[\^[^\]\[\s]++\]:\Z", "below"),
        (r"\*\[[^\]\n]++\]:[ \t]*+(?P<raw>\S.*)\Z",),
        (r"\[![A-Za-z][\w-]*+\][+-]?(?:[ \t]++(?P<text>.++))?\Z",),
        # Lines without text: attributes, statements, targets, block breaks, comments, contents, page breaks, includes.
        (rf"{ATTRIBUTES}\Z",),
        (rf"(?:(?:{STATEMENT})[ \t]*+)++\Z",),
        (r"\([\w:. /-]++\)=\Z",),
        (r"\+\+\+(?:[ \t]++[\[{].*)?\Z",),
        (r"%(?:[ \t].*)?\Z",),
        (r"\[(?:toc|TOC)\]\Z|\[\[_?(?:toc|TOC)_?\]\]\Z|\\(?:newpage|pagebreak|clearpage|tableofcontents)\Z",),
        (r";?-+8<-+.*\Z|<<<[ \t]*+@.*\Z|@\[code.*\Z",),
    )
]  # fmt: skip
# From a line that begins with the first to one that ends with the second; whether blank lines may be between.
VERBATIM = [
    (re.compile(begin), re.compile(end), blank)
    for begin, end, blank in (
        (r"\$\$", r"\$\$", False),
        (r"\\\[(?=\s*\Z|.*(?:\\[A-Za-z]|[\^_=]).*\\\]\Z)", r"\\\]", False),
        (rf"\\begin\{{{ENVIRONMENTS}\}}", rf"\\end\{{{ENVIRONMENTS}\}}", False),
        (r"\{/\*", r"\*/\}", True),
        (r"\{%-?\s*(?:raw|highlight|verbatim|codeblock)\b", r"\{%-?\s*end(?:raw|highlight|verbatim|codeblock)\s*-?%\}",
         True),
        (r"\{::comment\}", r"\{:/(?:comment)?\}", True),
    )
]  # fmt: skip
MODULE = re.compile(
    r"import[ \t]+(?:[\"']|.*[ \t]from[ \t]+[\"']|\{[^}]*\Z)"
    r"|export[ \t]+(?:const|default|function|let|var|class|async|\{|\*)"
)
TAGS = re.compile(rf"(?:{JSX}[ \t]*+)++(?=\n|\Z)")
TAG = re.compile(JSX)
TAG_NAME = re.compile(r"</?([A-Z][\w.]*)")
TAG_TEXT = re.compile(
    r'(?<=\s)(?:title|label|alt|caption|description|summary|heading|placeholder|aria-label)="(?P<raw>[^"<>{}\n]++)"'
)
LONG_TAG = 4_000  # characters; the texts of longer ones are left alone

# Directives of MyST, by what is text in them; the others are left alone, and those of code in silence.
DIRECTIVE = re.compile(r"(?P<fence>`{3,}|~{3,}|:{3,})\{(?P<name>[\w:.+-]+)[^}]*\}[ \t]*(?P<text>.*)\Z")
TITLED = re.compile(
    r"admonition|attention|caution|danger|error|hint|important|note|seealso|tip|warning|todo|dropdown|details|card"
    r"|grid-item-card|tab-item|tab|topic|sidebar|rubric|centered|epigraph|pull-quote|highlights|margin|aside|list-table|table"
    r"|exercise|solution|prf:\w+|proof:\w+"
)
UNTITLED = re.compile(
    r"figure|figure-md|grid|grid-item|tab-set|tabs|div|container|only|card-carousel|deprecated|version\w+|compound|hlist"
    r"|button-link|button-ref|exercise-start|solution-start"
)
CODE = re.compile(
    r"code|code-\w+|sourcecode|literalinclude|math|toctree|include|raw|image|mermaid|graphviz|plot|bibliography|contents"
    r"|tableofcontents|auto\w+|py:\w+|js:\w+|c:\w+|cpp:\w+|currentmodule|index|tags|iframe|video|doctest|testcode|prompt"
    r"|highlight|parsed-literal|productionlist|r|R|python|julia|bash|sql|ojs|exercise-end|solution-end|\w+-exec|anywidget"
)
OPTION = re.compile(r":(?P<key>[\w-]+):(?:[ \t]+(?P<raw>\S.*))?\Z")
OPTION_TEXT = {"alt", "caption", "title", "header", "footer"}

# Inside a sentence. The name is that of the tag to show around the group `text`, which is Markdown, or `raw`.
INLINES = [
    ("", FORMULA),
    ("", TEMPLATE),
    *((name, re.compile(pattern)) for name, pattern in (
        # Footnotes, boxes of task lists and kinds of alerts.
        ("", r"\[(?:\^[^\]\[\s]+\]:?|[ xX]\](?=\s)|![A-Z]+\])"),
        # Expressions of templates with characters that would be escaped.
        ("", rf"\{{\{{(?=[^{{}}]*?(?:{SPECIAL.pattern}))[^{{}}]*+\}}\}}"),
        ("", r"\\\Z"),  # before a formula it breaks the line
        # Wiki links: [[page|label]], [[page]], ![[picture]]
        ("a", r"\[\[[^\[\]|\n]++\|(?P<raw>[^\[\]|\n]++)\]\](?![(\[])"),
        ("", r"!?\[\[[^\[\]\n]++\]\](?![(\[])"),
        # Spans of Pandoc, citations, directives of Docusaurus.
        ("span", rf"\[(?P<text>[^\[\]\n]++)\]{ATTRIBUTES}"),
        ("", r"\[-?@[^\[\]\n]++\](?![(\[])"),
        ("a", r"(?<![\w:]):[a-z][\w-]*+\[(?P<text>[^\[\]\n]++)\](?:\{[^{}\n]*+\})?+"),
        # Roles of MyST and reStructuredText.
        ("a", r"(?:\{[\w:+.-]++\}|(?<![\w:]):[a-z](?:[\w+.-]|:(?!`))*+:)"
              r"`(?P<raw>[^`<>\s]++(?:\s++[^`<>\s]++)*+)\s*+<[^`<>]++>`"),
        ("", r"(?:\{[\w:+.-]++\}|(?<![\w:]):[a-z](?:[\w+.-]|:(?!`))*+:)`[^`]++`"),
        # Attributes, shortcodes, expressions of JSX, comments of JSX and Obsidian.
        ("", ATTRIBUTES),
        ("", r"\{\{[<%][^{}]*+\}\}"),
        ("", r"\{[ \t]*+(?:/\*[^{}]*?\*/|[A-Za-z_$][\w$]*+(?:\.[\w$]++|\[[^\[\]{}\s]*+\]|\([^(){}]*+\))++"
             r"|(?=[^{}]*(?:=>|[?]|&&|\|\||[!=]==))[^{}]++|([\"'`])[^\"'`{}]*+\1)[ \t]*+\}"),
        ("", r"%%[^%\n]++%%"),
        # A tag that HTML does not know.
        ("tag", JSX),
        # Formulas, icons, keys; marked, inserted, superscript, subscript.
        ("", r"\\\((?=[^\\]*(?:[\^_=+]|\\[A-Za-z]))(?:[^\\]++|\\[^()])*+\\\)|\\\([A-Za-z0-9]\\\)"),
        ("", r"\\\[(?=[^\\]*\\[A-Za-z])(?:[^\\]++|\\[^\[\]])*+\\\]"),
        ("", r"(?<![\w:]):[a-z0-9+][a-z0-9_+-]*+:(?![\w:])"),
        ("", r"(?<!\w)\+\+[\w-]++(?:\+[\w-]++)*+\+\+(?!\w)"),
        ("ins", r"(?<![\w+])\+\+(?=[^\s+])(?P<text>(?:[^+\n]|\+(?!\+))++)(?<!\s)\+\+(?!\w)"),
        ("mark", r"==(?=[^\s=])(?P<text>(?:[^=\n]|=(?!=))++)(?<!\s)==(?!=)"),
        ("sup", r"\^(?=[^\s^])(?P<text>[^\s^\[\]]++)\^"),
        ("sub", r"(?<!~)~(?=[^\s~])(?P<text>[^\s~\[\]]++)~(?!~)"),
    )),
]  # fmt: skip
# Links to what another page or a program defines: [text][name], [name][]. To look for after links.
REFERENCES = [
    ("a", re.compile(r"\[(?P<text>[^\[\]]++)\]\[[^\[\]\^][^\[\]]*+\](?![(\[])")),
    ("", re.compile(r"\[[^\[\]]++\]\[\]")),
]


def parse_markup(state: StateBlock, first: int, stop: int, silent: bool) -> bool:
    """Parse what begins with a line of LINES, VERBATIM, tags of JSX, or a directive: a rule of markdown-it.

    It returns whether the line `first` begins such a block; with `silent` it adds no token.
    """
    if state.is_code_block(first):
        return False
    start = state.bMarks[first] + state.tShift[first]
    line = line_of(state, first)
    if not line or (line[0].isalnum() and line[0] not in "ie"):
        return False
    if directive := DIRECTIVE.match(line):
        return parse_directive(state, first, stop, silent, directive)
    if end := verbatim_end(state, first, stop, line):
        return silent or push_markup(state, first, end)
    if line[0] == "<" and (tags := TAGS.match(state.src, start)) and first + tags[0].count("\n") < stop:
        return silent or parse_tags(state, first, tags)
    for rule in LINES:
        match = rule.pattern.match(line)
        if match and (silent or match[0].strip() != ":" or follows_term(state)):
            return silent or parse_line(state, first, stop, rule, match)
    return False


def push_markup(state: StateBlock, first: int, end: int, why: str = "") -> bool:
    """Add a token for lines of markup, and go to the line after them, `end`. It returns True, as a rule does.

    why: what to say of text in them that is left alone.
    """
    token = state.push("markup", "", 0)
    token.map, token.meta = [first, end], {"why": why} if why else {}
    state.line = end
    return True


def push_texts(state: StateBlock, number: int, match: re.Match[str], start: int) -> None:
    """Add tokens for the texts that a match has found in the line `number`; it begins at the offset `start`."""
    for name in ("label", "text", "raw"):
        if name in match.re.groupindex and match[name]:
            at = start + match.start(name)
            column = at - state.src.rfind("\n", 0, at) - 1
            token = state.push("raw" if name == "raw" else "inline", "", 0)
            token.content, token.map = match[name], [number, number + 1]
            token.meta, token.children = {"column": column}, []
            if name == "raw":
                token.children = [Token("text", "", 0, content=match[name])]
            else:
                token.meta["around"] = match.string[: match.start(name)], match.string[match.end(name) :]


def parse_line(state: StateBlock, first: int, stop: int, rule: Line, match: re.Match[str]) -> bool:
    """Parse a line that a pattern of LINES matches, and its body: see `parse_markup`."""
    start = state.bMarks[first] + state.tShift[first]
    push_markup(state, first, first + 1, rule.why)
    push_texts(state, first, match, start)
    mark, shift, count = state.bMarks[first], state.tShift[first], state.sCount[first]
    if rule.body == "below":
        parse_body(state, first + 1, body_end(state, first + 1, stop, count + 4), count + 4)
    elif rule.body == "behind":
        state.bMarks[first], state.tShift[first] = start + match.end(), 0
        state.sCount[first] = count + min(4, match.end())
        parse_body(state, first, stop, state.sCount[first])
        state.tokens[-1].type = "definition"
    state.bMarks[first], state.tShift[first], state.sCount[first] = mark, shift, count
    return True


def parse_body(state: StateBlock, first: int, stop: int, indent: int) -> None:
    """Parse the lines from `first` to `stop` as blocks of their own, which are indented by `indent`."""
    outer = state.blkIndent, state.lineMax, state.parentType
    state.push("body_open", "", 1)
    state.blkIndent, state.lineMax, state.parentType = indent, stop, "root"
    state.line = first
    state.md.block.tokenize(state, first, stop)
    state.blkIndent, state.lineMax, state.parentType = outer
    state.push("body_close", "", -1)


def body_end(state: StateBlock, first: int, stop: int, indent: int) -> int:
    """Return the line after the last one, from `first` on, that is indented by `indent`."""
    end = first
    for number in range(first, stop):
        if not state.isEmpty(number):
            if state.sCount[number] < indent:
                break
            end = number + 1
    return end


def follows_term(state: StateBlock) -> bool:
    """Return whether a definition may follow, and if it follows terms, see that each of their lines is a text."""
    before = state.tokens[-2:]
    if len(before) == 2 and before[1].type == "paragraph_close":
        before[0].meta["lines"] = True
        return True
    return bool(before) and before[-1].type in ("definition", "html_block")


def verbatim_end(state: StateBlock, first: int, stop: int, line: str) -> int:
    """Return the line after a block of VERBATIM, or of modules of MDX, which begins at the line `first`; 0 if none."""
    if MODULE.match(line) and state.sCount[first] == 0:
        end = first + 1
        while end < stop and not (state.isEmpty(end) and (end + 1 >= stop or not continues(state, end + 1))):
            end += 1
        return end
    for begin, close, blank in VERBATIM:
        match = begin.match(line)
        if not match:
            continue
        unclosed: dict[re.Pattern[str], int] = state.env.setdefault("unclosed", {})
        if first < unclosed.get(close, 0):
            return 0
        line = line[match.end() :]
        for number in range(first, stop):
            if number > first:
                line = line_of(state, number)
                if not (line or blank) or (line and state.sCount[number] < state.blkIndent):
                    break
            if closing := close.search(line):
                if line[closing.end() :]:
                    break
                return number + 1
        unclosed[close] = number  # so no line before it is one to look from again
        return 0
    return 0


def continues(state: StateBlock, number: int) -> bool:
    """Return whether a line continues code after a blank line: it is indented, or closes a bracket."""
    return state.sCount[number] > 0 or state.src[state.bMarks[number]] in "})]"


def parse_tags(state: StateBlock, first: int, tags: re.Match[str]) -> bool:
    """Parse lines of tags of JSX: see `parse_markup`. There is no indented code between a tag and its end."""
    push_markup(state, first, first + tags[0].count("\n") + 1)
    if len(tags[0]) <= LONG_TAG:
        for text in TAG_TEXT.finditer(tags[0]):
            push_texts(state, first + tags[0].count("\n", 0, text.start()), text, tags.start())
    if "closed" not in state.env:
        state.env["closed"] = set(re.findall(r"</([A-Z][\w.]*)", state.src))
    depth = state.env.get("depth", 0)
    for tag in TAG.findall(tags[0]):
        name = TAG_NAME.match(tag)
        if name and name[1] in state.env["closed"] and not tag.endswith("/>"):
            depth = max(0, depth - 1) if tag.startswith("</") else depth + 1
    state.env["depth"] = depth
    state._code_enabled = not depth
    return True


def parse_directive(state: StateBlock, first: int, stop: int, silent: bool, match: re.Match[str]) -> bool:
    """Parse a directive of MyST: see `parse_markup`. Those of backticks that are code are left to the rule of those."""
    name, fence = match["name"], match["fence"]
    titled, body = TITLED.fullmatch(name), TITLED.fullmatch(name) or UNTITLED.fullmatch(name)
    if not body and fence[0] != ":":
        return False
    if silent:
        return True
    end, after = fenced_end(state, first, stop, fence)
    if not body:
        state.push("fence", "", 0).info = f"{{{name}}}"
        state.tokens[-1].map = [first, after]
        state.line = after
        return True
    push_markup(state, first, first + 1)
    if titled:
        push_texts(state, first, match, state.bMarks[first] + state.tShift[first])
    number = first + 1
    is_yaml = number < end and line_of(state, number) == "---"
    while number < end and (option := OPTION.match(line_of(state, number))):
        push_markup(state, number, number + 1)
        if option["key"] in OPTION_TEXT:
            push_texts(state, number, option, state.bMarks[number] + state.tShift[number])
        number += 1
    if is_yaml:
        number = next((line + 1 for line in range(number + 1, end) if line_of(state, line) == "---"), number)
        push_markup(state, first + 1, number)
    parse_body(state, number, end, state.blkIndent)
    return push_markup(state, end, after)


def fenced_end(state: StateBlock, first: int, stop: int, fence: str) -> tuple[int, int]:
    """Return the line that closes what `fence` opens in the line `first`, and the one after it; or the end twice."""
    for number in range(first + 1, stop):
        line = line_of(state, number)
        if line and state.sCount[number] < state.blkIndent:
            return number, number
        if line.startswith(fence) and not line.strip(fence[0]):
            return number, number + 1
    return stop, stop


def line_of(state: StateBlock, number: int) -> str:
    """Return a line without the space around it."""
    return state.src[state.bMarks[number] + state.tShift[number] : state.eMarks[number]].rstrip()


def parse_inline(patterns: Sequence[tuple[str, re.Pattern[str]]], state: StateInline, silent: bool) -> bool:
    """Parse what one of the patterns matches as a token of its own, or as one before and one after its text.

    A rule of markdown-it: it returns whether it applies, and moves the position of `state` behind the token; with
    `silent` it adds none.
    """
    if state.src[state.pos] not in "[!{:%<\\+=^~$":
        return False
    matches = ((name, pattern.match(state.src, state.pos, state.posMax)) for name, pattern in patterns)
    name, match = next((each for each in matches if each[1]), ("", None))
    if not match:
        return False
    if not silent:
        group = next((group for group in ("text", "raw") if group in match.re.groupindex), "")
        if not group:
            state.push("html_inline" if name == "tag" else "brackets", "", 0).content = match[0]
        else:
            start, end = match.span(group)
            push_side(state, "pair_open", name, (match.start(), start))
            if group == "text":
                outer, state.pos, state.posMax = state.posMax, start, end
                state.md.inline.tokenize(state)
                state.posMax = outer
            else:
                state.push("text", "", 0).content = match[group]
                state.tokens[-1].meta["span"] = (start, end)
            push_side(state, "pair_close", name, (end, match.end()))
    state.pos = match.end()
    return True


def push_side(state: StateInline, kind: str, name: str, span: tuple[int, int]) -> None:
    """Add a token for what stands before or after the text of a pair."""
    token = state.push(kind, "", 1 if kind == "pair_open" else -1)
    token.content, token.markup, token.meta = state.src[slice(*span)], name, {"span": span}


def reason_left(token: Token) -> str:
    """Return why a block is left alone although it may have text; '' for all others."""
    directive = re.match(r"\{([\w:.+-]+)", token.info) if token.type == "fence" else None
    if directive and not CODE.fullmatch(directive[1]):
        return f"the directive '{directive[1]}' is not known: left untranslated"
    return f"{token.meta['why']}: left untranslated" if "why" in token.meta else ""
