"""What a process computes on and how: the device, its threads, and signals. Importing this imports no PyTorch."""
