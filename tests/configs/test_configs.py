"""The shipped TOML files, and what users write themselves."""

from __future__ import annotations

import pytest

from stridesmith import configs
from stridesmith.errors import ConfigProblem

SUITES = [("resnet50", 23), ("mobilenetv2", 17), ("ragged", 10), ("transformer", 10)]


@pytest.mark.parametrize(("name", "count"), SUITES)
def test_shipped_suites_load(name, count):
    """Every row of a shipped suite is a workload of the library, under a name of its own."""
    suite = configs.suite(name)
    assert len(suite.entries) == count
    assert len({e.name for e in suite.entries}) == count


def test_suites_name_constants():
    """`constant` in a row sets the interface of the inputs; without it, the row says nothing."""
    rows = {e.name: e for e in configs.suite("transformer").entries}
    assert rows["qkv"].interface == {"a": "fixed", "b": "constant"}
    assert rows["square512"].interface == {}
    assert {e.name: e.count for e in configs.suite("resnet50").entries}["c4_1x1b"] == 6


def test_presets_and_targets_load():
    """Every shipped preset and target description validates."""
    assert configs.preset("standard").trials == 256
    assert all(configs.preset(name) for name in configs.presets())
    assert {configs.target(name).kind for name in configs.targets()} == {"cpu", "opencl"}


def write(tmp_path, text):
    path = tmp_path / "mine.toml"
    path.write_text(text)
    return path


def test_a_users_list(tmp_path):
    """A user's file gives workloads in its order, each with its interface, and its own budget."""
    text = '[tune]\ntrials = 5\n[[matmul]]\nname = "a"\nm = 3\nconstant = ["b"]\nfree = ["c"]\n[[conv2d]]\nname = "b"\n'
    suite = configs.config(write(tmp_path, text))
    assert [e.name for e in suite.entries] == ["a", "b"]
    assert suite.entries[0].work.shape["m"] == 3
    assert suite.entries[0].interface == {"a": "fixed", "b": "constant", "c": "free"}
    assert {e.budget.trials for e in suite.entries} == {5}
    assert [e.name for e in suite.only("b").entries] == ["b"]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "names no workload"),
        ("[[matmul]\n", "not valid TOML"),
        ('[[matmull]]\nname = "a"', "did you mean 'matmul'"),
        ('[matmul]\nname = "a"', r"'matmul' must be written as \[\[...\]\] tables"),
        ("[[matmul]]\nm = 3", "name: Field required"),
        ('[[matmul]]\nname = "a"\nmm = 3', "entry 1, 'a' of 'matmul': .*no parameter 'mm' .did you mean 'm'"),
        ('[[matmul]]\nname = "a"\nm = 0', "takes m from 1"),
        ('[[matmul]]\nname = "a"\nm = 1e3', "m"),
        (f'[[matmul]]\nname = "a"\nm = 1{"0" * 40}', "m"),
        ('[[matmul]]\nname = "a"\nconstant = ["z"]', "no argument 'z'"),
        ('[[matmul]]\nname = "a"\n[[matmul]]\nname = "a"', "occurs twice"),
        ('[[matmul]]\nname = "\\u001b[31m"', "name"),
        ('[tune]\ntrial = 3\n[[matmul]]\nname = "a"', "unknown key .did you mean 'trials'"),
        ('[tune]\nseconds = nan\n[[matmul]]\nname = "a"', "seconds"),
        ('[tune]\nseconds = "5"\n[[matmul]]\nname = "a"', "seconds: Input should be a valid number"),
        ('[tune]\nstop_at = true\n[[matmul]]\nname = "a"', "stop_at: Input should be a valid number"),
        ('[[matmul]]\nname = "a"\nm = "１２８"', "takes a whole number for m, but got m='１２８'"),
        ("a = " + "[" * 100_000, "not valid TOML"),
    ],
)
def test_mistakes_are_named(tmp_path, text, sentence):
    """A wrong file is refused with its place and the nearest right name, and nothing hostile gets through."""
    with pytest.raises(ConfigProblem, match=sentence) as caught:
        configs.config(write(tmp_path, text))
    assert "\x1b" not in str(caught.value)
    assert len(str(caught.value)) < 1500


def test_missing_and_oversized_files(tmp_path):
    """A file that is not there, or too large to be a list, is named."""
    with pytest.raises(ConfigProblem, match="cannot read the config"):
        configs.config(tmp_path / "none.toml")
    with pytest.raises(ConfigProblem, match="larger than 1 MiB"):
        configs.config(write(tmp_path, "#" * (2**20 + 1)))


def test_unknown_names_have_neighbours():
    """A near miss of a suite, preset or target says which was meant."""
    with pytest.raises(ConfigProblem, match="did you mean 'resnet50'"):
        configs.suite("resnet")
    with pytest.raises(ConfigProblem, match="did you mean 'quick'"):
        configs.preset("quik")
    with pytest.raises(ConfigProblem, match="did you mean 'cpu-avx2'"):
        configs.target("cpu-avx")
