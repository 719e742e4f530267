"""Write sentence pairs from English into Hebrew, for the picture of the page with a text from right to left.

$ python scripts/hebrew_phrases.py phrases
$ dragoman train --preset tiny --train phrases/train.tsv --dev phrases/dev.tsv --languages en-he --out runs/en-he \\
      --training.minutes 6
$ python scripts/page_pictures.py en-he=runs/en-he docs/images page-hebrew

They are made as those of `dragoman demo` are: from templates, with values of the Unicode CLDR.
"""

import random
import sys
from pathlib import Path

from dragoman.demo.phrasebook import fill

PER_TEMPLATE, DEV = 800, 100
TEMPLATES = {
    "Today is {weekday}.": "היום {weekday}.",
    "The meeting is on {weekday} at {time}.": "הפגישה ב{weekday} בשעה {time}.",
    "The museum opens at {time}.": "המוזיאון נפתח בשעה {time}.",
    "The train to {country} leaves at {time}.": "הרכבת ל{country} יוצאת בשעה {time}.",
    "The ticket to {country} costs {price}.": "הכרטיס ל{country} עולה {price}.",
    "The price is {price}.": "המחיר הוא {price}.",
    "My brother lives in {country}.": "אחי גר ב{country}.",
    "Do you speak {language}?": "אתם מדברים {language}?",
    "We are flying to {country} on {date}.": "אנחנו טסים ל{country} ב־{date}.",
    "The book about {country} is in {language}.": "הספר על {country} כתוב ב{language}.",
}


def main(folder: str) -> None:
    """Write train.tsv and dev.tsv into a folder."""
    rng = random.Random(1)
    templates = [{"en": english, "he": hebrew} for english, hebrew in TEMPLATES.items()]
    pairs = list(dict.fromkeys(fill(template, "en", "he", rng) for template in templates for _ in range(PER_TEMPLATE)))
    rng.shuffle(pairs)
    Path(folder).mkdir(parents=True, exist_ok=True)
    for name, part in (("dev", pairs[:DEV]), ("train", pairs[DEV:])):
        lines = "".join(f"{source}\t{target}\n" for source, target in part)
        (Path(folder) / f"{name}.tsv").write_text(lines, encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
