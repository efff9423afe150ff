"""The local model all-MiniLM-L6-v2: its weights, its ONNX graph, and their download."""
