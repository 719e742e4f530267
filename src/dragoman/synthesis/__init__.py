"""Make sentence pairs with a model: for a student (distillation), or from text in the target language alone."""
