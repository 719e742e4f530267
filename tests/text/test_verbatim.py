"""Placeholders are found, compared, taken out and put back: each once, none torn, tags well nested."""

import doctest
import re
import sys
from collections import Counter
from itertools import pairwise

import pytest
from growth import grows_too_fast, processor_seconds
from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman.text.verbatim import KINDS, TAGS, WITH_NUMBERS, Removed, compare, find, remove, restore
from dragoman.text.verbatim.kinds import Kind

FOUND = [
    ("Hello {name}, {0} of {}!", "{name} {0} {}"),
    ("{{ user.name }} {{x}} {{{raw}}} {0:.2f} {n,number} {d, date, short} {x!r} {a.b[0]}",
     "{{ user.name }}|{{x}}|{{{raw}}}|{0:.2f}|{n,number}|{d, date, short}|{x!r}|{a.b[0]}"),
    ("${x} #{x} %{x} $name$ $HOME $(CC) %PATH%", "${x} #{x} %{x} $name$ $HOME $(CC) %PATH%"),
    ("{% if a > 1 %}Hi{%- endif -%} {# a # b #}<%= x.y %> <% if a %><?php echo $a->b; ?> <?= x ?>{%%}",
     "{% if a > 1 %}|{%- endif -%}|{# a # b #}|<%= x.y %>|<% if a %>|<?php echo $a->b; ?>|<?= x ?>|{%%}"),
    ("{% {# <% <?php {% b %", ""),
    ("%s %(name)s %1$d %d%% %% %-5.2f %lu %@ %1 %n", "%s %(name)s %1$d %d%% %% %-5.2f %lu %@ %1 %n"),
    ("%#@files@ in %1$#@folders@, %#x", "%#@files@ %1$#@folders@ %#x"),
    ("%dx%d %1%2 %dMB %1open%2, %5ld %2d %1$s", "%d %d %1 %2 %d %1 %2 %5ld %2d %1$s"),
    ("%PRODUCTNAME-Hilfe, ~%Select, %PRODUCTNAME에 5 %s를 $a$을", "%PRODUCTNAME %PRODUCTNAME %s $a$"),
    ("$US $USER, 5 $USER, 5 $us, 5 $US_x, port 80 $HOST", "$US $USER $USER $us $US_x $HOST"),
    ("&amp; &#160; &#x1F600; &nbsp;", "&amp; &#160; &#x1F600; &nbsp;"),
    ("See https://example.com/a(b)?x=1&y=%20#z, or (http://x.org/y).", "https://example.com/a(b)?x=1&y=%20#z http://x.org/y"),
    ("www.example.com; mailto:a@b.org! ftp://h/", "www.example.com mailto:a@b.org ftp://h/"),
    ("https://example.com을 보세요", "https://example.com"),
    ("https://de.wikipedia.org/wiki/Größe.", "https://de.wikipedia.org/wiki/Größe"),
    ("a.b+c@mail.example.co.uk.", "a.b+c@mail.example.co.uk"),
    ("""<b>x</b><br/><br /> <a href="//x.org/?a>b" title='it'>""",
     """<b>|</b>|<br/>|<br />|<a href="//x.org/?a>b" title='it'>"""),
    ("<!-- note --><x:y id=1>", "<!-- note -->|<x:y id=1>"),
    ("Run `git add .` or ``a`b`` now: `%s`를", "`git add .`|``a`b``|`%s`"),
    # What only looks like one.
    ("a < b and c > d, {a b}, 100 % sure, 100 %ig, 50%, 5%de, $5, AT&T, R&D; `foo' and `bar', a@b, @n", ""),
    # Of further dialects of programs' texts.
    ("{0.number} {1[k]} {$name} { $amount } %<n>s %'d %2$'d %<PRIu64> %I64d isn%'t",
     "{0.number}|{1[k]}|{$name}|{ $amount }|%<n>s|%'d|%2$'d|%<PRIu64>|%I64d"),
    ("$t(shop.number) $tc(a, {b}) @:key @.lower:a.b @:(c) :name, __X__ @@Y@@",
     "$t(shop.number)|$tc(a, {b})|@:key|@.lower:a.b|@:(c)|:name|__X__|@@Y@@"),
    ("<0>a</0> <1/> [b]x[/b] [url=http://x.org]x[/url] <color=#ff0000>7</color>",
     "<0> </0> <1/> [b] [/b] [url=http://x.org] [/url] <color=#ff0000> </color>"),
    (r"is 7.\nIs it? a\tb", r"\n \t"),
    # Names and codes.
    (r"/etc/fstab, ~/x.y/ ../a ./b C:\Users\me\x.txt \\host\dir a/b.py /usr and/or 24/7 /or",
     r"/etc/fstab ~/x.y/ ../a ./b C:\Users\me\x.txt \\host\dir a/b.py /usr"),
    ("report_83.odt, *.txt a.tar.gz README.md. end.Begin e.g. this", "report_83.odt *.txt a.tar.gz README.md"),
    ("--dry-run, --color=auto -v well-known - a -5", "--dry-run --color=auto -v"),
    ("Ctrl+Alt+T, Shift + F5, Alt+Page Up C++ GTK+ 2", "Ctrl+Alt+T|Shift + F5|Alt+Page Up|C++"),
    ("2026-05-13 2026-05-13T10:30:00Z 13.05.2026", "2026-05-13 2026-05-13T10:30:00Z"),
    ("17.14.0, v2.1 5.10-rc1 5.10.2-rc1 2.200.112 3.14", "17.14.0 v2.1 5.10.2-rc1"),
    ("0x17ED77BD #ff0000 #fff 123e4567-e89b-12d3-a456-426614174000 00:1B:44:11:3A:B7",
     "0x17ED77BD #ff0000 #fff 123e4567-e89b-12d3-a456-426614174000 00:1B:44:11:3A:B7"),
    ("+49 30 123 4567, 978-3-16-148410-0, 3-5, 2020-2021", "+49 30 123 4567|978-3-16-148410-0"),
    ("HB-5578 KB2999226 UTF-8 MP3 U+00AD A4 2D ISO 9001, MP3-Player", "HB-5578 KB2999226 UTF-8 MP3 U+00AD A4"),
    ("foo_bar LC_ALL getName() aB YouTube", "foo_bar LC_ALL getName()"),
    ("@user @al@b.org, #tag #1 :smile: C# 10:30:00", "@user @al@b.org #tag :smile:"),
    ("a👍🏽b 👨\u200d👩\u200d👧 🇰🇷 ☎ → ©", "👍🏽 👨\u200d👩\u200d👧 🇰🇷 ☎ → ©"),
    ("5 $US, 1,20\u00a0$CA, 3$AU", ""),
    ("{#if x} a {/if} { -brand-name } [[a]] %[n]s ::n:: #n# <<n>> #1 #2, \"<<\"",
     "{#if x}|{/if}|{ -brand-name }|[[a]]|%[n]s|::n::|#n#|<<n>>"),
    ("[a link](x.html) ![a](b.png), ***so*** {\\i1}so{\\i0} [a] (b)",
     "[|](x.html)|![|](b.png)|***|***|{\\i1}|{\\i0}"),
    ("localhost:8080 tel:+49301 about:config example.org/a?b, //x.example.org/y.js! http://x.例え.jp/日本を a: b 10:30",
     "localhost:8080 tel:+49301 about:config example.org/a?b //x.example.org/y.js http://x.例え.jp/日本"),
    ("info@müller.example git@x.example:a/b.git ann@localhost",
     "info@müller.example git@x.example:a/b.git ann@localhost"),
    ("os.path.join mozilla.org, .gitignore a.b(c, d) a.7z libx.so.4 e.g. p.m. end.Begin Fig.2 ...and",
     "os.path.join|mozilla.org|.gitignore|a.b(c, d)|a.7z|libx.so.4"),
    ("foo() key=value a->b i++ x[0] ::before file(s) a = b word[1] Datei[en]",
     "foo() key=value a->b i++ x[0] ::before"),
    ("$HOME/bin %APPDATA%\\Mozilla HKEY_USERS\\Software\\A node_modules/.bin/x ~/.bashrc ../a/*.png D:\\ photo(5).jpg",
     "$HOME/bin %APPDATA%\\Mozilla HKEY_USERS\\Software\\A node_modules/.bin/x ~/.bashrc ../a/*.png D:\\ photo(5).jpg"),
    ('-Wall -vvv -std=c++17 -j 8 --jobs 38 --user="a b" -I/usr/x -m32, pre- and -a',
     '-Wall|-vvv|-std=c++17|-j 8|--jobs 38|--user="a b"|-I/usr/x|-m32|-a'),
    ("Ctrl-C Alt-F4 C-x C-s ⌘Q <Ctrl>S Alt-Text Shift-Klick", "Ctrl-C|Alt-F4|C-x C-s|⌘Q|<Ctrl>S"),
    ("dpkg-deb(1) read(2), systemd.unit(5) item(s) sRGB iWARP PCs libfoo1 quake2 5.10.0-23 3.11.4-1ubuntu2 C++20 /opt.",
     "dpkg-deb(1) read(2) systemd.unit(5) sRGB iWARP libfoo1 quake2 5.10.0-23 3.11.4-1ubuntu2 C++20 /opt"),
    ("r7038 i7-3667K MK-16b BK20-y7 4F-15-A9 2018-W18 13h35 v13 2.0-SNAPSHOT 3.14a1 1.2.3-beta.4+b.5 12-Oct-2018",
     "r7038 i7-3667K MK-16b BK20-y7 4F-15-A9 2018-W18 13h35 v13 2.0-SNAPSHOT 3.14a1 1.2.3-beta.4+b.5 12-Oct-2018"),
    ("13-inch 64-bit 3rd 5km 12pt 1280x720 3-D 2-in-1 MP3-Player Top-10", ""),
    ("0b1010 a3f9811 d41d8cd98f00b204e9800998ecf84279 ::1 fe80::1ff:fe23 10:30 decade 1234567",
     "0b1010 a3f9811 d41d8cd98f00b204e9800998ecf84279 ::1 fe80::1ff:fe23"),
    ("(703) 673-9315, DE41 3704 0044 0532, 1 234 567 (5) 6-7 10 20 30", "(703) 673-9315|DE41 3704 0044 0532"),
    ("H₂O, 30² 9 m/s² 53½ ±70 §88 4.5×10²³ 10^6 1e-9 5″ © Foo™", "H₂O|²|m/s²|½|±|§|4.5×10²³|10^6|1e-9|″|©|™"),
]  # fmt: skip
NUMBERS = [
    ("3.5 km, 1,200 € and 5km를 at 10:30", "3.5 km|1,200 €|5km|10:30"),
    ("-5 °C, 50 %, 3–5 kg, $20, € 1.200,50, 1\u202f200 MB, 60 km/h",
     "-5 °C|50 %|3–5 kg|$20|€ 1.200,50|1\u202f200 MB|60 km/h"),
    ("5 $US, 1,20\u00a0$CA, 3$AU, 5 $", "5 $US|1,20\u00a0$CA|3$AU|5 $"),
    ("100 %ige 5 Minuten, in 2020, 300 times", ""),
]  # fmt: skip

# Taken out, and put back by an alignment of each character with itself: the same.
SAME = [
    "Hello {name}!", "{n} files in %s were deleted.", "Click <b>Save</b> to keep <i>your <b>file</b></i> now.",
    "See https://example.com/a(b)?x=1, or (http://x.org/y).", "%d%% of %(total)s, %1$s and %2$d.",
    "Use `git add .` or ``a`b``.", "line one<br/>line two", 'Error: "{x}"', "({0}) foo", "<p>{a} {b}</p>",
    "%dMB free, %dx%d", "https://example.com을 보세요", '<a href="https://x.org/?a=1&b=2">here</a>.', "v{0} — {1}",
    "{0}: {1}", "%s", "<b>{name}</b>, hi", "Drag {x} (see {y}) here", "{n}개의 파일", "删除{name}吗？",
    "<p>One.</p> <p>Two {x}.</p>",
]  # fmt: skip
PLAIN = [
    ("Hello {name}!", "Hello!"), ("Delete {n} files?", "Delete files?"), ("a%sb", "a b"), ("{a} {b}", ""),
    ("<b>Save</b> the <i>file</i>.", "Save the file."), ("line one<br/>line two", "line one line two"),
    ("un<b>believ</b>able", "unbelievable"), ("({x} foo)", "(foo)"), ("  nothing  ", "  nothing  "),
]  # fmt: skip
ALIGNED = [
    # source, plain translation, pairs of words that translate each other, expected
    ("Delete {name} now", "jetzt löschen", "Delete=löschen now=jetzt", "jetzt löschen {name}"),
    ("Delete %d files now", "jetzt Dateien löschen", "Delete=löschen files=Dateien now=jetzt",
     "jetzt %d Dateien löschen"),
    ("The <b>red</b> car.", "El coche rojo.", "The=El red=rojo car=coche", "El coche <b>rojo</b>."),
    ("<i>Press <b>Enter</b></i> to go on", "Zum Weitergehen Eingabe drücken",
     "Press=drücken Enter=Eingabe to=Zum go=Weitergehen on=Weitergehen",
     "Zum Weitergehen <i><b>Eingabe</b> drücken</i>"),
    ("<b>A</b> and <i>B</i>", "B und A", "A=A and=und B=B", "<i>B</i> und <b>A</b>"),
    ("See {url}.", "请看。", "See=看", "请看{url}。"),
    ("The dog sees <x/>.", "El perro ve un queso.", "dog=perro sees=ve", "El perro ve <x/> un queso."),
    ("The dog sees <x/>.", "El perro ve.", "dog=perro sees=ve", "El perro ve <x/>."),
    ("The dog (<x/> here).", "El perro está aquí.", "dog=perro here=aquí", "El perro <x/> está aquí."),
    ("The dog sees<x/>.", "El perro ve un queso.", "dog=perro sees=ve", "El perro ve<x/> un queso."),
    ("<b>Big</b> dogs run", "Hunde laufen", "dogs=Hunde run=laufen", "<b>Hunde</b> laufen"),
    ("An error of <b>€64.50</b> here", "여기 €64.50만큼 착오", "error=착오 €=€ here=여기",
     "여기 <b>€64.50만큼</b> 착오"),
]  # fmt: skip

PARTS = [
    "{name}", "{0}", "{{x}}", "%s", "%(n)s", "%1$d", "%d%%", "${x}", "$a$", "$a", "&amp;", "https://x.org/a?b=(c)",
    "http://", "a@b.org", "<b>", "</b>", "<i>", "</i>", "<br/>", '<a href="x>y">', "</a>", "`x y`", "``a`b``", "%%",
    "%1", "{% if a %}", "{# b #}", "<% c %>", "<?php d ?>", "5 km", "10:30", "`a>b`", "<!-- x -->",
]  # fmt: skip
SCRAPS = [
    "{", "}", "$", "%", "`", "``", "<", "<b", ">", "</", "&", ";", "amp", '"', "'", "http", "://", "@", "x.org", "=",
    "(", ")", "5", "km", ":", ".", ",", "€", "!", "한국", "漢字", "ひら", "カナ", "e\u0301", "👍🏽", "🇰🇷", "don't",
    "a-b", "x}", "\u200d", "1,000", "am", "<!--",
]  # fmt: skip
gaps = st.sampled_from(["", " ", "  ", "\u00a0", "\n"])


def mixed(*parts: str) -> st.SearchStrategy[str]:
    pieces = st.tuples(st.one_of(st.sampled_from(parts), st.text("ab{}%", max_size=3)), gaps).map("".join)
    return st.lists(pieces, max_size=14).map("".join)


def tree(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    tag = st.tuples(st.sampled_from(["b", "i", "b"]), gaps, inner, gaps)
    return st.lists(tag.map(lambda t: f"<{t[0]}>{t[1]}{t[2]}{t[3]}</{t[0]}>"), max_size=3).map("".join)


sources = mixed(*PARTS, *SCRAPS, "word", "two words")
nested = st.recursive(st.sampled_from(["word", "{x}", "", "one two", "%s.", "<br/>"]), tree, max_leaves=8)
translations = mixed(*SCRAPS, "Wort", "zwei Wörter").filter(lambda text: not find(text, WITH_NUMBERS))
alignments = st.one_of(st.none(), st.lists(st.tuples(st.integers(-2, 60), st.integers(-2, 60)), max_size=20))


TAKEN_OUT = st.sampled_from([KINDS, WITH_NUMBERS, TAGS])


def expected(line: str) -> list[str]:
    return line.split("|" if "|" in line else None)


def unspaced(text: str) -> str:
    return "".join(text.split())


def well_nested(text: str) -> bool:
    stack = []
    for name in re.findall(r"<(/?[bi])>", text):
        if not name.startswith("/"):
            stack.append(name)
        elif not stack or stack.pop() != name[1:]:
            return False
    return not stack


@pytest.mark.parametrize(("text", "line"), FOUND)
def test_placeholders_are_found(text: str, line: str):
    assert [placeholder.text for placeholder in find(text)] == expected(line)


@pytest.mark.parametrize(("text", "line"), NUMBERS)
def test_numbers_with_units_are_found_on_request(text: str, line: str):
    assert [number.text for number in find(text, WITH_NUMBERS)] == expected(line)
    assert [each.text for each in find(text)] == ["°C"] * text.count("°C")


def test_lost_and_invented_placeholders_are_counted():
    assert compare("{a} {a} %s <b>x</b>", "<b>x</b> %s {a} {b} %d") == (["{a}"], ["{b}", "%d"])
    assert compare("{a} %s", "%s: {a}") == ([], [])
    assert compare("{a}", "{a} {a}") == ([], ["{a}"])
    assert compare("`{a}`", "{a}") == (["`{a}`"], ["{a}"])
    assert compare("Click {name} to", "Klicken {name}}, um") == ([], ["}"])
    assert compare("Save %s now.", "% Speichern von %s.") == ([], ["%"])
    assert compare("5 % of {n} {", "{ von {n}: 5 % oder 6 %") == ([], [])  # no program looks at these
    assert compare("50 percent", "50 %") == ([], [])
    assert compare("{n} km", "} {n}", prefix="}") == ([], [])
    assert compare("5 km", "5 mi") == ([], [])
    assert compare("5 km", "5 mi", WITH_NUMBERS) == (["5 km"], ["5 mi"])


@pytest.mark.parametrize(("text", "plain"), PLAIN)
def test_text_reads_well_without_its_placeholders(text: str, plain: str):
    assert remove(text)[0] == plain


@settings(max_examples=150)
@given(sources, TAKEN_OUT)
def test_placeholders_are_parts_of_the_text_and_only_they_are_taken_out(text: str, kinds: frozenset[Kind]):
    (plain, removed), found, rest = remove(text, kinds), find(text, kinds), list(text)
    assert all(one.end <= other.start for one, other in pairwise(found))
    for placeholder in found:
        place = slice(placeholder.start, placeholder.end)
        assert text[place] == placeholder.text != ""
        rest[place] = [""] * len(placeholder.text)
    assert [(item.text, item.kind) for item in removed] == [(p.text, p.kind) for p in found]
    assert unspaced(plain) == unspaced("".join(rest))
    assert all(0 <= item.offset <= len(plain) for item in removed)
    assert sorted(item.offset for item in removed) == [item.offset for item in removed]


def test_taken_out_and_put_back_is_the_same():
    changed = 0
    for text in SAME:
        plain, removed = remove(text)
        assert restore(plain, plain, removed, [(index, index) for index in range(len(plain))]) == text
        assert restore(plain, plain, removed) == text
        changed += restore(plain, plain, [Removed(item.text, item.kind, 0) for item in removed]) != text
    assert changed > len(SAME) / 2  # the control: without offsets


def test_worked_example_of_the_module_is_true():
    result = doctest.testmod(sys.modules[Removed.__module__])
    assert (result.failed, result.attempted) == (0, 5)


@pytest.mark.parametrize(("source", "translation", "words", "text"), ALIGNED)
def test_placeholders_stand_by_the_words_that_they_stood_by(source: str, translation: str, words: str, text: str):
    plain, removed = remove(source)
    pairs = [word.split("=") for word in words.split()]
    alignment = [(plain.index(one), translation.index(other)) for one, other in pairs]
    assert restore(translation, plain, removed, alignment) == text


@settings(max_examples=400)
@given(sources, translations, alignments, TAKEN_OUT)
def test_restore_puts_each_placeholder_once_into_any_translation(
    source: str, translation: str, alignment: list[tuple[int, int]] | None, kinds: frozenset[Kind]
):
    plain, removed = remove(source, kinds)
    text = restore(translation, plain, removed, alignment, kinds)
    assert Counter(p.text for p in find(text, kinds)) == Counter(item.text for item in removed)
    assert unspaced(remove(text, kinds)[0]) == unspaced(translation)


@settings(max_examples=150)
@given(sources, mixed(*SCRAPS, *PARTS, "Wort"), alignments)
def test_placeholders_that_the_translation_has_stay(
    source: str, translation: str, alignment: list[tuple[int, int]] | None
):
    plain, removed = remove(source)
    text = restore(translation, plain, removed, alignment)
    there = [p.text for p in find(translation)] + [item.text for item in removed]
    assert Counter(p.text for p in find(text)) == Counter(there)


@given(st.lists(st.sampled_from(["%s", "%d", "%5.2f", "{}", "%1$s", "%(x)s", "{y}"]), max_size=6), alignments)
def test_placeholders_without_a_name_keep_their_order(items: list[str], alignment: list[tuple[int, int]] | None):
    source = " word ".join(["one", *items, "end"])
    plain, removed = remove(source)
    text = restore("uno dos tres cuatro cinco seis siete", plain, removed, alignment)
    positional = {"%s", "%d", "%5.2f", "{}"}
    order = [placeholder.text for placeholder in find(text) if placeholder.text in positional]
    assert order == [item for item in items if item in positional]


def test_placeholders_that_would_get_each_others_arguments_are_lost():
    assert compare("%s in %d", "%d en %s") == (["%s", "%d"], [])
    assert compare("{} in {:.2f}", "{:.2f} en {}") == (["{}", "{:.2f}"], [])
    for source, output in (("%1$s in %2$d", "%2$d en %1$s"), ("{a} {b}", "{b} {a}"), ("%s %s", "%s %s")):
        assert compare(source, output) == ([], [])  # the control


def test_placeholders_inserted_without_care_are_lost_and_tags_cross():
    """The control for the tests above and for the next one."""
    assert compare("{x}", "$" + "{x}") != ([], [])
    assert compare("`a b` %s", "`a %s b`") != ([], [])
    assert not well_nested("<b>A <i>B</b> C</i>")
    assert not well_nested("</b>A<b>")


@settings(max_examples=150)
@given(nested, st.lists(st.sampled_from(["Wort", "zwei", "漢字", "den"]), max_size=8), alignments)
def test_tags_that_were_well_nested_are_so_again(
    source: str, words: list[str], alignment: list[tuple[int, int]] | None
):
    plain, removed = remove(source)
    text = restore(" ".join(words), plain, removed, alignment)
    assert well_nested(source)
    assert well_nested(text)


@settings(max_examples=150)
@given(
    mixed("{x}", "%s", "<br/>", "word", "two words"),
    st.lists(st.sampled_from(["Wörter", "don't", "a-b", "1,000.5", "naïve", "e\u0301te\u0301", "서울"]), max_size=8),
    alignments,
)
def test_restore_splits_no_word(source: str, words: list[str], alignment: list[tuple[int, int]] | None):
    plain, removed = remove(source)
    text = restore(" ".join(words), plain, removed, alignment)
    for placeholder in reversed(find(text)):
        text = f"{text[: placeholder.start]} {text[placeholder.end :]}"
    assert text.split() == words


HOSTILE = [
    "<a ", '<a "', "<a b='", "{", "{{a ", "{a,", "a", "a@", "a@b.c", "`a ", "``a`", "5", "5,", "5\u00a0", "http://)",
    "%", "$a", "&a", "<!--", "<!-- -", "mailto:", "%(", "1:1", "€5-",
]  # fmt: skip


@pytest.mark.parametrize("units", [*([unit] for unit in HOSTILE), HOSTILE], ids=range(len(HOSTILE) + 1))
def test_find_takes_linear_time_for_any_text(units: list[str]):
    def seconds(size: int) -> float:
        text = "".join(unit * (size // len(units) // len(unit)) for unit in units)
        # It looks for words beside what it found, too.
        return processor_seconds(lambda: remove(f"{text} %s", WITH_NUMBERS))

    assert not grows_too_fast(seconds, 8_000)


@pytest.mark.slow
def test_time_that_is_not_linear_is_seen():
    """The control for the tests beside it: a pattern that reads to the end from each pair of places to begin.

    Its time is cubic: on a busy machine, quadratic time was once measured as less than MOST.
    """
    slow = re.compile(r"<[^>]*<[^>]*>")
    assert grows_too_fast(lambda size: processor_seconds(lambda: slow.search("<" * size)), 350)


@pytest.mark.parametrize("unit", ["<b>", "%s", "a{x}b", "http://x)))", "</b>", "<b>.</b>", "(5 km)"])
def test_thousands_of_placeholders_are_put_back_in_linear_time(unit: str):
    def put_back(text: str) -> None:
        plain, removed = remove(text, WITH_NUMBERS)
        assert compare(text, restore(plain, plain, removed, kinds=WITH_NUMBERS), WITH_NUMBERS) == ([], [])

    assert not grows_too_fast(lambda count: processor_seconds(lambda: put_back(unit * count)), 400)


def test_tags_may_be_nested_as_deep_as_they_like():
    text = "<b>" * 4000 + "word" + "</b>" * 4000
    plain, removed = remove(text)
    assert restore("Wort", plain, removed, [(0, 0)]) == text.replace("word", "Wort")


@pytest.mark.parametrize(
    ("alignment", "restored"),
    [
        ([(0, 0), (9, 11), (16, 22)], "Öffnen Sie <b>den Ordner</b> jetzt"),  # the article alone would say nothing
        ([(0, 0), (9, 15), (16, 22)], "Öffnen Sie den <b>Ordner</b> jetzt"),
        ([(0, 0), (5, 11), (16, 22)], "Öffnen Sie <b>den Ordner</b> jetzt"),  # its own word is not aligned
    ],
)
def test_tags_of_a_longer_word_are_not_around_an_article_alone(alignment: list[tuple[int, int]], restored: str):
    plain, removed = remove("Open the <b>folder</b> now")
    assert restore("Öffnen Sie den Ordner jetzt", plain, removed, alignment) == restored
    plain, removed = remove("Open <b>Help</b> now")  # in its own place, nothing moves
    assert restore(plain, plain, removed, [(n, n) for n in range(len(plain))]) == "Open <b>Help</b> now"
    plain, removed = remove("Open <b>the</b> folder now")  # the control: an article has an article
    assert restore("Öffnen Sie den Ordner jetzt", plain, removed, [(5, 11), (9, 15)]) == (
        "Öffnen Sie <b>den</b> Ordner jetzt"
    )


@pytest.mark.parametrize(
    ("text", "marks", "plain"),
    [
        ("Click **Save** to *really* ~~keep~~ it.", 6, "Click Save to really keep it."),
        ("**{name}** and **all!**", 4, "and all!"), ("**Note** that", 2, "Note that"),
        ("5 * 3 * 2 and 2*3*4", 0, ""), ("*.odt and *.ods", 0, ""), ("* one", 0, ""),
        ("a * b *c", 0, ""), ("a *b and *c now", 0, ""),
        ("Password *", 0, ""), ("**kwargs", 0, ""), ("`*x*`", 0, ""),
    ],
)  # fmt: skip
def test_marks_of_markdown_are_tags_where_they_enclose_words(text: str, marks: int, plain: str):
    assert sum(each.kind == "tag" for each in find(text)) == marks
    if marks:
        bare, removed = remove(text)
        assert bare == plain
        assert [item.tag[1] for item in removed if item.tag] == [True, False] * (marks // 2)  # they open and close
        assert restore(bare, bare, removed, [(index, index) for index in range(len(bare))]).count("*") == text.count(
            "*"
        )
