"""Tell the names of columns from a sentence pair: `source TAB target`, `en TAB es`, `English TAB Español`."""

import re
from collections.abc import Sequence

# By code: the English name of a language, and its own.
LANGUAGES = """
af Afrikaans, am Amharic, ar Arabic العربية, az Azerbaijani, be Belarusian, bg Bulgarian български, bn Bengali,
bs Bosnian bosanski, ca Catalan català, cs Czech čeština, cy Welsh cymraeg, da Danish dansk, de German Deutsch,
el Greek Ελληνικά, en English, eo Esperanto, es Spanish español, et Estonian eesti, eu Basque euskara,
fa Persian فارسی, fi Finnish suomi, fr French français, ga Irish gaeilge, gl Galician galego, gu Gujarati,
he Hebrew עברית, hi Hindi हिन्दी, hr Croatian hrvatski, hu Hungarian magyar, hy Armenian, id Indonesian,
is Icelandic íslenska, it Italian italiano, ja Japanese 日本語, ka Georgian, kk Kazakh, km Khmer, kn Kannada,
ko Korean 한국어, la Latin, lo Lao, lt Lithuanian lietuvių, lv Latvian latviešu, mk Macedonian македонски,
ml Malayalam, mn Mongolian, mr Marathi, ms Malay, my Burmese, nb Bokmål, ne Nepali, nl Dutch Nederlands, nn Nynorsk,
no Norwegian norsk, pa Punjabi, pl Polish polski, pt Portuguese português, ro Romanian română, ru Russian русский,
si Sinhala, sk Slovak slovenčina, sl Slovenian slovenščina, so Somali, sq Albanian shqip, sr Serbian српски,
sv Swedish svenska, sw Swahili, ta Tamil, te Telugu, th Thai ไทย, tl Tagalog, tr Turkish Türkçe,
uk Ukrainian українська, ur Urdu, uz Uzbek, vi Vietnamese, yo Yoruba, zh Chinese 中文, zu Zulu
"""
LANGUAGE = frozenset(LANGUAGES.casefold().replace(",", " ").split())
REGION = re.compile(r"[-_]\w{2,4}$")  # en-US, zh_Hans
LONGEST_NAME = 3  # words
NUMBERS = ("id", "no")  # as names of columns more often than Indonesian and Norwegian
ROLE = re.compile(r"(source|src|target|tgt|trg|original|translation)([ _](text|sentence|segment|language|lang))?")


def is_header(source: str, target: str) -> bool:
    """Return whether a pair is surely the names of two columns: two languages, or words such as source and target."""
    sides = {source.strip().casefold(), target.strip().casefold()}
    return len(sides) == 2 and (all(map(is_language, sides)) or all(map(ROLE.fullmatch, sides)))


def is_language(name: str) -> bool:
    """Return whether a text is the name or the code of a language, with or without a region."""
    return REGION.sub("", name.strip().casefold()) in LANGUAGE


def suggest_columns(columns: Sequence[str], otherwise: str) -> str:
    """Return two of the columns as `columns=` names them: languages if two of them are, else the first two.

    Of a dotted name such as 'translation.en', the last part is the language. A column with numbers, such as 'id', is
    taken only if there are no two others. otherwise: what to return where there are no two, or names have commas or are
    sentences.
    """
    last = {name: name.rpartition(".")[2] for name in columns}
    others = [name for name in columns if last[name].casefold() not in NUMBERS]
    languages = [name for name in others if is_language(last[name])]
    two = next((some for some in (languages, others) if len(some) > 1), columns)[:2]
    are_names = len(two) == 2 and "," not in "".join(two) and all(len(name.split()) <= LONGEST_NAME for name in two)
    return ",".join(two) if are_names else otherwise
