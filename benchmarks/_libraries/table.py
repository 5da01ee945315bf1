"""The networks: which library makes each, with which options, and what it is fed with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarks._zoo import inputs
from benchmarks._zoo.table import Network

from .modules import of_timm, of_torchvision, of_transformers

SIZE = 64
IMAGE = (inputs.images(3, SIZE),)
VOCABULARY, LENGTH = 128, 16
TOKENS = inputs.tokens(LENGTH, VOCABULARY)


# ---------------------------------------------------------------- timm
def _timm(name: str, reduced: str = "", **options: Any) -> tuple[str, Network]:
    image = (inputs.images(3, options.get("img_size", SIZE)),)
    return name, Network(of_timm(name, **options), image, f"timm: {reduced or 'as it is'}")


AT_SIZE = {"img_size": SIZE}
"""Of those that have to know the size of their images."""
TIMM = (
    # convolutions
    _timm("resnet18"),
    _timm("mobilenetv3_small_100"),
    _timm("efficientnet_lite0"),
    _timm("regnety_002"),
    _timm("ghostnet_100"),
    _timm("repvgg_a0"),
    _timm("dla34"),
    _timm("ese_vovnet19b_dw"),
    _timm("test_nfnet"),
    _timm("starnet_s1"),
    _timm("fasternet_t0"),
    _timm("inception_next_atto"),
    _timm("convnextv2_atto"),
    _timm("test_mambaout"),
    _timm("poolformerv2_s12"),
    _timm("repvit_m0_9"),
    # convolutions and attention
    _timm("test_coatnet", **AT_SIZE),
    _timm("mobilevit_xxs", **AT_SIZE),
    _timm("mobilevitv2_050", **AT_SIZE),
    _timm("efficientvit_m0", **AT_SIZE),
    _timm("efficientvit_b0"),
    _timm("edgenext_xx_small"),
    _timm("levit_128s", **AT_SIZE),
    _timm("pvt_v2_b0"),
    _timm("efficientformerv2_s0", **AT_SIZE),
    _timm("shvit_s1"),
    # tokens
    _timm("vit_tiny_patch16_224", "4 of 12 layers", depth=4, **AT_SIZE),
    _timm("deit_tiny_distilled_patch16_224", "4 of 12 layers", depth=4, **AT_SIZE),
    _timm("eva02_tiny_patch14_224", "4 of 12 layers, 56x56", depth=4, img_size=56),
    _timm("cait_xxs24_224", "4 of 24 layers", depth=4, **AT_SIZE),
    _timm("convit_tiny", "4 of 12 layers", depth=4, **AT_SIZE),
    _timm(
        "swinv2_tiny_window8_256", "2 stages of width 48", window_size=8, embed_dim=48,
        depths=(2, 2), num_heads=(3, 6), **AT_SIZE,
    ),
    _timm("mixer_s32_224", **AT_SIZE),
    _timm("resmlp_12_224", **AT_SIZE),
)  # fmt: skip


# ---------------------------------------------------------------- torchvision
def _torchvision(name: str, **options: Any) -> tuple[str, Network]:
    return name, Network(of_torchvision(name, **options), IMAGE, "torchvision: as it is")


TORCHVISION = (
    _torchvision("squeezenet1_1"),
    _torchvision("lraspp_mobilenet_v3_large", weights_backbone=None),
)

# ---------------------------------------------------------------- transformers
WIDTHS = {
    "vocab_size": VOCABULARY, "hidden_size": 64, "num_hidden_layers": 2,
    "num_attention_heads": 4, "intermediate_size": 128, "max_position_embeddings": 64,
    "pad_token_id": 0,
}  # fmt: skip
"""Of the configurations that call them so."""
PAIR = {
    "vocab_size": VOCABULARY, "d_model": 64, "encoder_layers": 2, "decoder_layers": 2,
    "encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_ffn_dim": 128,
    "decoder_ffn_dim": 128, "pad_token_id": 0, "decoder_start_token_id": 1,
}  # fmt: skip
"""Of an encoder and a decoder."""
DECODER_TOKENS = inputs.tokens(LENGTH // 2, VOCABULARY)


def _text(
    name: str,
    options: Mapping[str, Any],
    *,
    cached: bool = False,
    widths: Mapping[str, Any] = WIDTHS,
) -> tuple[str, Network]:
    """A network that reads tokens; `cached` ones are told to keep none of their keys."""
    constants = {"use_cache": False} if cached else {}
    build = of_transformers(name, ("input_ids",), {**widths, **options}, **constants)
    return name, Network(build, (TOKENS,), "transformers: 2 layers of width 64, 16 tokens")


def _pair(
    name: str, first: str, maker: inputs.Maker, options: Mapping[str, Any], about: str
) -> tuple[str, Network]:
    """An encoder of `first` and a decoder of 8 tokens."""
    names = (first, "decoder_input_ids")
    build = of_transformers(name, names, options, use_cache=False)
    reduced = f"transformers: 2 and 2 layers of width 64, {about} and 8 tokens"
    return name, Network(build, (maker, DECODER_TOKENS), reduced)


def _other(
    name: str, given: str, maker: inputs.Maker, options: Mapping[str, Any], about: str
) -> tuple[str, Network]:
    build = of_transformers(name, (given,), options)
    return name, Network(build, (maker,), f"transformers: {about}")


def _sound(generator: Any, count: int) -> Any:
    """Float32 (count, 1600): a tenth of a second."""
    return inputs.series(1, 1600)(generator, count)[:, 0]


RELATIVE = {
    "relative_attention": True, "max_relative_positions": 16, "pos_att_type": ["c2p", "p2c"],
}  # fmt: skip
TRANSFORMERS = (
    # encoders
    _text("bert", {}),
    _text(
        "distilbert", {"dim": 64, "n_layers": 2, "n_heads": 4, "hidden_dim": 128},
        widths={"vocab_size": VOCABULARY, "max_position_embeddings": 64},
    ),
    _text("albert", {"embedding_size": 32}),
    _text("electra", {"embedding_size": 32}),
    _text(
        "mobilebert",
        {"embedding_size": 32, "intra_bottleneck_size": 32, "true_hidden_size": 32},
    ),
    _text("squeezebert", {"embedding_size": 64}),
    _text("deberta", RELATIVE),
    _text(
        "deberta-v2",
        {**RELATIVE, "position_buckets": 8, "norm_rel_ebd": "layer_norm", "share_att_key": True},
    ),
    _text("roformer", {}),
    _text("modernbert", {}),
    _text(
        "xlnet", {"d_model": 64, "n_layer": 2, "n_head": 4, "d_inner": 128},
        widths={"vocab_size": VOCABULARY},
    ),
    # decoders
    _text(
        "gpt2", {"n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 64}, cached=True,
        widths={"vocab_size": VOCABULARY},
    ),
    _text("gpt_neox", {}, cached=True),
    _text("opt", {"word_embed_proj_dim": 64, "ffn_dim": 128}, cached=True),
    _text("bloom", {"n_layer": 2}, cached=True),
    _text("llama", {"num_key_value_heads": 2}, cached=True),
    _text("qwen3", {"num_key_value_heads": 2, "head_dim": 16}, cached=True),
    _text("gemma2", {"num_key_value_heads": 2, "head_dim": 16}, cached=True),
    _text("phi3", {"num_key_value_heads": 2}, cached=True),
    _text("falcon", {}, cached=True),
    _text(
        "mixtral",
        {
            "num_key_value_heads": 2, "num_local_experts": 4,
            "experts_implementation": "batched_mm",
        },
        cached=True,
    ),
    _text("mamba", {"state_size": 8}, cached=True),
    _text(
        "lfm2", {"num_key_value_heads": 2, "layer_types": ["conv", "full_attention"]}, cached=True
    ),
    # encoders and decoders
    _pair(
        "t5", "input_ids", TOKENS,
        {
            "vocab_size": VOCABULARY, "d_model": 64, "d_kv": 16, "d_ff": 128, "num_layers": 2,
            "num_decoder_layers": 2, "num_heads": 4,
        },
        "16 tokens",
    ),
    _pair("bart", "input_ids", TOKENS, {**PAIR, "max_position_embeddings": 64}, "16 tokens"),
    _pair(
        "whisper", "input_features", inputs.series(80, 64),
        {
            **PAIR, "num_mel_bins": 80, "max_source_positions": 32, "max_target_positions": 32,
            "bos_token_id": 1, "eos_token_id": 2,
        },
        "64 frames",
    ),
    # images and sound
    _other(
        "wav2vec2", "input_values", _sound,
        {
            **WIDTHS, "conv_dim": [32] * 4, "conv_stride": [5, 2, 2, 2],
            "conv_kernel": [10, 3, 3, 2], "num_feat_extract_layers": 4,
            "num_conv_pos_embeddings": 16, "num_conv_pos_embedding_groups": 4,
        },
        "4 convolutions of width 32, 2 layers of width 64, 1600 samples",
    ),
    _other(
        "segformer", "pixel_values", *IMAGE,
        {
            "depths": [1] * 4, "hidden_sizes": [16, 32, 64, 128],
            "num_attention_heads": [1, 2, 4, 8],
        },
        "half the width, one layer a stage",
    ),
    _other(
        "dinov2", "pixel_values", *IMAGE,
        {
            "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
            "image_size": SIZE, "patch_size": 8,
        },
        "2 layers of width 64",
    ),
    _other(
        "focalnet", "pixel_values", *IMAGE,
        {
            "image_size": SIZE, "embed_dim": 32, "depths": [1, 1], "focal_levels": [2, 2],
            "focal_windows": [3, 3],
        },
        "2 stages of width 32 and 64",
    ),
)  # fmt: skip
NETWORKS: dict[str, Network] = dict((*TIMM, *TORCHVISION, *TRANSFORMERS))
"""Images are 64x64 where nothing else is said."""
