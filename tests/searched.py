"""What a search finds, without the checks and retries of a translator."""

from pathlib import Path

import torch

from dragoman import Translator
from dragoman.config import SearchConfig
from dragoman.model_folder import read_model, write_model
from dragoman.storage.writing import new_folder

NOISE = 1e-5  # of each parameter, relative to it


def words_of_search(model: Path, texts: list[str], search: SearchConfig) -> list[str]:
    """The best words for each text."""
    translator = Translator.load(model, search)
    source, target = translator.tokenizers
    ids = [source.tag_ids(translator.tag) + ids for ids in source.encode_sources(texts)]
    return [target.decode(best.tokens) for (best,) in translator.engine.search(ids, translator.search)]


def without_near_ties(model: Path, texts: list[str], search: SearchConfig, place: Path) -> list[str]:
    """The texts whose best words do not change with a little noise in the model, of which copies are made in `place`.

    Where a step of the search has a near tie, another engine, or another processor, may decide it otherwise.
    """
    said = [words_of_search(model, texts, search)]
    for seed in range(4):
        noisy, tokenizers = read_model(model)
        chance = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for parameter in noisy.parameters():
                parameter.mul_(1 + NOISE * torch.randn(parameter.shape, generator=chance))
        with new_folder(place / f"noisy-{seed}") as draft:
            write_model(draft, noisy, tokenizers, "")
        said.append(words_of_search(place / f"noisy-{seed}", texts, search))
    return [text for text, words in zip(texts, zip(*said, strict=True), strict=True) if len(set(words)) == 1]
