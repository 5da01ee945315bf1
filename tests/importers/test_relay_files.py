"""Relay's other files: parameter lists, NDArrays, the JSON graph, archives."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import relay_files
from relay_texts import FUSED, SMALL, error, floats, run, write
from tvm_ffi import structural_equal

from vta_byoc.hw.errors import VTAError
from vta_byoc.importers.load import load_model
from vta_byoc.importers.relay.binaries import params_of, read_params
from vta_byoc.importers.relay.read import read_text

DTYPES = ("float32", "float64", "float16", "int8", "uint8", "int32", "int64", "bool")


class TestParameterFiles:
    @pytest.mark.parametrize("dtype", DTYPES)
    def test_arrays_of_all_types(self, dtype: str) -> None:
        arrays = {"a": floats(2, 3).astype(dtype), "b.c": floats().astype(dtype), "": floats(0)}
        found = params_of(relay_files.params(arrays), "the file")
        assert list(found) == list(arrays)
        for name, array in arrays.items():
            assert found[name].dtype == array.dtype
            np.testing.assert_array_equal(found[name], array)

    def test_one_array(self) -> None:
        found = params_of(relay_files.ndarray(floats(2, 2)), "the file")
        np.testing.assert_array_equal(found[""], floats(2, 2))

    def test_every_truncation_is_refused(self) -> None:
        whole = relay_files.params({"a": floats(2, 3), "b": floats(4)})
        for cut in range(len(whole)):
            with pytest.raises(VTAError) as caught:
                params_of(whole[:cut], "parameter file")
            assert "\n" not in str(caught.value)

    def test_no_changed_byte_is_more_than_an_error(self) -> None:
        whole = bytearray(relay_files.params({"a": floats(2, 3)}))
        for place in range(len(whole)):
            damaged = bytes([*whole[:place], whole[place] ^ 0xFF, *whole[place + 1 :]])
            try:
                params_of(damaged, "parameter file")
            except VTAError as caught:
                assert "\n" not in str(caught)

    def test_what_is_no_parameter_file(self, tmp_path: Path) -> None:
        path = write(tmp_path / "net.params", b"PK\3\4-----")
        with pytest.raises(VTAError) as caught:
            read_params(path)
        assert str(caught.value) == (
            f'parameter file "{path}" begins with 504b03042d2d2d2d; parameter files begin with '
            "b79c04054f8de5f7; write it with tvm.runtime.save_param_dict"
        )
        with pytest.raises(VTAError, match="does not exist; what save_param_dict wrote"):
            read_params(tmp_path / "none")

    def test_how_much_is_missing(self) -> None:
        whole = relay_files.params({"a": floats(6)})
        with pytest.raises(VTAError) as caught:
            params_of(whole[:-4], "parameter file")
        assert str(caught.value) == (
            f"parameter file is damaged at byte {len(whole) - 24}: an array of 24 bytes was "
            "expected, 20 are left; write it again with tvm.runtime.save_param_dict"
        )


class TestJson:
    def test_a_graph_is_the_module_of_its_text(self, tmp_path: Path) -> None:
        for text in (FUSED, SMALL):
            module = read_text(text, "the text")
            as_json = write(tmp_path / "net.json", relay_files.json_graph(module))
            as_text = write(tmp_path / "net.relay", text)
            first, second = (load_model(p, random_params=0) for p in (as_json, as_text))
            names = [str(p.name) for p in first["main"].params]
            assert names == [str(p.name) for p in second["main"].params]
            assert structural_equal(first["main"], second["main"], map_free_vars=True)

    def test_constants(self, tmp_path: Path) -> None:
        constant = floats(3, 4)
        text = (
            "def @main(%x: Tensor[(2, 4), float32]) { nn.dense(%x, meta[relay.Constant][0], "
            "units=3) }" + relay_files.metadata([constant])
        )
        module = read_text(text, "the text")
        path = write(tmp_path / "net.json", relay_files.json_graph(module))
        (found,) = run(path, floats(2, 4))
        np.testing.assert_allclose(found, floats(2, 4) @ constant.T, rtol=1e-5)

    @pytest.mark.parametrize("text", ["", "{", "[]", '{"nodes": 3}', '{"root": 1, "nodes": []}'])
    def test_what_is_no_graph(self, tmp_path: Path, text: str) -> None:
        assert error(tmp_path, text, "net.json").startswith('model file "net.json" ')

    def test_damaged_graphs_are_one_line(self, tmp_path: Path) -> None:
        whole = json.loads(relay_files.json_graph(read_text(FUSED, "the text")))
        for number in range(1, len(whole["nodes"])):
            for change in ({"type_key": "relay.Match"}, {"type_key": "Array", "data": [9999]}, {}):
                nodes = [*whole["nodes"]]
                nodes[number] = change
                path = write(tmp_path / "net.json", json.dumps({**whole, "nodes": nodes}))
                try:
                    load_model(path)
                except VTAError as caught:
                    assert "\n" not in str(caught)

    def test_control_flow(self, tmp_path: Path) -> None:
        whole = json.loads(relay_files.json_graph(read_text(FUSED, "the text")))
        number = next(i for i, n in enumerate(whole["nodes"]) if n["type_key"] == "relay.Tuple")
        whole["nodes"][number]["type_key"] = "relay.If"
        assert error(tmp_path, json.dumps(whole), "net.json") == (
            f'model file "net.json" has a node "relay.If" (node {number}); calls, functions, '
            "tuples and constants are taken; simplify the module before it is saved"
        )


class TestArchives:
    def test_text_and_parameters(self, tmp_path: Path) -> None:
        weight = floats(4, 3, 3, 3)
        members = {
            "./metadata.json": b"{}",
            "./src/relay.txt": SMALL.encode(),
            "./parameters/default.params": relay_files.params({"w": weight}),
            "./codegen/host/src/default_lib0.c": b"int x;",
        }
        path = write(tmp_path / "net.tar", relay_files.archive(members))
        mod = load_model(path)
        (held,) = [a for b in mod["main"].body.blocks[0].bindings for a in b.value.args[1:]]
        np.testing.assert_array_equal(held.value.numpy(), weight)

    @pytest.mark.parametrize("name", ["../../net.relay", "/etc/net.relay", "src/../../x.params"])
    def test_members_that_leave_it(self, tmp_path: Path, name: str) -> None:
        path = write(tmp_path / "net.tar", relay_files.archive({name: SMALL.encode()}))
        with pytest.raises(VTAError) as caught:
            load_model(path)
        assert str(caught.value) == (
            f'model file "{path}" has the member "{name}", which leads out of the archive; members '
            "are files and folders inside of it; export the model again, from a source you trust"
        )

    def test_one_without_a_module(self, tmp_path: Path) -> None:
        path = write(tmp_path / "net.tar", relay_files.archive({"a.txt": b""}))
        with pytest.raises(VTAError, match="holds no Relay text"):
            load_model(path)

    def test_truncated_ones(self, tmp_path: Path) -> None:
        whole = relay_files.archive({"src/relay.txt": SMALL.encode()})
        for cut in (0, 100, 600):
            with pytest.raises(VTAError) as caught:
                load_model(write(tmp_path / "net.tar", whole[:cut]))
            assert "\n" not in str(caught.value)
