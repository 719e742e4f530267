"""The table of what must come through a translation letter by letter: a pattern for each kind.

Each kind was held against 391,323 pairs of software texts: people keep 85 to 100 % of what is found, letter by letter,
and what looks like one and is none stays rare. docs/verbatim.md shows the table to users.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib.resources import files
from typing import Literal

Kind = Literal[
    "template", "url", "email", "code", "tag", "brace", "printf", "variable", "entity", "escape",
    "path", "file", "option", "shortcut", "date", "version", "hex", "phone", "part", "identifier",
    "handle", "hashtag", "shortcode", "emoji", "number",
    "own", "name",
]  # fmt: skip


@dataclass(frozen=True)
class Finder:
    """What finds the spans of a kind that no pattern describes: a user's own, or names."""

    kind: Kind
    find: Callable[[str], Iterable[tuple[int, int]]]


Kinds = frozenset[Kind | Finder]

EXTENSIONS = "|".join((files(__package__) / "extensions.txt").read_text(encoding="utf-8").split())
LETTER = r"[A-Za-z\u00c0-\u024f]"
FLAGS = r"[-+\#0'I]{0,4}"  # of printf; a quote groups digits, and must not be that of "isn%'t"
CONVERSION = rf"""(?!'t)(?:\d{{1,2}}\$)?{FLAGS}(?:\d{{1,4}}|\*)?(?:\.(?:\d{{1,4}}|\*))?
    (?: <PRI[A-Za-z0-9]{{1,16}}> | (?:hh?|ll?|I(?:32|64)|[qjztL])?(?:[@a-z]|[A-Z](?![a-z]{{2}})) )"""
BRACKETED = "b|i|u|s|url|img|color|colour|size|quote|code|list"
EMPHASES = r"\*\*?|~~"  # in Markdown, around what is meant
ROOTS = "etc|usr|var|home|tmp|dev|proc|opt|bin|sbin|lib|mnt|media|root|boot|srv|sys|run"
NAME = r"[\w@+~-]++(?:\.++[\w@+~-]++)*+"  # of a folder or file
PICTURE = "[\u231a\u231b\u23e9-\u23fa\u2600-\u27bf\u2b00-\u2bff\U0001f000-\U0001faff]"
MODIFIERS = "Ctrl|CTRL|Control|Alt|ALT|AltGr|Shift|SHIFT|Cmd|Command|Option|Meta|Super|Win|Windows|Fn|[⌘⌥⇧⌃]"
# What modifiers are called elsewhere; names that are not in ASCII are any.
KEYS = rf"{MODIFIERS}|Strg|Umschalt|Befehl|Wahl|Steuerung|Maj|Option|Mayúsculas|Mayús|Comando|Opción|Maiusc|Entf|Einfg"
KEY = r"(?:Page|Num)\s\w++|\w++|[^\s\w]"
AMOUNT = r"\d++(?:[.,'’\u00a0\u202f]\d++)*+"
DOLLARS = "US|CAN?|AU|NZ|HK|SG"  # "5 $US" is an amount and no variable
UNIT = rf"""(?:
    \$(?:{DOLLARS})?(?!\{{) | [€£¥₩₹%‰] | °[CF]? | [℃℉] | EUR | USD | GBP | CHF | JPY | KRW | CNY
    | (?:k?m|mi)/[hs] | mph | rpm | fps | [kKMGT]?bits?(?:/s)? | [kMGT]B/s | [kKMGTP]i?B | B
    | (?:[kcdmµμn]m|m|mi|ft|yd)[²³]? | ha | [kmµμ]?g | lbs? | oz | t | [mcdh]?[lL] | h | min | [mµμn]?s
    | [kMGT]?Hz | [kMG]?Wh? | m?Ah? | [mk]?V | k?J | k?cal | [kh]?Pa | bar | psi | dB | px | pt | em | dpi | ppi
)(?!{LETTER}|\d)"""
# Before and after a placeholder only Latin letters count as letters: a Korean particle follows it without a space.
# No pattern backtracks, and none reads on past a position where it could begin itself: time is linear for any text.
PATTERNS: dict[Kind, str] = {
    # Statements and comments of template languages: Jinja, Liquid and Twig; ERB, JSP and EJS; PHP.
    "template": r"""\{%(?:[^%{]|%(?!\})|\{(?!%))*+%\} | \{\#(?:[^\#{]|\#(?!\})|\{(?!\#))*+\#\}
        | <%(?:[^%<]|%(?!>)|<(?!%))*+%> | <\?(?:php|=)(?:[^?<]|\?(?!>)|<(?!\?))*+\?>""",
    # Beyond ASCII, only the letters of alphabets belong to an address.
    "url": r"""(?i: (?:https?|ftps?|sftp|ssh|git|file|wss?):// | (?:mailto:|www\.)[A-Za-z0-9] )
        [A-Za-z0-9_\-.~:/?\#\[\]@!$&'()*+,;=%{}\u00c0-\u058f]*+""",
    "email": r"(?<![A-Za-z0-9._%+-])[A-Za-z0-9._%+-]++@[A-Za-z0-9-]++(?:\.[A-Za-z0-9-]++)++",
    "code": r"(?<!`)(?: `(?![\s`])[^`\n]++(?<!\s)` | ``(?!`)[^`\n]++(?:`[^`\n]++)*+`` )(?![`A-Za-z0-9])",
    # Of HTML and XML; numbered, as in react-i18next; with a value, as in games; in square brackets; and Markdown's.
    "tag": rf"""< (?: /?[A-Za-z][\w:.-]*+ (?:=[^\s<>]{{1,64}}+)?+ (?:\s(?:[^<>"']++|"[^"<]*+"|'[^'<]*+')*+)?+ /?
        | /?\d{{1,3}}\s?/? | !--(?:[^<>-]|-(?!->))*+-- ) >
        | \[/?(?:{BRACKETED})(?:=[^\[\]\s]{{1,200}}+)?+\]
        | (?<![\w*~])(?:{EMPHASES})(?=[^\s*~.]) | (?<=[^\s*~])(?:{EMPHASES})(?![\w*~])""",
    "brace": r"""\{\{\{?\s?[^{}\s]++(?:\s[^{}\s]++){0,7}+\s?\}\}\}?
        | [$\#%]\{[^{}\s]++\}
        | \{\s?(?:\$?[^\W\d][\w.\[\]-]*+|\d*+(?:[.\[][\w.\[\]]*+)?+)(?:![rsa])?
          (?:[:,][^{}\s]*+|,\s?(?:number|date|time|spellout|ordinal|duration)(?:,\s?[^{}]{0,64}+)?)?\s?\}""",
    # After a number and a space, a percent sign before a word means per cent: "100 %ig".
    "printf": rf"""%(?:\([\w.]{{1,64}}\)|<\w{{1,64}}>)[-+\#0]{{0,4}}(?:\d{{1,4}})?(?:\.\d{{1,4}})?[A-Za-z]
        | (?:(?<![\d%])|(?<=%\d))%L?\d{{1,2}}(?!\d|\$|\.\d|[A-Za-z](?![A-Za-z])|[hlqjzt]{{1,2}}[diouxX])
        | (?:(?<!\d)|(?<=%\d))
          (?: (?:(?<!\d[\ \u00a0\u202f])|(?<=%\d\ ))%{CONVERSION} | %{CONVERSION}(?!{LETTER}) )(?:%%)?
        | %%""",
    "variable": rf"""(?!\$tc?\()(?!(?:(?<=\d)|(?<=\d[\ \u00a0\u202f]))\$(?:{DOLLARS})(?![A-Za-z0-9_]))
          \$[A-Za-z_][A-Za-z0-9_]*+(?:\$(?![A-Za-z0-9_]))? | \$\([A-Za-z0-9_]{{1,64}}\)
        | \$tc?\([^()]{{1,200}}+\)  # of i18next
        | @(?:\.\w{{1,16}})?:(?:\w++(?:\.\w++)*+ | \([^()]{{1,64}}+\) | \{{'[^']{{1,64}}+'\}})  # of vue-i18n
        | (?<![\w:/\[]):[a-z][a-z_]{{1,30}}(?![:\w/])  # of Laravel
        | (?<!\w)(?:__(?=[A-Za-z0-9])\w{{1,64}}?__ | @@\w{{1,64}}?@@)(?!\w)
        | %[A-Z_][A-Z0-9_]{{2,64}}(?:%|(?![A-Za-z0-9_]))""",
    "entity": r"&(?:[A-Za-z][A-Za-z0-9]{1,31}|\#\d{1,7}|\#[xX][0-9A-Fa-f]{1,6});",
    "escape": r"\\[nrt](?![a-z]{2})",  # as a program's source has it
    "path": rf"""(?<![\w/.~:<\\-])(?:
        [A-Za-z]:\\(?:[\w.$+~-]++\\)*+[\w.$+~-]*+(?<![.-]) | \\\\[\w.-]++(?:\\[\w.$-]++)++
        | (?:~|\.\.?)(?:/{NAME})++/? | /(?:{ROOTS})(?![\w.-])(?:/{NAME})*+/? | (?:/{NAME}){{2,}}+/?
        | [\w-]++(?:\.[\w-]++)*+ (?:/[\w-]++(?:\.(?!(?:{EXTENSIONS})(?![\w.-]))[\w-]++)*+)++
          \.(?:{EXTENSIONS})(?!\w) )""",
    "file": rf"""(?<![\w/.\\-])(?:\*|[\w-]++(?:\.(?!(?:{EXTENSIONS})(?![\w-]|\.\w))[\w-]++)*+)
        \.(?:{EXTENSIONS})(?![\w-]|\.\w)""",
    "option": r"""(?<![\w-])(?:
        --[A-Za-z](?:[\w-]*\w)?(?:=[^\s,;)\]'\"]{0,200}[^\s,;.)\]'\"])? | -[A-Za-z]\d{0,4}(?![\w-]) )""",
    "shortcut": rf"""(?<![\w+])(?:{MODIFIERS})(?:\s?\+\s?(?:{KEY}))++""",
    "date": r"(?<![\w.-])\d{4}-\d{2}-\d{2}(?:T\d{2}:\d{2}(?::\d{2})?(?:Z|[+-]\d{2}:\d{2})?)?(?!\w|-\d)",
    "version": r"""(?<![\w.,])(?: v\d++(?:\.\d++)++
        | (?!\d{1,2}\.\d{1,2}\.\d{4}(?!\d)|\d{1,3}(?:\.\d{3})+(?!\d|\.\d))\d++(?:\.\d++){2,}+ )
        (?:[-.]?(?:alpha|beta|rc|dev|pre)(?:\.?\d++)?+)?(?!\w|\.\d)""",
    "hex": r"""(?<![\w\#-])(?:0[xX][0-9A-Fa-f]++ | \#(?:[0-9A-Fa-f]{8}|[0-9A-Fa-f]{6}|(?=[a-f]*\d)[0-9A-Fa-f]{3})
        | [0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12} | (?:[0-9A-Fa-f]{2}:){5}[0-9A-Fa-f]{2})(?!\w)""",
    "phone": r"(?<![\w+])\+\d{1,3}(?:[ ./()-]{1,2}\d{1,5}){2,6}(?!\w)|(?<![\w-])\d{2,5}(?:-\d{1,7}){2,5}(?![\w-])",
    "part": r"(?<![\w+/-])(?=[A-Z/-]*\d)[A-Z][A-Z0-9]*+(?:[-/][A-Z0-9]++)*+(?![A-Za-z0-9_/])|U\+[0-9A-F]{4,6}(?!\w)",
    "identifier": r"""(?<![\w$%:])(?: [A-Za-z_]\w*+(?:::[A-Za-z_]\w*+)++ | _?[A-Za-z][A-Za-z0-9]*+(?:_++[A-Za-z0-9]++)++
        | [a-z]++(?:[A-Z][a-z0-9]++)++ | [a-z]{2,}+(?:[A-Z]++[a-z0-9]*+)++ )(?:\(\))?(?!\w)""",
    "handle": r"(?<![\w@/.:])@[A-Za-z0-9_](?:[\w.-]*\w)(?:@[\w-]+(?:\.[\w-]+)+)?",
    "hashtag": r"(?<![\w&/\#])\#(?=\d*[^\W\d])\w++",
    "shortcode": r"(?<![\w:]):[a-z][a-z0-9_+-]{1,30}:(?![\w:])",
    "emoji": rf"""[\U0001f1e6-\U0001f1ff]{{2}} | [\#*0-9]\ufe0f?\u20e3
        | {PICTURE}(?:[\ufe0f\U0001f3fb-\U0001f3ff]|[\U000e0020-\U000e007f]|\u200d{PICTURE})*+""",
    "number": rf"""(?:(?<!\S)[-−+±])?(?<!{LETTER})(?<![\d_])(?<!\d[.,:'’\u00a0\u202f])(?:
        [€$£¥₩₹]\ ?{AMOUNT}
        | \d{{1,2}}:\d{{2}}(?::\d{{2}})?+(?![\d:])
        | {AMOUNT}(?:[-–]{AMOUNT})?+[\ \u00a0\u202f\u2009]?{UNIT}
    )""",
}
# What programs read must come back exactly as often as it was there; names and codes, at least as often.
EXACT: tuple[Kind, ...] = (
    "template", "url", "email", "code", "tag", "brace", "variable", "printf", "entity", "escape",
)  # fmt: skip
# The order in which they are tried at a position of a text.
ORDER: tuple[Kind, ...] = (
    "template", "url", "email", "code", "tag", "hex", "brace", "variable", "shortcode", "printf", "entity", "path",
    "escape", "file", "option", "shortcut", "date", "version", "phone", "part", "identifier", "handle", "hashtag",
    "emoji", "number",
)  # fmt: skip
# What a text must have to have any of some kinds. Most texts have none of these, so that no pattern need be tried.
SIGNS: dict[str, set[Kind]] = {
    "[0-9]": {"hex", "date", "version", "phone", "part"},
    r"[/+_]|\.\w|(?<!\w)-[-A-Za-z]|[a-z][A-Z]|\\\w|::": {"path", "file", "option", "shortcut", "identifier"},
    rf"[@`<{{$%&\[\\\#\u20e3*]|~~|:[A-Za-z(/]|__|[wW]{{3}}\.|{PICTURE}": {
        "template", "url", "email", "code", "tag", "brace", "variable", "shortcode", "printf", "entity", "escape",
        "handle", "hashtag", "emoji",
    },
}  # fmt: skip
