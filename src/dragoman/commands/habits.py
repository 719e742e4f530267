"""What other toolkits call our flags: fairseq, Hugging Face Transformers, OpenNMT, Marian, JoeyNMT, CTranslate2 and
LibreTranslate. And which flags are not needed here.
"""

from pathlib import Path

HABITS: dict[str, list[str]] = {}
NEEDLESS: dict[tuple[str, str], str] = {}
for line in Path(__file__).with_suffix(".txt").read_text(encoding="utf-8").splitlines():
    match line.split(": ") if not line.startswith("#") else ():
        case flag, words:
            for word in words.split():
                HABITS.setdefault(word, []).append(flag)
        case commands, flags, why:
            NEEDLESS |= {(command, flag): why for command in commands.split() for flag in flags.split()}
