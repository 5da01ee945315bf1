"""Names of characters, and the classifier of them that is committed."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from stored_parameters import Stored

import vta_byoc as vta
from models import names
from models._bert import classifier
from vta_byoc.hw.config import VTAConfig
from vta_byoc.partition import placements
from vta_byoc.validation.accuracy import runner

RIGHT = 2_005
"""Of the 2,192 names that it was not trained on, under ONNX Runtime."""


def test_names_are_the_same_with_every_python() -> None:
    digest = hashlib.sha256(repr(list(names.table())).encode()).hexdigest()
    assert len(names.table()) == 11_009
    assert digest == "85377232919aa8f82c3d7666cc7d0fa57b32c6f9312a08f77ec2e55590b50a62"
    known = dict(names.table())
    assert names.CLASSES[known["GREEK SMALL LETTER ALPHA"]] == "small"
    assert names.CLASSES[known["LATIN CAPITAL LETTER A"]] == "capital"
    assert names.CLASSES[known["COMBINING GRAVE ACCENT"]] == "mark"


def test_a_name_as_tokens() -> None:
    ids, mask = names.encoded(["A-1", " Z"])
    assert ids[0, :5].tolist() == [1, 14, 3, 5, 0] and ids[1, :4].tolist() == [1, 2, 39, 0]
    assert mask.sum(axis=1).tolist() == [4, 3] and ids.shape == (2, names.TOKENS)
    with pytest.raises(ValueError, match=r"the name 'a' has the characters \['a'\]; names have at"):
        names.encoded(["a"])
    with pytest.raises(ValueError, match="has 48 characters; names have at most 47 of"):
        names.encoded(["A" * 48])


def test_calibration_is_not_held_out() -> None:
    held = {row.tobytes() for row in names.held_out()["ids"]}
    known = names.calibration()
    assert len(known["ids"]) == names.CALIBRATION and len(held) == 2_192
    assert not held & {row.tobytes() for row in known["ids"]}


def test_the_file_is_the_table_with_its_weights() -> None:
    again = classifier(names.NAME, names.sizes(), Stored(names.TRAINED))
    assert again.SerializeToString(deterministic=True) == names.TRAINED.read_bytes()


def test_accuracy_is_the_recorded_one() -> None:
    session, held = onnxruntime.InferenceSession(names.TRAINED), names.held_out()
    rows = zip(held["ids"], held["mask"], strict=True)
    found = [session.run(None, {"ids": i[None], "mask": m[None]})[0].argmax() for i, m in rows]
    assert int((np.array(found) == held["labels"]).sum()) == RIGHT


@pytest.mark.parametrize("scales", ["pow2", "mul"])
def test_the_classifier_is_one_region_with_its_pooler(scales: str) -> None:
    """Masks of run time, two layers, tanh: all on VTA, and bit-exact."""
    known, held = names.calibration(), names.held_out()
    samples = [[known["ids"][i : i + 1], known["mask"][i : i + 1]] for i in range(16)]
    qmod = vta.quantize(vta.load_model(names.TRAINED), calibration=samples, scales=scales)
    config = VTAConfig.preset("sim")
    pmod = vta.partition_for_vta(qmod, config=config)
    placed = {op.name: op.device for op in placements(pmod)}
    assert placed["pooled"] == placed["layer1_mixed"] == "vta"
    machine, reference = runner(qmod, config, "sim"), runner(qmod, config, "reference")
    right = 0
    for number in range(0, 2_192, 40):
        feed = {name: held[name][number : number + 1] for name in ("ids", "mask")}
        scores = machine(feed)
        np.testing.assert_array_equal(scores, reference(feed))
        right += int(scores.argmax() == held["labels"][number])
    assert right >= 48  # of 55


def test_data_for_eval(tmp_path: Path) -> None:
    data, known = tmp_path / "held-out.npz", tmp_path / "known.npz"
    assert names.main(["-o", str(data), "--calibration", str(known)]) == 0
    assert sorted(np.load(data)) == ["ids", "labels", "mask"]
    assert sorted(np.load(known)) == ["ids", "mask"]
