"""Test networks written from code: numpy and onnx only, the same bytes every time.

Every module in NAMES has `build`, `cached`, `calibration_inputs` and `sample_inputs`, and is a
script.
"""

NAMES = (
    "resnet18",
    "resnet50",
    "vgg16",
    "mobilenet_v1",
    "mobilenet_v2",
    "squeezenet",
    "yolov3_tiny",
    "dcgan",
)
