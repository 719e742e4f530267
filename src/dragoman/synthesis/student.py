"""Make the model that a student starts from."""

from pathlib import Path

import torch

from dragoman.config import RunConfig
from dragoman.data.tokenizer import PAD
from dragoman.model import Model, build, parameter_count
from dragoman.model.transformer import Transformer
from dragoman.model_folder import copy_records, load_model, write_model
from dragoman.storage.writing import delete_folder, new_folder
from dragoman.text import languages, scripts
from dragoman.text.extent import SourceExtent
from dragoman.text.known_words import KnownWords
from dragoman.text.origin import Origin
from dragoman.text.tags import DefaultTags, LanguageTags
from dragoman.training.card import card_of_student


def prepare_student(run: RunConfig, teacher: Path) -> None:
    """Write the student before its training into the model folder `run.init_from`, in place of what is there.

    It has the subwords of the teacher, those of its weights that fit, and random weights for the rest.
    """
    folder = Path(run.init_from)
    parent, tokenizers = load_model(teacher)
    torch.manual_seed(run.training.seed)
    model = build(run.model, len(tokenizers.source), tokenizers.target_vocabulary, PAD)
    weights, inherited = parameter_count(model), inherit_weights(model, parent)
    delete_folder(folder)
    with new_folder(folder) as draft:
        write_model(draft, model, tokenizers, card_of_student(weights, inherited))
        records = (SourceExtent, KnownWords, scripts, languages, DefaultTags, LanguageTags, Origin)
        copy_records(teacher, draft, [record.RECORD for record in records])


@torch.no_grad()
def inherit_weights(student: Model, teacher: Model) -> int:
    """Copy the weights that fit from the teacher into the student, in place; return how many numbers were copied.

    They are the word matrices, and the layers from the lowest on. The student then learns sooner to write like its
    teacher. None fit where the two differ in width or one is recurrent.
    """
    both_transformers = isinstance(student, Transformer) and isinstance(teacher, Transformer)
    if not both_transformers or student.config.d_model != teacher.config.d_model:
        return 0
    theirs, count = dict(teacher.named_parameters()), 0
    for name, parameter in student.named_parameters():
        if name in theirs and theirs[name].shape == parameter.shape:
            parameter.copy_(theirs[name])
            count += parameter.numel()
    return count
