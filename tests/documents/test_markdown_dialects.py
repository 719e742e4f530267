"""What documentation sites add to Markdown: the marks stay byte for byte, and the words in them are translated."""

import pytest

from dragoman.documents import Document
from dragoman.documents.document import DocumentConfig
from dragoman.documents.inline import SHOWN
from dragoman.documents.markdown import parse_markdown


def loud(document: Document) -> str:
    """The document in capitals; tags and code in a text stay."""
    texts = []
    for text in document.texts:
        tags = iter([*SHOWN.findall(text), ""])
        texts.append("".join(part.upper() + next(tags) for part in SHOWN.split(text)))
    return document.fill(texts).decode()


def marked(source: str) -> tuple[str, str]:
    """A source whose words to translate stand between « and », without these, and with those words in capitals."""
    pieces = source.replace("»", "«").split("«")
    return "".join(pieces), "".join(piece.upper() if index % 2 else piece for index, piece in enumerate(pieces))


BLOCKS = [
    # Docusaurus, VitePress, Pandoc
    ":::tip\n\n«sit down»\n\n:::\n", ":::warning «please *wait*»\n«sit down»\n:::\n«after»\n",
    ":::note[«a title»]{.x}\n«b»\n:::", "::: details «see» {open}\n«b»\n:::\n", "::: {.note}\n«a»\n:::\n",
    "::: {#a .b c='d'} :::\n«a»\n::::\n", "::::a\n«b»\n:::c «d»\n«e»\n:::\n::::\n", "::video[«a title»]{#id}\n",
    "- «a»\n  :::tip\n  «b»\n  :::\n«c»\n", "> :::tip\n> «b»\n> :::\n",
    # MkDocs
    '!!! note\n    «sit down»\n\n    - «a»\n',
    '??? tip "«a title»"\n\n    «sit down»\n\n        code\n\n«after»\n',
    '???+ note inline end "«say "hi"»"\n    «a»\n«after»\n',
    '=== "«one»"\n\n    «a»\n\n    === "«two»"\n\n        «b»\n\n«c»\n', '- «a»\n\n    !!! note "«b»"\n\n        «c»\n',
    "/// note | «a title»\n«b»\n///\n", "::: pydantic.main\n    options:\n      a: b\n",
    # Definitions, fields, footnotes, abbreviations, alerts
    "«one»\n«two»\n:   «a b»\n\n    «c»\n\n:   «d»\n", "«one»\n\n: «a»\n\n«two»\n: «b»\n",
    ":name: «a»\n:last name: «b *c*»\n", "«a»[^1]\n\n[^1]: «b»\n\n    «c»\n\n[^2]:\n    «d»\n",
    "*[HTML]: «hyper text»\n*[W3C]: «a consortium»\n", "> [!NOTE]\n> «a»\n", "> [!tip]- «a title»\n> «b»\n",
    # Lines without text
    "«a»\n{: .class}\n\n{.class #id}\n«b»\n{:toc}\n", "«a»\n\n(some-name)=\n## «b» {#c}\n",
    "«a»\n% words\n«b»\n\n+++ {\"a\": 1}\n\n«c»\n", "[toc]\n\n[TOC]\n\n[[toc]]\n\n\\newpage\n\n«a»\n",
    '--8<-- "a/file.md"\n\n<<< @/a/file.js\n', "{% if page %}\n«a»\n{% else %}\n«b»\n{% endif %}\n",
    "{% raw %}\na word\n\nb\n{% endraw %}\n«a»\n",
    '{{< hint info "words" >}}\n«a»\n{{< /hint >}}\n{{% note %}}\n«b»\n{{% /note %}}\n',
    "\\[\na = b\n\\]\n\n\\[ a_b \\]\n«c»\n", "\\begin{align*}\na\n\\end{align*}\n«c»\n", "«a» \\\n$$\nb\n$$\n",
    # MDX
    "import A from '@b/c';\nimport {\n  D,\n} from \"e\"\n\nexport const f = () => {\n\n  return g;\n}\n\n«import»\n",
    "<Tabs>\n<TabItem value=\"a\" label=\"«b»\">\n\n        «c»\n\n</TabItem>\n</Tabs>\n\n    code\n",
    "<Tabs\n  values={[{a: 'b'}, {c: () => d}]}\n  title=\"«a title»\">\n  «c»\n</Tabs>\n",
    "<Card title=\"«a»\" href='b' />\n«c»\n", "{/* a comment\n\nwith lines */}\n«a»\n",
    "«a» <Term id={b}>«c»</Term> «d»\n",
    # MyST
    "```{note}\n«a»\n\n- «b»\n```\n", "```{admonition} «a title»\n:class: tip\n«b»\n```\n«c»\n", "~~~{tip} «a»\n~~~\n",
    "````{note}\n```{warning} «a»\n«b»\n```\n```python\ncode\n```\n````\n", ":::{note}\n«a»\n:::\n«b»\n",
    ":::{code-block} python\na\n:::\n«b»\n", "```{figure} a.png\n:alt: «a picture»\n:width: 10px\n\n«a caption»\n```\n",
    "```{note}\n---\nclass: tip\n---\n«a»\n```\n", "```{code-block} python\n:caption: a\nb\n```\n",
    "```{toctree}\na\nb\n```\n", "```{math}\na\n```\n", "```{list-table} «a»\n* - «b»\n  - «c»\n```\n",
]  # fmt: skip


@pytest.mark.parametrize("source", BLOCKS)
def test_dialect_blocks_keep_their_marks(source: str):
    data, written = marked(source)
    document = parse_markdown(data.encode(), DocumentConfig())
    assert document.fill(document.texts) == data.encode()
    assert loud(document) == written
    assert document.skipped == []


@pytest.mark.parametrize(
    "inline",
    [
        "[[page]]", "[[page|«a label»]]", "![[picture.png]]", "[^note]", "[@smith2020, p. 3]", "[«a span»]{.class}",
        ":abbr[«a word»]{title='b'}", "{ref}`«a title» <target>`", "{ref}`target`", ":ref:`«a title» <target>`",
        ":py:class:`a.B`", "{:.red}", "{ #id .class key='a b' data-x=1 }", "{{< ref \"a.md\" >}}", "{{% ref a %}}",
        "{props.name}", "{format(value)}", "{a ? b : c}", "{/* words */}", "%%words%%", "<Term id={a}>«b»</Term>",
        r"\(a_1 + b\)", r"\[\alpha\]", ":smile:", ":material-account:{ .icon }", "++ctrl+alt++", "++«inserted words»++",
        "==«marked *words*»==", "7^«sup»^", "7~«sub»~", "[«text»][module.Class]", "[module.Class][]", "{{ a | b }}",
        "[«a»](b){ .button }", "![«a»](b){ width=10 }", "[«a»](javascript:b)", "{% a %}", "$a_b$",
    ],
)  # fmt: skip
def test_dialect_inlines_keep_their_marks(inline: str):
    for frame in ("«one» {} «two»\n", "# «one» {}\n", "- «one» {}\n", "| a |\n|---|\n| «one {} two» |\n"):
        source = frame.format(inline) if "{} two" not in frame else frame.replace("{}", f"»{inline}«")
        if "|" in frame and "|" in inline:
            continue
        data, written = marked(source)
        document = parse_markdown(data.encode(), DocumentConfig())
        assert document.fill(document.texts) == data.encode()
        assert loud(document) == written.replace("| a |", "| A |")


@pytest.mark.parametrize(
    ("text", "answer", "written"),
    [
        ('!!! note "a"', '"b" [c]', '!!! note ""b" \\[c\\]"'), (":::tip[a]", "b]c", ":::tip[b\\]c]"),
        (":::tip a", "b {c", ":::tip a"), ('<Card title="a" />', 'b"c', '<Card title="a" />'),
        ("*[A]: a b", "x * y", "*[A]: a b"), ("[[a|b]] c", "<a>x|y</a> z", "[[a|b]] c"), ("a", "::: b", "\\::: b"),
        ("a", "!!! b", "a"), ("```{note} a\n```", "b\n```", "```{note} b \\`\\`\\`\n```"),
        ("a ==b==", "<mark>x</mark> y", "==x== y"), ("[a][b.c] d", "e <a>f</a>", "e [f][b.c]"),
        ("[a]\n\n[a]: b", "x", "[x][a]\n\n[a]: b"),
        ("a [b][^1] c\n\n[b]: d", "x <a>y</a><x id=\"1\"/> z", "x [y][b][^1] z\n\n[b]: d"),
    ],
)  # fmt: skip
def test_translations_keep_dialect_marks(text: str, answer: str, written: str):
    document = parse_markdown(text.encode(), DocumentConfig())
    assert document.fill([answer] * len(document.texts)).decode() == written


@pytest.mark.parametrize(
    ("source", "line", "words"),
    [
        ("a\n\n```{glossary}\nb\n```\n", 3, "the directive 'glossary'"),
        (":::{unknown} a\nb\n:::\n", 1, "the directive 'unknown'"), ("a\n:::b {c} {d}\n", 2, "a line with :::"),
    ],
)  # fmt: skip
def test_unknown_directives_are_reported(source: str, line: int, words: str):
    document = parse_markdown(source.encode(), DocumentConfig())
    assert [(number, reason.startswith(words)) for number, reason in document.skipped] == [(line, True)]
    assert loud(document) == source.replace("a\n", "A\n", 1 if source[0] == "a" else 0)


@pytest.mark.parametrize(
    "source",
    [
        "«a» 10:30:45 «b» {name} «and {c} d»\n", "«c++ and d++ go»\n", "«a~b and» 2^3 «set {1, 2}»\n", "«a: b»\n",
        "«see (a)=b»\n", "«import it from there, export that»\n", "«a == b and c == d»\n", "«100 % of it»\n",
        "«a ::: b»\n", "«the :wrong one: here»\n",
    ],
)  # fmt: skip
def test_words_like_marks_are_translated(source: str):
    document = parse_markdown(marked(source)[0].encode(), DocumentConfig())
    assert document.texts == [marked(source)[0].strip()]


YAML = """---
title: «a title» # comment
"description": "«a \\"b\\"»"
quoted: '«it''s»'
folded: >-
  «one
  two»

  «three»
literal: |
  «one»
  «two»
long: «one
  two»
draft: true
other: left
tags: [«a tag», 3]
nested:
  title: «a title»
  other: left
---
# «Body»
"""
FIELDS = ["title", "description", "quoted", "folded", "literal", "long", "draft", "tags"]


def test_front_matter_fields_are_translated():
    data, written = marked(YAML)
    document = parse_markdown(data.encode(), DocumentConfig(FIELDS))
    assert document.fill(document.texts) == data.encode()
    assert loud(document).split() == written.split()
    assert document.skipped == [(0, "no text under the key 'draft'")]
    assert parse_markdown(data.encode(), DocumentConfig()).texts == ["Body"]


@pytest.mark.parametrize(
    ("front", "answer", "written"),
    [
        ("---\na: b\n---\n", "x: y", '---\na: "x: y"\n---\n'), ("---\na: b\n---\n", "yes", '---\na: "yes"\n---\n'),
        ("---\na: b\n---\n", "- x #y", '---\na: "- x #y"\n---\n'),
        ("---\na: 'b'\n---\n", "x'y", "---\na: 'x''y'\n---\n"),
        ('---\na: "b"\n---\n', 'x"\\y', '---\na: "x\\"\\\\y"\n---\n'),
        ('+++\na = "b"\n+++\n', 'x"', '+++\na = "x\\""\n+++\n'),
        ("+++\na = 'b' # c\n+++\n", "x'y", '+++\na = "x\'y" # c\n+++\n'),
        ("+++\n[c]\na = 'b'\n+++\n", "x", "+++\n[c]\na = 'b'\n+++\n"),
        ("---\r\na: b\r\n---\r\n", "x", "---\r\na: x\r\n---\r\n"),
        ("---\na: {b: c}\n---\n", "x", "---\na: {b: c}\n---\n"),
    ],
)  # fmt: skip
def test_front_matter_values_stay_strings(front: str, answer: str, written: str):
    document = parse_markdown(front.encode(), DocumentConfig(("a",)))
    assert document.fill([answer] * len(document.texts)).decode() == written
