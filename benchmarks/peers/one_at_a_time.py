"""Translate with CTranslate2 one request at a time, as LibreTranslate does through argos-translate: an application for
gunicorn, which runs in processes of their own and has nothing of dragoman.
"""

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import ctranslate2
import tokenizers

END = "</s>"


def make_app(
    folder: str, tokenizer: str, compute_type: str, threads: int, beam: int, extra: int
) -> Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]:
    """Return the application for a converted model: it answers {"q": text} with {"translatedText": text}.

    tokenizer: the file of the model's subwords; extra: how many tokens more than its source an output may have.
    """
    translator = ctranslate2.Translator(folder, compute_type=compute_type, inter_threads=1, intra_threads=threads)
    subwords = tokenizers.Tokenizer.from_file(tokenizer)
    pieces = json.loads((Path(folder) / "shared_vocabulary.json").read_text(encoding="utf-8"))
    ids = {piece: id for id, piece in enumerate(pieces)}

    def translate(text: str) -> str:
        source = [pieces[id] for id in subwords.encode(text, add_special_tokens=False).ids]
        results = translator.translate_batch(
            [[*source, END]],
            beam_size=beam,
            num_hypotheses=1,
            max_batch_size=32,
            length_penalty=0.2,
            return_scores=True,
            max_decoding_length=len(source) + extra,
        )
        return subwords.decode([ids[piece] for piece in results[0].hypotheses[0]])

    def app(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        text = json.loads(environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"])))["q"]
        body = json.dumps({"translatedText": translate(text)}).encode()
        start_response("200 OK", [("Content-Type", "application/json"), ("Content-Length", str(len(body)))])
        return [body]

    return app
