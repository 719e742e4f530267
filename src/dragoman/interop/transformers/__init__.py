"""Write a Transformer as Hugging Face's `transformers` has it, and run it there: MarianMT or M2M100, whichever fits."""
