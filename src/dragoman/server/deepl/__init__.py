"""What the clients of DeepL ask for: /v2 and /v3."""
