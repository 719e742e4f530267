"""Write models for other programs: `dragoman export`.

`run` writes a folder and proves that it translates as the model does, with `program`, which runs what the README shows;
each target, a file of its own, knows what belongs into it. `model_folder` copies a model as it is. `sentencepiece`
writes the subwords of imported models, `readme` the text for people, and `page/` is what a browser gets.
"""
