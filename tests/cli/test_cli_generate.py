"""`vta-byoc generate`: what it prints, and what it refuses before the long work."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import onnx
import pytest
from cli_runs import cli, refused, small_model
from decoders import KNOWN, SMALL, TOKENS, model, small

from vta_byoc.cli import commands
from vta_byoc.decoding import decoder as decoding
from vta_byoc.hw.config import VTAConfig
from vta_byoc.validation import bit_exact

FORM = "export it as ids (1, T) to logits (1, T, vocabulary), causal"
PROMPT = ("--prompt", "abc")


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A decoder that keeps its characters."""
    path = tmp_path_factory.mktemp("model") / "small.onnx"
    given = model()
    onnx.helper.set_model_props(given, {"characters": KNOWN})
    onnx.save(given, path)
    return path


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same decoder without them."""
    path = tmp_path_factory.mktemp("model") / "plain.onnx"
    onnx.save(model(), path)
    return path


@pytest.fixture
def compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The decoder that tests share stands in for what the command would quantize and compile."""
    shared = small()
    monkeypatch.setattr(commands, "quantize", lambda *_: shared.qmod)
    monkeypatch.setattr(
        decoding,
        "compiled_decoder",
        lambda _qmod, _config, _options, known: dataclasses.replace(shared, characters=known),
    )


def test_all_of_it(tmp_path: Path) -> None:
    """Nothing stands in here: the file's own text calibrates, and all logits are compared."""
    given = model(dataclasses.replace(SMALL, tokens=32, depth=1))
    onnx.helper.set_model_props(given, {"characters": KNOWN, "calibration": KNOWN * 9})
    path = tmp_path / "one_block.onnx"
    onnx.save(given, path)
    result = cli("generate", path, *PROMPT, "--tokens", 20, "--check", "--json")
    assert result.exit_code == 0, result.stderr
    assert "quantizing with samples that the model keeps" in result.stderr.splitlines()
    report = json.loads(result.stdout)
    assert report["bit_exact"] is True and report["bucket"] == 32
    assert report["memory"]["caches"] == 2 * 32 * 32
    assert report["text"] == "".join(KNOWN[number] for number in report["ids"])


@pytest.mark.usefixtures("compiled_once")
def test_json_is_one_object_with_the_promised_keys(file: Path) -> None:
    result = cli("generate", file, *PROMPT, "--tokens", 20, "--json")
    assert result.exit_code == 0, result.stderr
    report = json.loads(result.stdout)
    assert list(report) == [
        *("model", "config", "device", "prompt", "prompt_ids", "text", "ids", "bucket"),
        *("cycles_a_token", "bytes_a_token", "programs", "host_bytes_a_token", "memory"),
        *("bit_exact", "seconds"),
    ]
    assert (report["model"], report["config"], report["device"]) == (str(file), "sim", "sim")
    assert (report["prompt"], report["prompt_ids"], report["bucket"]) == ("abc", [1, 2, 3], TOKENS)
    assert tuple(report["ids"]) == small().generate("abc", 20).ids
    step = report["programs"]["decode"]
    assert step["runs"] == 20 and report["programs"]["prefill"]["runs"] == 0
    assert report["cycles_a_token"] == step["cycles"] > step["port_cycles"] > 0
    assert report["bytes_a_token"] == step["moved_bytes"] > step["needed_bytes"] > 0
    assert step["port_share"] == step["port_cycles"] / step["cycles"]
    assert report["host_bytes_a_token"]["caches"] == 0 < report["host_bytes_a_token"]["logits"]
    assert report["memory"]["arena"] > report["memory"]["caches"] == 4 * TOKENS * 32
    assert list(report["seconds"]) == [
        *("import", "quantize", "compile", "generate", "reference", "time")
    ]


@pytest.mark.usefixtures("compiled_once")
def test_text(file: Path) -> None:
    result = cli("generate", file, *PROMPT, "--tokens", 5, "--check", "--device", "tsim")
    assert result.exit_code == 0, result.stderr
    title, blank, text, *lines = result.stdout.splitlines()
    assert (title, blank) == (f"{file} on sim (1x16), device tsim", "")
    assert text == "abc" + small().generate("abc", 5).text
    found = {line.split()[0]: line.split(maxsplit=1)[1] for line in lines if line}
    assert found["tokens"] == f"5 tokens behind 3 of the prompt; the bucket takes {TOKENS}"
    assert found["programs"] == "prefill 0 times, decode 5 times; each is one region"
    assert " a token, " in found["cycles"] and "the memory port's bound is" in found["cycles"]
    assert found["host"].endswith(", caches 0")
    assert found["check"] == "bit-exact: 55 logits equal the integer reference"


@pytest.mark.usefixtures("compiled_once")
def test_numbers_of_tokens(plain: Path) -> None:
    result = cli("generate", plain, "--prompt-ids", "1, 2,3", "--tokens", 4)
    assert result.exit_code == 0, result.stderr
    assert result.stdout.splitlines()[2] == ",".join(map(str, small().generate([1, 2, 3], 4).ids))
    assert "check" not in result.stdout
    report = json.loads(cli("generate", plain, "--prompt-ids", 1, "--tokens", 2, "--json").stdout)
    assert (report["prompt"], report["text"]) == ("", "")
    assert report["bit_exact"] is None and report["seconds"]["reference"] is None


@pytest.mark.usefixtures("compiled_once")
def test_a_difference_is_shown_and_exits_with_1(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest, built = bit_exact.reference_runner, dict[int, Any]()

    def lying(qmod: Any, programs: Any) -> Any:
        if id(qmod) not in built:
            built[id(qmod)] = honest(qmod, programs)

        def run(inputs: Any) -> bit_exact.Reference:
            reference = built[id(qmod)](inputs)
            reference.outputs[0][0, 3, 1] += 1
            return reference

        return run

    monkeypatch.setattr(bit_exact, "reference_runner", lying)
    result = cli("generate", file, *PROMPT, "--tokens", 3, "--check")
    assert result.exit_code == 1
    text = " ".join(result.stdout.split())
    assert "check NOT bit-exact: output logits: 1 of 33 values differ, first at [1, 1]: " in text
    result = cli("generate", file, *PROMPT, "--tokens", 3, "--check", "--json")
    assert result.exit_code == 1 and json.loads(result.stdout)["bit_exact"] is False
    assert result.stderr.splitlines()[-1].startswith("NOT bit-exact: output logits: 1 of 33")


def test_samples_that_are_given_come_first(plain: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """--calibration, else what the file keeps, else noise."""

    def told(mod: Any, calibration: Any, _steps: Any, _machine: Any, kept: Any) -> Any:
        found.append((calibration, kept and len(kept)))
        return shared.qmod

    found: list[Any] = []
    shared = small()
    monkeypatch.setattr(commands, "quantize", told)
    keeping = plain.with_name("keeping.onnx")
    given = model()
    onnx.helper.set_model_props(given, {"characters": KNOWN, "calibration": "ab" * TOKENS})
    onnx.save(given, keeping)
    monkeypatch.setattr(decoding, "compiled_decoder", lambda *_: shared)
    for path, more in ((keeping, ("--calibration", "x.npz")), (keeping, ()), (plain, ())):
        assert cli("generate", path, "--prompt-ids", 1, "--tokens", 1, *more).exit_code == 0
    assert found == [("x.npz", None), (None, 2), (None, None)]


class TestRefused:
    @pytest.mark.parametrize(
        ("options", "text"),
        [
            (
                ("--prompt", "abX", "--tokens", 3),
                f"character 'X' at place 2 of the prompt; the model knows 11: {KNOWN!r}; write the "
                "prompt with these",
            ),
            (
                ("--prompt", "a" * 40, "--tokens", 10),
                "40 tokens of the prompt and 10 more fill the bucket, which takes 48; ask for 9 or "
                "fewer, or export the model with more tokens",
            ),
            (
                ("--prompt", "a" * 49, "--tokens", 1),
                "the prompt has 49 tokens; the bucket takes 48; shorten the prompt, or export the "
                "model with more tokens",
            ),
            (
                ("--tokens", 1),
                "neither --prompt nor --prompt-ids is given; a text begins with one of them; give "
                "one",
            ),
            (
                (*PROMPT, "--prompt-ids", "1", "--tokens", 1),
                "both --prompt and --prompt-ids is given; a text begins with one of them; give one",
            ),
            (
                ("--prompt-ids", "1,-2", "--tokens", 1),
                '--prompt-ids "1,-2" is not N,N,...; numbers of tokens from 0 on are taken; write '
                "for example --prompt-ids 17,4,29",
            ),
            (
                (*PROMPT, "--tokens", 1, "--device", "null"),
                '--device null; it computes nothing; use "--device sim"',
            ),
            (
                (*PROMPT, "--tokens", 0),
                "Invalid value for '--tokens': 0 is not in the range 1<=x<=1000000; see vta-byoc "
                "generate --help",
            ),
            (PROMPT, "Missing option '--tokens'; see vta-byoc generate --help"),
            (
                (*PROMPT, "--tokens", 1, "--config", "2x16"),
                "machine 2x16 has BATCH 2; a decoder takes 1: a weight serves all images of a "
                "batch; use a machine with BATCH 1",
            ),
        ],
    )
    def test_options(self, file: Path, options: tuple[Any, ...], text: str) -> None:
        assert refused("generate", file, *options) == text

    def test_text_for_a_model_without_characters(self, plain: Path) -> None:
        assert refused("generate", plain, *PROMPT, "--tokens", 1) == (
            "the prompt is a text of 3 characters; the model keeps no characters (metadata "
            '"characters" of an ONNX file); give the prompt as numbers of tokens'
        )

    def test_a_machine_without_mul(self, file: Path, tmp_path: Path) -> None:
        plain = VTAConfig.preset("sim")
        bare = dataclasses.replace(
            plain, capabilities=dataclasses.replace(plain.capabilities, mul=False)
        )
        machine = tmp_path / "bare.json"
        machine.write_text(json.dumps(bare.to_dict()), encoding="utf-8")
        assert refused("generate", file, *PROMPT, "--tokens", 1, "--config", machine) == (
            f"machine {bare.name} has no MUL; softmax and normalizations of a decoder multiply; "
            "use a machine with CAPABILITIES.mul"
        )

    def test_a_model_that_is_no_decoder(self, tmp_path: Path) -> None:
        path = small_model(tmp_path / "convolutions.onnx")
        assert refused("generate", path, "--prompt-ids", 1, "--tokens", 1) == (
            "the model takes data (1, 16, 8, 8) float32; a decoder takes ids, integers (1, T), and "
            f"nothing else; {FORM}"
        )

    @pytest.mark.usefixtures("compiled_once")
    def test_a_number_that_no_token_has(self, plain: Path) -> None:
        text = refused("generate", plain, "--prompt-ids", "3,11", "--tokens", 1)
        assert text == (
            "token 11 at place 1; the model has 11, from 0 to 10; give numbers of these"
        )
