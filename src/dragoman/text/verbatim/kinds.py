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
    "handle", "hashtag", "shortcode", "emoji", "symbol", "number",
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
ALPHABETIC = r"[A-Za-z\u00c0-\u058f0-9_]"
FLAGS = r"[-+\#0'I]{0,4}"  # of printf; a quote groups digits, and must not be that of "isn%'t"
CONVERSION = rf"""(?!'t)(?:\d{{1,2}}\$)?{FLAGS}(?:\d{{1,4}}|\*)?(?:\.(?:\d{{1,4}}|\*))?
    (?: <PRI[A-Za-z0-9]{{1,16}}> | (?:hh?|ll?|I(?:32|64)|[qjztL])?(?:[@a-z]|[A-Z](?![a-z]{{2}})) )"""
BRACKETED = "b|i|u|s|url|img|color|colour|size|quote|code|list"
EMPHASES = r"\*{1,3}|~~"  # in Markdown, around what is meant
ROOTS = "etc|usr|var|home|tmp|dev|proc|opt|bin|sbin|lib|mnt|media|root|boot|srv|sys|run"
LINKED = r"(?=[^()\s]{0,500}[./\#:])[!-'*-~\u00c0-\u058f]{1,500}+"  # the address of a link of Markdown
NAME = r"\.?[\w@+~*-]++(?:\.++[\w@+~*-]++)*+"  # of a folder or file
# In an address: ASCII, the letters of alphabets, and others where more of the address follows them.
ADDRESS = r"""(?:[A-Za-z0-9_\-.~:/?\#\[\]@!$&'()*+,;=%{}\u00c0-\u058f]
    | (?<=/)[\u4e00-\u9fff]++ | [\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]++(?=[./][A-Za-z0-9]))"""
HOST = r"[A-Za-z0-9][\w-]*+(?:\.[A-Za-z][\w-]*+)++"
DOTTED = r"[A-Za-z_][A-Za-z0-9_-]*+(?:\.(?!\d++(?!\w))[a-z0-9_][A-Za-z0-9_-]*+)++"
PICTURE = "[\u231a\u231b\u23e9-\u23fa\u2600-\u27bf\u2b00-\u2bff\U0001f000-\U0001faff]"
SMALL = "°²³¹⁰-₎½¼¾⅐-⅞′″¢"  # belong to the letters beside them
SYMBOLS = "§¶©®™±×÷‰†‡₠-₨₪-₫₭-⃀←-⇿∀-∑∓-⌙─-◿✀-➿¯"  # but for the currencies and marks that numbers are compared with
MODIFIERS = "Ctrl|CTRL|Control|Alt|ALT|AltGr|Shift|SHIFT|Cmd|Command|Option|Meta|Super|Win|Windows|Fn|[⌘⌥⇧⌃]"
# What keys are called elsewhere; names that are not in ASCII are any.
KEYS = rf"{MODIFIERS}|Strg|Umschalt|Befehl|Wahl|Steuerung|Maj|Mayúsculas|Mayús|Comando|Opción|Maiusc|Mayusc"
NAMED_KEYS = (
    r"Eingabe(?:taste)?|Return|Enter|Intro|Entrée|Invio|Leertaste|Espacio|Espace|Spazio|Entf|Einfg|Supr|Suppr|Ins|Del"
    r"|Esc|Tab(?:ulator)?|Pos1|Ende|Inicio|Fin|Bild(?:[ -](?:auf|ab|oben|unten))?|Rück(?:taste|schritt)?|Retroceso"
    r"|Pfeil\w*|(?:Nach[ -])?(?:[Oo]ben|[Uu]nten|[Ll]inks|[Rr]echts)|Re Pág|Av Pág|Druck|Plus|Minus"
)
KEY = r"(?:Page|Num)\s\w++|\w++|[^\s\w]"
AMOUNT = r"\d++(?:[.,'’\u00a0\u202f]\d++)*+"
DOLLARS = "US|CAN?|AU|NZ|HK|SG"  # "5 $US" is an amount and no variable
UNIT = rf"""(?:
    \$(?:{DOLLARS})?(?!\{{) | [€£¥₩₹%‰] | °[CF]? | [℃℉] | EUR | USD | GBP | CHF | JPY | KRW | CNY
    | (?:k?m|mi)/[hs] | mph | rpm | fps | ppm | [kKMGT]?bits?(?:/s)? | [kMGT]B/s | [kKMGTP]i?B | B
    | (?:[kcdmµμn]m|m|mi|ft|yd)[²³]? | ha | [kmµμ]?g | lbs? | oz | t | [mcdh]?[lL] | h | min | [mµμn]?s
    | [kMGT]?Hz | [kMG]?Wh? | m?Ah? | [mk]?V | k?J | k?cal | [kh]?Pa | bar | psi | dB | px | pt | em | dpi | ppi
)(?!{LETTER}|\d)"""
# Before and after a placeholder only Latin letters count as letters: a Korean particle follows it without a space.
# No pattern backtracks, and none reads on past a position where it could begin itself: time is linear for any text.
PATTERNS: dict[Kind, str] = {
    # Statements and comments of template languages: Jinja, Liquid and Twig; ERB, JSP and EJS; PHP.
    "template": r"""\{%(?:[^%{]|%(?!\})|\{(?!%))*+%\} | \{\#(?:[^\#{]|\#(?!\})|\{(?!\#))*+\#\}
        | <%(?:[^%<]|%(?!>)|<(?!%))*+%> | <\?(?:php|=)(?:[^?<]|\?(?!>)|<(?!\?))*+\?>""",
    "url": rf"""(?: (?i:https?|ftp):// | (?<![A-Za-z0-9+.-])[A-Za-z][A-Za-z0-9+.-]{{1,20}}://
        | (?i:mailto:|www\.)[A-Za-z0-9] | (?<![\w:/.])//(?={HOST}/)
        | (?<![\w:.@/-])[a-z][a-z0-9.+-]{{1,30}}:(?=[a-z0-9?+])
        | (?<![\w.@/\\:-]){HOST}(?::\d{{1,5}})?/ ){ADDRESS}*+""",
    "email": rf"""(?<!{ALPHABETIC})(?<![.%+-])(?:{ALPHABETIC}|[.%+-])(?:{ALPHABETIC}|[.%+'-])*+@
        (?: (?:{ALPHABETIC}|-)++(?:\.(?:{ALPHABETIC}|-)++)++ | localhost )(?::(?=[\w/])[A-Za-z0-9_./-]*\w)?+""",
    "code": r"(?<!`)(?: `(?![\s`])[^`\n]++(?<!\s)` | ``(?!`)[^`\n]++(?:`[^`\n]++)*+`` )(?![`A-Za-z0-9])"
    rf"|(?:<(?:{MODIFIERS}|Primary)>)++\w++",
    # Of HTML and XML; numbered, as in react-i18next; with a value, as in games; in brackets; of subtitles and Markdown.
    "tag": rf"""< (?: /?[A-Za-z][\w:.-]*+ (?:=[^\s<>]{{1,64}}+)?+ (?:\s(?:[^<>"']++|"[^"<]*+"|'[^'<]*+')*+)?+ /?
        | /?\d{{1,3}}\s?/? | !--(?:[^<>-]|-(?!->))*+-- ) >
        | \[/?(?:{BRACKETED})(?:=[^\[\]\s]{{1,200}}+)?+\]
        | \{{\\[^{{}}\s]{{1,64}}\}} | !?\[(?=[^\[\]\n]{{0,200}}\]\({LINKED}\)) | \]\({LINKED}\)
        | (?<![\w*~])(?:{EMPHASES})(?=[^\s*~.]) | (?<=[^\s*~])(?:{EMPHASES})(?![\w*~])""",
    "brace": r"""\{\{\{?\s?[^{}\s]++(?:\s[^{}\s]++){0,7}+\s?\}\}\}?
        | [$\#%]\{[^{}\s]++\} | \{[\#/@][^{}\s]++(?:\s[^{}\s]++){0,7}+\} | \[\[[^\[\]\n]{1,200}\]\]
        | \{\s?(?:[$-]?[^\W\d][\w.\[\]-]*+|\d*+(?:[.\[][\w.\[\]]*+)?+)(?:![rsa])?
          (?:[:,][^{}\s]*+|,\s?(?:number|date|time|spellout|ordinal|duration)(?:,\s?[^{}]{0,64}+)?)?\s?\}""",
    # After a number and a space, a percent sign before a word means per cent: "100 %ig".
    "printf": rf"""%(?:\([\w.]{{1,64}}\)|\[[\w.]{{1,64}}\]|<\w{{1,64}}>)
          [-+\#0]{{0,4}}(?:\d{{1,4}})?(?:\.\d{{1,4}})?[A-Za-z]
        | %(?:\d{{1,2}}\$)?\#@\w{{1,64}}@ | %arg(?!\w)  # variables of Apple's plural forms
        | (?:(?<![\d%])|(?<=%\d))%L?\d{{1,2}}(?!\d|\$|\.\d|[A-Za-z](?![A-Za-z])|[hlqjzt]{{1,2}}[diouxX])
        | (?:(?<!\d)|(?<=%\d))
          (?: (?:(?<!\d[\ \u00a0\u202f])|(?<=%\d\ ))%{CONVERSION} | %{CONVERSION}(?!{LETTER}) )(?:%%)?
        | %%""",
    "variable": rf"""(?!\$tc?\()(?!(?:(?<=\d)|(?<=\d[\ \u00a0\u202f]))\$(?:{DOLLARS})(?![A-Za-z0-9_]))
          \$(?:env:)?+[A-Za-z_][A-Za-z0-9_]*+(?:\$(?![A-Za-z0-9_]))? | \$\([A-Za-z0-9_]{{1,64}}\)
        | \$tc?\([^()]{{1,200}}+\)  # of i18next
        | @(?:\.\w{{1,16}})?:(?:\w++(?:\.\w++)*+ | \([^()]{{1,64}}+\) | \{{'[^']{{1,64}}+'\}})  # of vue-i18n
        | (?<![\w:/\[]):[a-z][a-z_]{{1,30}}(?![:\w/])  # of Laravel
        | (?<!\w)(?:__(?=[A-Za-z0-9])\w{{1,64}}?__ | @@\w{{1,64}}?@@)(?!\w)
        | (?<![\w:\#<])(?: ::\w{{1,64}}:: | \#\w{{1,64}}\#(?!\w) | <<\w{{1,64}}>> )
        | %[A-Z_][A-Z0-9_]{{2,64}}(?:%|(?![A-Za-z0-9_]))""",
    "entity": r"&(?:[A-Za-z][A-Za-z0-9]{1,31}|\#\d{1,7}|\#[xX][0-9A-Fa-f]{1,6});",
    "escape": r"\\[nrt](?![a-z]{2})",  # as a program's source has it
    "path": rf"""(?<![\w/.~:<\\-])(?:
        [A-Za-z]:\\(?:[\w.$+~-]++\\)*+[\w.$+~-]*+(?<![.-]) | \\\\[\w.-]++(?:\\[\w.$-]++)++
        | (?:~|\.\.?)(?:/{NAME})++/? | /(?:{ROOTS})(?![\w-]|\.\w)(?:/{NAME})*+/? | (?:/{NAME}){{2,}}+/?
        | (?:\$[A-Za-z_]++|\$\{{[A-Za-z_]++\}}|%[A-Z_]++%)(?:[\\/]{NAME})++ | \w++(?:\\(?=[A-Z0-9])[\w.-]*\w)++
        | [\w-]++/(?=\.)(?:{NAME}/)*+{NAME}
        | [\w-]++(?:\.[\w-]++)*+ (?:/[\w-]++(?:\.(?!(?:{EXTENSIONS})(?![\w.-]))[\w-]++)*+)++
          \.(?:{EXTENSIONS})(?!\w) )""",
    "file": rf"""(?<![\w/.\\-])(?:\*|[\w-]++(?:\(\d{{1,3}}\))?+(?:\.(?!(?:{EXTENSIONS})(?![\w-]|\.\w))[\w-]++)*+)
        \.(?:{EXTENSIONS})(?![\w-]|\.\w)""",
    "option": r"""(?<![\w@-])(?:
        --[A-Za-z](?:[\w-]*\w)? | -[A-Za-z](?:\d{0,4}|[A-Za-z]{1,12}\d{0,6}[a-z]?)(?![\w-]) )
        (?:=\"[^\"\n]*+\" | [=/+:][^\s,;)\]'\"]{0,200}[^\s,;.)\]'\"] | \s\d++(?![\w.,:]\d|\w|\s?%))?+""",
    "shortcut": rf"""(?<![\w+])(?:{MODIFIERS})(?: (?:\s?\+\s?(?:{KEY}))++
        | (?:-(?:{MODIFIERS}))*+-(?:[A-Z]|F\d{{1,2}}|Esc|Tab|Del|Space|Enter)(?!\w) )
        | [⌃⌥⇧⌘⌫⌦⎋⏎⇥]++\w? | (?<![\w-])(?:[CMS]-)++[a-z](?![\w-])(?:\s[CMS]-[a-z](?![\w-]))*+""",
    "date": r"(?<![\w.-])\d{4}-\d{2}-\d{2}(?:T\d{2}:\d{2}(?::\d{2})?(?:Z|[+-]\d{2}:\d{2})?)?(?!\w|-\d)"
    r"|(?<![\w.-])\d{1,2}-[A-Z][a-z]{2}-\d{2,4}(?!\w)",
    "version": r"""(?<![\w.,])(?: v\d++(?:\.\d++)++
        | (?!\d{1,2}\.\d{1,2}\.\d{4}(?!\d)|\d{1,3}(?:\.\d{3})+(?!\d|\.\d))\d++(?:\.\d++){2,}+
          | \d{1,4}\.\d++(?=-[A-Z]{3}|(?:a|b|rc|p)\d) )
        (?:[-.]?(?:alpha|beta|rc|dev|pre|[abp](?=\d)|[A-Z]{3,12}(?![A-Za-z]))(?:\.?\d++)?+)?+
        (?:-\d++(?:[a-z]++[\d.]*\d)?+)?+(?:\+[\w.]*\w|:\d{2,5}|/\d{1,2})?+(?!\w|\.\d)""",
    "hex": r"""(?<![\w\#-])(?:0[xX][0-9A-Fa-f]++ | 0[bo][0-7]{2,}+ | (?=[a-f]*\d)(?=\d*[a-f])[0-9a-f]{7,64}+(?!-)
        | (?<!:)(?=[0-9A-Fa-f:]{2,24}(?<=::))(?!::(?![0-9A-Fa-f]))(?:[0-9A-Fa-f]{0,4}:){2,7}+[0-9A-Fa-f]{0,4}+(?!:)
        | \#(?:[0-9A-Fa-f]{8}|[0-9A-Fa-f]{6}|(?=[a-f]*\d)[0-9A-Fa-f]{3})
        | [0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12} | (?:[0-9A-Fa-f]{2}:){5}[0-9A-Fa-f]{2})(?!\w)""",
    "phone": r"(?<!\w)\(\d{2,5}\)\s\d{2,5}-\d{2,7}(?!\w)"
    r"|(?<![\w.,])(?!\d{1,3}(?:\s\d{3})++(?![\s\d]))(?:[A-Z]{2}\d{2}|0\d{1,4}|\d{4,5})(?:\ \d{2,7}){2,}+(?!\w)"
    r"|(?<![\w+])\+\d{1,3}(?:[ ./()-]{1,2}\d{1,5}){2,6}(?!\w)"
    r"|(?<![\w-])(?!\d{2}-\d{2}-\d{4}(?![\w-]))\d{2,5}(?:-\d{1,7}){2,5}(?![\w-])",
    "part": r"""(?<![\w+/.-])(?:
        (?:[A-Za-z]{1,3}|[a-z]{4,20})\d[A-Za-z0-9]*+(?:[-/.:][A-Za-z]?\d[A-Za-z0-9]*+|-[A-Za-z](?![A-Za-z]))*+
        | (?=[A-Z/-]*\d)[A-Z][A-Z0-9]*+(?:[-/][A-Z0-9]++)*+
        | [A-Z]{1,5}(?:[-/]\d++(?:\.\d++)*+[A-Za-z]{0,2}+)++
        | (?!\d++x\d++(?!\w))\d++[A-Za-z]++\d[A-Za-z0-9]*+(?:-[A-Z0-9]++)*+
        | (?=[0-9-]*[A-Z])\d[0-9A-Z]*+(?:(?:-[0-9A-Z]++){2,}+|-[A-Z]\d++)
        | UTC[+-]\d{1,2}(?::\d{2})?+ )(?![A-Za-z0-9_/]|-[A-Za-z]{2}|\.\d)|U\+[0-9A-F]{4,6}(?!\w)""",
    "identifier": r"""(?<![\w$%:./@-])(?: DOTTED(?:\([^()\n]{0,64}\)|(?<=\w[A-Za-z0-9_])(?:\.\d++)*+(?!\w))
          | [A-Za-z_][\w.-]*+\([1-9]\)(?!\w)  # a page of a manual
          | [A-Za-z_]\w*+(?: \(\) | \[[0i-kx]\](?!\w) | =(?:"[^"\n]*+"|[^\s"',;)=]*[^\s"',;)=.:!?])
            | [-=]>[A-Za-z_]\w*+ )
          | (?<![)}\]>])\.(?!(?:EXTENSIONS)(?!\w))[a-z][\w-]++(?:\.[\w-]++)*+ | [A-Za-z]{1,2}\+\+\d*+(?!\w) )
         | (?<![\w:])::[a-z][\w-]++(?!:)
        | (?<![\w$%:])(?: [A-Za-z_]\w*+(?:::[A-Za-z_]\w*+)++ | _?[A-Za-z][A-Za-z0-9]*+(?:_++[A-Za-z0-9]++)++
        | [a-z]++(?:[A-Z][a-z0-9]++)++ | [a-z]{2,}+(?:[A-Z]++[a-z0-9]*+)++ | [a-z][A-Z]{2,}+[0-9]*+ )
        (?:\(\))?(?!\w)""".replace("DOTTED", DOTTED).replace("EXTENSIONS", EXTENSIONS),
    "handle": r"(?<![\w@/.:])@[A-Za-z0-9_](?:[\w.-]*\w)(?:@[\w-]+(?:\.[\w-]+)+)?"
    r"|(?<![\w/.-])[ur]/[A-Za-z]\w{2,}+(?![/.]\w)",
    "hashtag": r"(?<![\w&/\#])\#(?=\d*[^\W\d])\w++(?:-[A-Za-z0-9_]++)*+\+*+",
    "shortcode": r"(?<![\w:]):[a-z][a-z0-9_+-]{1,30}:(?![\w:])",
    "emoji": rf"""(?<![\w:;])[:;]['-]?[()DPp](?!\w) | (?<!\S)(?:\^_\^|<3)(?!\w)
        | [\U0001f1e6-\U0001f1ff]{{2}} | [\#*0-9]\ufe0f?\u20e3
        | {PICTURE}(?:[\ufe0f\U0001f3fb-\U0001f3ff]|[\U000e0020-\U000e007f]|\u200d{PICTURE})*+""",
    "symbol": rf"""(?:[A-Za-z]{{1,3}}/)?(?<![A-Za-z])[A-Za-z]{{0,3}}[{SMALL}]++(?:[A-Z](?![A-Za-z]))?
        | [{SYMBOLS}]++ | 10\^\d++
        | {AMOUNT}\s?×\s?10[{SMALL}⁻]++ | {AMOUNT}[eE][+-]?\d++(?![\w-])""",
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
    "template", "url", "email", "code", "tag", "hex", "path", "brace", "variable", "shortcode", "printf", "entity",
    "escape", "file", "option", "shortcut", "date", "version", "phone", "part", "identifier", "handle", "hashtag",
    "emoji", "number", "symbol",
)  # fmt: skip
# What a text must have to have any of some kinds. Most texts have none of these, so that no pattern need be tried.
SIGNS: dict[str, set[Kind]] = {
    "[0-9]|::": {"hex", "date", "version", "phone", "part"},
    r"[/+_=\\]|\.\w|(?<!\w)-[-A-Za-z]|[CM]-|[a-z][A-Z]|::|\w[(\[][\w)]|->|[⌃⌥⇧⌘⌫⌦⎋⏎⇥]|(?:Ctrl|Alt)-": {
        "path", "file", "option", "shortcut", "identifier",
    },
    rf"[@`<{{$%&\[\\\#\u20e3*]|~~|:[\w(/?+]|(?<!\w)[ur]/|[:;]['-]?[()DPp]|\^|//|\.[A-Za-z]|__|[wW]{{3}}\.|{PICTURE}": {
        "template", "url", "email", "code", "tag", "brace", "variable", "shortcode", "printf", "entity", "escape",
        "handle", "hashtag", "emoji",
    },
    rf"[{SMALL}{SYMBOLS}]|\^|\d[eE][+-]?\d": {"symbol"},
}  # fmt: skip
