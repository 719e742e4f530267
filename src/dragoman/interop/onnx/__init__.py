"""ONNX, the format that runs anywhere: our models as two graphs, and a model that runs them.

`graph` builds a graph node by node, `products` says how its matrices are stored and multiplied, `conversion` writes the
encoder and the decoder of a Transformer, and `session` runs both with onnxruntime as a model that our searches take.
"""
