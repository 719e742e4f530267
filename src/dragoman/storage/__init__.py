"""Files on the disk and on the Hugging Face Hub: written whole or not at all, and read without trust."""
