"""Decode with another toolkit, in a process that has nothing of dragoman: a request per line of stdin, an answer each.

A request is JSON: the beam, and sentences of one length as words. The answer: a translation of each sentence in as many
words as it has with EOS, which is the length that each toolkit is forced to.
"""

import json
import os
import sys
from collections.abc import Callable
from functools import lru_cache
from typing import Any

Decode = Callable[[int, list[str]], list[str]]


def hugging_face_decoder(threads: int, device: str) -> Decode:
    """Return the decoder of Hugging Face with the settings of config.json and the weights of model.npz.

    Both are read from the working directory. device: 'cpu' or 'cuda'.
    """
    import numpy as np
    import torch
    from transformers import MarianConfig, MarianMTModel

    torch.set_num_threads(threads)
    model: Any = MarianMTModel(MarianConfig.from_pretrained("."))
    model.load_state_dict({name: torch.from_numpy(array) for name, array in np.load("model.npz").items()})
    model.to(device).eval()
    end = model.config.eos_token_id

    @torch.inference_mode()
    def decode(beam: int, sentences: list[str]) -> list[str]:
        source = torch.tensor([[*(int(word[1:]) for word in text.split()), end] for text in sentences], device=device)
        outputs = model.generate(
            input_ids=source,
            attention_mask=torch.ones_like(source),
            num_beams=beam,
            do_sample=False,
            max_new_tokens=source.size(1),
            min_new_tokens=source.size(1),
        )
        return [" ".join(f"w{id}" for id in ids) for ids in outputs[:, 1:].tolist()]

    return decode


def ctranslate2_decoder(threads: int, compute_type: str, shared: str) -> Decode:
    """Return the decoder of CTranslate2 with the model of the folder `model`.

    compute_type: 'float32' or 'int8'; shared: what its threads share, the matmuls or the sentences of a batch.
    """
    import ctranslate2

    inter, intra = (threads, 1) if shared == "sentences" else (1, threads)
    translator = ctranslate2.Translator("model", compute_type=compute_type, inter_threads=inter, intra_threads=intra)

    def decode(beam: int, sentences: list[str]) -> list[str]:
        words = [[*text.split(), "w2"] for text in sentences]
        length, size = len(words[0]), -(-len(words) // inter)
        results = translator.translate_batch(
            words, beam_size=beam, max_decoding_length=length, min_decoding_length=length, max_batch_size=size
        )
        return [" ".join(result.hypotheses[0]) for result in results]

    return decode


def marian_decoder(threads: int, *flags: str) -> Decode:
    """Return the decoder of Marian with the model that `flags` describe.

    The model's bias keeps EOS from being chosen, and outputs are cut at the length of the source. Each sentence of a
    batch is decoded by one thread, which is how Marian shares work.
    """
    from pymarian import Translator  # type: ignore[import-not-found]

    @lru_cache(maxsize=1)  # each has a workspace of its own
    def translator(beam: int, sentences: int) -> Any:
        sizes = f"--beam-size {beam} --mini-batch {sentences} --maxi-batch {threads} --cpu-threads {threads}"
        fast = "--skip-cost" if beam == 1 else ""  # the best word needs no softmax
        return Translator(f"{' '.join(flags)} {sizes} {fast} --max-length-factor 1 --log-level error")

    def decode(beam: int, sentences: list[str]) -> list[str]:
        return translator(beam, -(-len(sentences) // threads)).translate(sentences)

    return decode


def joeynmt_decoder(threads: int) -> Decode:
    """Return the decoder of JoeyNMT with the settings of joeynmt.yaml and the weights of model.npz.

    Both are read from the working directory. The search is told the minimum and the maximum length, both that of the
    source.
    """
    import numpy as np
    import torch
    from joeynmt.batch import Batch  # type: ignore[import-not-found]
    from joeynmt.config import load_config, parse_global_args  # type: ignore[import-not-found]
    from joeynmt.model import build_model  # type: ignore[import-not-found]
    from joeynmt.search import search  # type: ignore[import-not-found]
    from joeynmt.vocabulary import build_vocab  # type: ignore[import-not-found]

    torch.set_num_threads(threads)
    settings = parse_global_args(load_config("joeynmt.yaml"))
    words, _ = build_vocab(settings.data)
    model = build_model(settings.model, words, words)
    model.load_state_dict({name: torch.from_numpy(array) for name, array in np.load("model.npz").items()})
    model.eval()

    def decode(beam: int, sentences: list[str]) -> list[str]:
        ids, lengths, _ = words.sentences_to_ids([sentence.split() for sentence in sentences], bos=False)
        source = torch.tensor(ids)
        special = (torch.arange(len(ids)), source.device, words.pad_index, words.eos_index)
        batch = Batch(source, torch.tensor(lengths), None, None, None, *special, is_train=False)
        length = source.size(1)
        outputs, _, _ = search(model, batch, length, beam, 0.0, min_output_length=length)
        return [" ".join(sentence) for sentence in words.arrays_to_sentences(outputs, cut_at_eos=False)]

    return decode


DECODERS: dict[str, Callable[..., Decode]] = {
    "hugging-face": hugging_face_decoder,
    "ctranslate2": ctranslate2_decoder,
    "marian": marian_decoder,
    "joeynmt": joeynmt_decoder,
}


def main(name: str, threads: str, *flags: str) -> None:
    """Answer the requests of standard input with a decoder.

    `name` is a key of DECODERS, `flags` are its further arguments. Standard output is kept for the answers: what the
    toolkit prints there goes to standard error.
    """
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what toolkits print must not mix with the answers
    decode = DECODERS[name](int(threads), *flags)
    for line in sys.stdin:
        print(json.dumps(decode(*json.loads(line))), file=answers, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
