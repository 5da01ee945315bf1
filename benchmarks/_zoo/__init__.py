"""Published networks as PyTorch modules, their inputs, their exports and what is measured."""

STYLES = ("torchscript", "dynamo", "program")
"""ONNX by tracing TorchScript, ONNX by torch.export and onnxscript, and torch.export alone."""
