"""Test networks written from code: numpy and onnx only, the same bytes every time.

Every module in NAMES has `build`, `cached`, `calibration_inputs` and `sample_inputs`, and is a
script.
"""

FIRST = (
    "resnet18",
    "resnet50",
    "vgg16",
    "mobilenet_v1",
    "mobilenet_v2",
    "squeezenet",
    "yolov3_tiny",
    "dcgan",
)
"""Convolutions, poolings, relus and sums: any machine computes them."""
NEWER = (
    "mobilenet_v3_small",
    "efficientnet_b0",
    "regnet_y_400mf",
    "shufflenet_v2",
    "densenet121",
    "unet",
    "yolov8n",
    "deeplabv3_mobilenet",
    "convnext_tiny",
    "kws_ds_cnn",
    "wav_conv1d",
    "super_resolution",
)
"""Gates, smooth activations, resizings, norms and shuffles: some need a machine that multiplies."""
NAMES = (*FIRST, *NEWER)
"""Every network that the convolutions' tools take by name; transformers stand for themselves."""
