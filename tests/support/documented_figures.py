"""What README and docs say of recorded figures, as templates over `benchmarks/results`.

`{benchmark[figure]:format}` is the recorded value; `.bound` and `.baseline` after the name of the
figure are what stands beside it. White space counts as one space, so that text may be wrapped.
"""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks._published.table import MODELS
from benchmarks.published import JUDGED
from benchmarks.record import recorded

NETWORKS = {
    "ResNet-18": "resnet18",
    "ResNet-50 v1.5": "resnet50",
    "VGG-16": "vgg16",
    "MobileNetV1": "mobilenet_v1",
    "MobileNetV2": "mobilenet_v2",
    "SqueezeNet 1.1": "squeezenet",
    "YOLOv3-tiny": "yolov3_tiny",
    "DCGAN": "dcgan",
}
EQUAL_DB = 200.0
"""What stands for results that are equal."""
ANSWERS = {"read": "lines read", "turned": "turns told", "mark": "pixels marked"}
"""Of tasks, what right answers are."""
NEWER = {
    "MobileNetV3-Small": "mobilenet_v3_small",
    "EfficientNet-B0": "efficientnet_b0",
    "RegNetY-400MF": "regnet_y_400mf",
    "ShuffleNetV2": "shufflenet_v2",
    "DenseNet-121": "densenet121",
    "ConvNeXt-Tiny": "convnext_tiny",
    "U-Net": "unet",
    "DeepLabV3": "deeplabv3_mobilenet",
    "super resolution": "super_resolution",
    "DS-CNN": "kws_ds_cnn",
    "M5 on waves": "wav_conv1d",
    "YOLOv8n": "yolov8n",
}
TRANSFORMERS = {
    "ViT-Tiny": "vit_tiny",
    "DeiT-Small": "deit_small",
    "BERT-Base, one layer of 128 tokens": "bert_base_layer",
}
LIGHT = (
    "light_resnet50",
    "light_squeezenet",
    "light_shufflenet",
    "light_densenet121",
    "light_inception_v1",
    "light_inception_v2",
    "light_bvlc_alexnet",
    "light_zfnet512",
    "light_vgg19",
)
LAYERS = {
    "ResNet-18 | 1x16": "resnet18_1x16",
    "ResNet-50 | 1x16": "resnet50_1x16",
    "AlexNet | 1x16": "alexnet_1x16",
    "VGG | 1x16": "vgg_1x16",
    "LSTM | 1x16": "lstm_1x16",
    "DCGAN | 1x16": "dcgan_1x16",
    "MobileNet-G | 1x16": "mobilenetg_1x16",
    "ResNet-18 | 4x8": "resnet18_4x8",
    "ResNet-50 | 4x8": "resnet50_4x8",
    "LSTM | 4x8": "lstm_4x8",
}
PREQUANTIZED_NETWORKS = {
    "ResNet-like": "resnet18_like",
    "MobileNet-like": "mobilenet_v2_like",
    "U-Net": "unet_like",
}
PREQUANTIZED_FORMATS = {
    "ONNX QDQ, int8 per tensor": "QDQ_int8_per_tensor",
    "ONNX QDQ, uint8 per channel": "QDQ_uint8_per_channel",
    "ONNX QDQ, uint8 weights": "QDQ_uint8_weights",
    "ONNX QOperator, uint8": "QOperator_uint8",
    "TFLite": "TFLite_int8",
    "PyTorch pt2e": "PyTorch_pt2e",
}
EXACT_FORMATS = ("TFLite", "ONNX QDQ, int8 per tensor", "ONNX QDQ, uint8 per channel")
OPERATOR_FORMATS = {
    "ONNX QDQ, int8 per tensor": "QDQ_int8_per_tensor",
    "ONNX QDQ, uint8 per channel": "QDQ_uint8_per_channel",
    "ONNX QOperator, uint8": "QOperator_uint8",
    "PyTorch pt2e": "PyTorch_pt2e",
}
RESCALE = {
    "`pow2`": "pow2",
    "`pow2`, per channel": "pow2_per_channel",
    "`mul`": "mul",
    "`mul`, per channel": "mul_per_channel",
    "`mul`, per channel, zero points, padding": "mul_per_channel_zero_points",
    "`digits` (any factors)": "digits",
    "`digits`, zero points, padding": "digits_zero_points",
    "`shifts`": "shifts",
    "`shifts`, per channel": "shifts_per_channel",
    "`approximate`, per channel": "approximate",
}
DECODERS = {
    "characters: 3 blocks of 64 channels, 256 tokens": "characters",
    "a layer of GPT-2's size: 768 channels, 12 heads, 128 tokens": "gpt2_layer",
    "a Llama-like block of 100 million parameters, 128 tokens": "llama_block_100m",
}
OBJECTIVES = {
    "`both` (the default: w = 0.5, within 2 %)": "both",
    "`cycles`": "cycles",
    "`both` without a limit, w = 0.1": "both_10_unlimited",
    "the same, w = 0.2": "both_20_unlimited",
    "the same, w = 0.5": "both_50_unlimited",
    "`dram-bytes`": "dram_bytes",
}
SCOPES = {"ResNet-18": "resnet18", "MobileNetV2": "mobilenet_v2", "YOLOv3-tiny": "yolov3_tiny"}


def claims() -> Iterator[tuple[str, str]]:
    """(page, template) of everything that is quoted."""
    yield from _readme()
    yield from _networks()
    yield from _layers()
    yield from _scopes()
    yield from _rescale()
    yield from _prequantized()
    yield from _accuracy()
    yield from _zoo()
    yield from _libraries()
    yield from _published()
    yield from _core()
    yield from _decoding()
    for spread in (1, 2, 3, 4):
        figure = f"{{attention[attention_sqnr_sigma_{spread}"
        yield "docs/attention.md", f"{figure}]:.1f}} dB | {figure}_of_floats]:.1f}} dB |"
    for tokens in (128, 256):
        figure = f"attention[causal_{tokens}"
        yield "docs/attention.md", (
            f"| {tokens} tokens | {{{figure}_cycles]:,.0f}} | {{{figure}_cycles.baseline]:,.0f}} | "
            f"{{{figure}_saved]:.1f}} % |"
        )
    for title, name in OBJECTIVES.items():
        yield "docs/cost-model.md", (
            f"| {title} | {{objectives[{name}_cycles]:,.0f}} | "
            f"{{objectives[{name}_megabytes]:.2f}} MB |"
        )
    yield "docs/how-to/bundles.md", (
        "A ResNet-18 is a bundle of {bundle[resnet18_megabytes]:.1f} MB and takes the simulator in "
        "C {bundle[resnet18_seconds]:.1f} s"
    )
    yield "docs/how-to/bundles.md", (
        "MobileNetV2 {bundle[mobilenet_v2_megabytes]:.1f} MB and "
        "{bundle[mobilenet_v2_seconds]:.1f} s. Of {bundle[mutated_bundles]:,.0f} bundles"
    )
    yield "docs/importing.md", (
        "Of the {conformance[tests_equal.bound]:,.0f} tests of tensors in onnx 1.23, "
        "{conformance[tests_equal]:,.0f} give what ONNX says and "
        "{conformance[tests_refused]:,.0f} are refused"
    )
    yield "docs/importing.md", (
        "{conformance[tests_known_to_differ]:,.0f} differ, in what no model should rely on"
    )
    yield "docs/verifier.md", (
        "Over {mutation[mutants]:,.0f} mutants of {mutation[programs]:,.0f} programs, "
        "{mutation[harmful_mutants]:,.0f} were harmful"
    )
    yield "docs/verifier.md", "{mutation[safe_mutants_with_other_results]:,.0f} others were safe"


def _readme() -> Iterator[tuple[str, str]]:
    page = "README.md"
    yield page, (
        "ResNet-18 moves {scopes[resnet18_on_vta_megabytes]:.1f} MB instead of "
        "{scopes[resnet18_dram_only_vta_megabytes]:.1f} MB"
    )
    yield page, "ResNet-18: {networks[resnet18_cycles_millions]:.1f} M cycles"
    yield page, (
        "in {simulator[resnet18_over_onnxruntime_fp32]:.1f} times the time ONNX Runtime needs"
    )
    yield page, "at {networks[least_over_bound]:.2f} to {networks[most_over_bound]:.2f} times"


def _networks() -> Iterator[tuple[str, str]]:
    page = "docs/networks.md"
    named = {**NETWORKS, **NEWER, **TRANSFORMERS, **dict(zip(LIGHT, LIGHT, strict=True))}
    for title, name in named.items():
        yield page, (
            f"| {title} | {{networks[{name}_cycles]:,.0f}} | {{networks[{name}_bound]:,.0f}} | "
            f"{{networks[{name}_over_bound]:.3f}} |"
        )
    for name in (*NEWER.values(), *LIGHT):
        yield page, (
            f"{{networks[{name}_over_bound]:.3f}} | {{networks[{name}_macs_on_vta]:.4g}} % | "
            f"{{networks[{name}_alu_ops_on_vta]:.4g}} % | {{networks[{name}_regions]:.0f}} | "
            f"{{networks[{name}_tensors_compared]:.0f}} of "
        )
    yield page, (
        "ResNet-18 takes {networks[resnet18_cycles_chisel_profile]:,.0f} and "
        "{networks[resnet18_cycles_hls_alu]:,.0f} cycles"
    )
    yield page, "needs {networks[resnet18_compile_cpu]:.1f} s of CPU time for ResNet-18"
    for name in ("deit_small", "bert_base_layer"):
        yield page, f"| {{networks[{name}_mac_utilisation]:.1f}} % | 1 |"
    for title in ("ResNet-18", "MobileNetV1", "MobileNetV2"):
        name = NETWORKS[title]
        figure = f"{name}_chisel_cycles"
        yield page, (
            f"| {title} | {{machines[{figure}]:,.0f}} | {{machines[{figure}.baseline]:,.0f}} | "
            f"{{machines[{figure}_over_unrestricted]:.4f}} | "
            f"{{machines[{name}_tensors_compared]:.0f}} of "
        )


def _layers() -> Iterator[tuple[str, str]]:
    page = "docs/layers.md"
    for title, name in LAYERS.items():
        figure = f"{name}_workloads_cycles"
        yield page, (
            f"| {title} | {{layers[{figure}]:,.0f}} | {{layers[{figure}.bound]:,.0f}} | "
            f"{{layers[{figure}.baseline]:,.0f}} |"
        )
    yield page, "board over cycles {layers[board_over_cycles]:.2f}"
    yield page, "| GEMM micro-ops of ResNet-18's stem | {layers[stem_gemm_ops]:,.0f} |"
    yield page, "| {layers[depthwise_cycles_per_vector]:.1f} | ≤ 10 |"


def _scopes() -> Iterator[tuple[str, str]]:
    page = "docs/scopes.md"
    for title, name in SCOPES.items():
        for mode, file in (("on", "on"), ("dram", "dram_only"), ("off", "off")):
            prefix = f"scopes[{name}_{file}_"
            row = (
                f"| {title if mode == 'on' else ''} | {mode} | {{{prefix}regions]:.0f}} | "
                f"{{{prefix}vta_megabytes]:.2f}} MB | {{{prefix}host_megabytes]:.2f}} MB | "
                f"{{{prefix}cycles]:,.0f}} |"
            )
            yield page, row.replace("|  |", "| |")
            if mode != "off":
                yield page, (
                    f"{{{prefix}cycles]:,.0f}} | {{{prefix}peak_megabytes]:.2f}} MB | "
                    f"{{{prefix}apart_megabytes]:.2f}} MB |"
                )


def _rescale() -> Iterator[tuple[str, str]]:
    for title, name in RESCALE.items():
        yield "docs/quantization.md", (
            f"| {title} | {{rescale[{name}_alu]:.0f}} | {{rescale[{name}_all]:.1f}} | "
            f"{{rescale[{name}_dram]:.2f}} MB |"
        )


def _prequantized() -> Iterator[tuple[str, str]]:
    page = "docs/quantized-models.md"
    for title, network in PREQUANTIZED_NETWORKS.items():
        for form, name in PREQUANTIZED_FORMATS.items():
            figure = f"prequantized[{network}_{name}"
            yield page, (
                f"| {title} | {form} | {{{figure}_cycles]:,.0f}} | "
                f"{{{figure}_no_mul_cycles]:,.0f}} | {{{figure}_approximate_cycles]:,.0f}} |"
            )
        for form in EXACT_FORMATS:
            figure = f"prequantized[{network}_{PREQUANTIZED_FORMATS[form]}_exact"
            yield page, (
                f"| {title} | {form} | {{{figure}_equal_share]:.2f}} % | "
                f"{{{figure}_cycles]:,.0f}} | {{{figure}_cycles.baseline]:,.0f}} |"
            )
    for form, name in OPERATOR_FORMATS.items():
        figure = f"prequantized[{name}_equal_share"
        yield page, f"| {form} | {{{figure}]:.2f}} % | {{{figure}_worst_operator]:.2f}} %"


def _accuracy() -> Iterator[tuple[str, str]]:
    for mode in ("pow2", "mul"):
        figure = f"accuracy[names_{mode}"
        yield "docs/accuracy.md", (
            f"({{{figure}_right_to_wrong]:.0f}} / {{{figure}_wrong_to_right]:.0f}}), "
        )
        yield "docs/accuracy.md", f"points | | {{{figure}_scores_sqnr]:.1f}} dB |"
    for network in ("resnet8", "mobilenet", "mobilenet_v3"):
        for mode in ("pow2", "mul"):
            figure = f"accuracy[{network}_{mode}"
            yield "docs/accuracy.md", (
                f"({{{figure}_right_to_wrong]:.0f}} / {{{figure}_wrong_to_right]:.0f}}) | "
            )
            points = f", {{{figure}_noisy_drop_points]:.2f}} points" * (network == "mobilenet")
            yield "docs/accuracy.md", (
                f"({{{figure}_noisy_right_to_wrong]:.0f}} / "
                f"{{{figure}_noisy_wrong_to_right]:.0f}}){points} | "
                f"{{{figure}_scores_sqnr]:.1f}} dB |"
            )


def _core() -> Iterator[tuple[str, str]]:
    yield "docs/core.md", (
        "Of {rtl[programs_different.baseline]:.0f} programs {rtl[programs_different]:.0f} differ."
    )
    for title, name in (
        ("ResNet-18", "resnet18"),
        ("MobileNetV2", "mobilenet_v2"),
        ("encoder block of ViT-Tiny, with patches and head", "transformer_block"),
    ):
        cycles = f"{name}_cycles"
        row = f"| {title} | {{rtl[{cycles}]:,.0f}} | {{rtl[{cycles}.baseline]:,.0f}} |"
        yield "docs/core.md", row
    yield "docs/core.md", (
        "at most {rtl[timing_error_percent]:.2f} % off on networks, and "
        "{rtl[timing_error_percent_layers]:.2f} % on single layers"
    )
    yield "docs/core.md", "its tools take {rtl[build_seconds]:.0f} s of CPU time"
    yield "docs/core.md", (
        "Of {mutants[rtl.tried]:.0f} mutants {mutants[rtl.proved_equivalent]:.0f} have the"
    )
    yield "docs/core.md", "and {mutants[rtl.equivalent]:.0f} do what it does for a reason"
    yield "docs/core.md", (
        "{mutants[rtl.killed]:.0f} of the {mutants[rtl.killed.baseline]:.0f} others"
    )
    yield "docs/core.md", "a core 1x4 reaches {rtl[1x4.clock_mhz]:.0f} MHz"


def _zoo() -> Iterator[tuple[str, str]]:
    """Of every network that is recorded, in the worst style."""
    for name in sorted(f for f in recorded("zoo") if f.endswith("_sqnr")):
        network = name.removesuffix("_sqnr")
        yield "docs/zoo.md", (
            f"| {network} | {{zoo[{network}_macs_on_vta]:.1f}} % | "
            f"{{zoo[{network}_operators_on_vta]:.1f}} % | {{zoo[{network}_sqnr]:.1f}} | "
        )


def _libraries() -> Iterator[tuple[str, str]]:
    """Of every network that is recorded."""
    page, known = "docs/libraries.md", recorded("libraries")
    for name in sorted(f for f in known if f.endswith("_sqnr")):
        network = name.removesuffix("_sqnr")
        figure = f"libraries[{network}"
        beside = "–" if known[f"{name}.baseline"] is None else f"{{{figure}_sqnr.baseline]:.1f}}"
        yield page, (
            f"| {network} | {{{figure}_macs]:,.0f}} | {{{figure}_macs_on_vta]:.1f}} % | "
            f"{{{figure}_operators]:.0f}} | {{{figure}_operators_on_vta]:.1f}} % | "
            f"{{{figure}_regions]:.0f}} | {{{figure}_sqnr]:.1f}} | {beside} | "
            f"{{{figure}_cycles]:,.0f}} |"
        )
    yield page, (
        "{libraries[networks]:.0f} networks; of {libraries[all_macs_on_vta]:.0f} every "
        "multiply-accumulate"
    )


def _published() -> Iterator[tuple[str, str]]:
    """Of every model that is recorded, and the answers of those that are judged."""
    page, known = "docs/published.md", recorded("published")
    for name in sorted(f for f in known if f.endswith("_sqnr")):
        model = name.removesuffix("_sqnr")
        sqnr = "equal" if known[name] == EQUAL_DB else f"{{published[{name}]:.1f}}"
        other = f"{name}.baseline"
        beside = "–" if known[other] is None else f"{{published[{other}]:.1f}}"
        yield page, (
            f"| {model} | {MODELS[model].about} | {{published[{model}_macs]:,.0f}} | "
            f"{{published[{model}_macs_on_vta]:.1f}} % | "
            f"{{published[{model}_operators_on_vta]:.1f}} % | "
            f"{{published[{model}_regions]:.0f}} | {sqnr} | {beside} | "
            f"{{published[{model}_cycles]:,.0f}} |"
        )
        task = MODELS[model].task
        if task is not None and f"{model}_right" in known:
            right = " | ".join(f"{{published[{model}_{who}]:.1f}} %" for who in JUDGED)
            yield page, f"| {model} | {ANSWERS[task.kind]} | {right} |"


def _decoding() -> Iterator[tuple[str, str]]:
    page = "docs/decoding.md"
    for title, name in DECODERS.items():
        figure = f"{{decoding[{name}"
        yield page, (
            f"| {title} | {figure}_cycles]:,.0f}} | {figure}_cycles.bound]:,.0f}} | "
            f"{figure}_port_share]:.1f}} % | {figure}_port_busy]:.1f}} % | "
            f"{figure}_megabytes]:,.2f}} MB |"
        )
        yield page, f"{figure}_logits_compared]:,.0f}}"
    yield page, (
        "a perplexity of {decoding[characters_perplexity]:.3f} in integers and of "
        "{decoding[characters_perplexity.baseline]:.3f} in float"
    )
    yield page, "{decoding[characters_tokens_equal]:.0f} characters"
