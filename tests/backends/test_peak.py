"""Measured bounds: what the bursts are made of, and that a good kernel stays below them."""

import re
from dataclasses import replace

import pytest
from cpu_programs import matmul_tile

from stridesmith.backends import devices, host, peak
from stridesmith.backends.kernel import compile_lowered, load_artifact
from stridesmith.backends.llvm.compile import compile_assembly
from stridesmith.errors import DeviceMissing
from stridesmith.ir.isa import DOT_PRODUCTS, PAIRS, dot_product

HOST = replace(host.host_cpu(), threads=1)


@pytest.fixture(autouse=True)
def short_bursts(monkeypatch):
    monkeypatch.setattr(peak, "BURST_SECONDS", 0.01)
    monkeypatch.setattr(peak, "_STREAM_BYTES", (1 << 20, 8 << 20))


@pytest.mark.skipif(HOST.isa not in ("avx2", "avx512"), reason="compares x86 instructions")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_burst_is_fmas_in_registers(dtype):
    """The inner loop holds every FMA of every chain, and touches no memory."""
    text = compile_assembly(peak._burst_text(dtype, HOST.vector_lanes(dtype), 12), HOST)
    loop = max(re.split(r"^\.?L\w+:", text, flags=re.M), key=lambda block: block.count("vfmadd"))
    loop = loop[: loop.rindex("vfmadd")]
    assert len(re.findall("vfmadd", loop)) == 12 * peak._UNROLL - 1
    assert "(%" not in loop


def test_peak_is_above_a_good_kernel(monkeypatch):
    """A matmul tile from the first-level cache does not far exceed the peak; wide margins for a busy machine."""
    monkeypatch.setattr(peak, "BURST_SECONDS", 0.05)
    lanes = HOST.vector_lanes("float32")
    program = matmul_tile(6, 2 * lanes, 128, lanes, kind="serial")
    bound = load_artifact(compile_lowered(program, HOST)).bind()
    for index in range(3):
        bound.write(index, bound.read(index) * 0)
    flops = 2 * 24 * 8 * lanes * 128
    before = peak.measure_peak(HOST)
    reached = flops / min(bound.time(int(2e8 / flops)) for _ in range(60)) * 1e-9
    assert reached <= max(before, peak.measure_peak(HOST)) * 1.5


def test_bursts_go_on_while_they_improve():
    """Six in a row without a better one end the measurement, thirty in any case."""
    values = iter([1.0, 1.0, 1.0, 5.0, 5.01, 4.9, 5.0, 4.0, 5.0, 99.0])
    assert peak._best(lambda: next(values)) == 5.01
    rising = iter(range(1, 100))
    assert peak._best(lambda: float(next(rising))) == peak.MAX_BURSTS


def test_double_precision_has_half_the_peak():
    """A register holds half as many float64, so that the figure is about half; wide margins for a busy machine."""
    ratio = peak.measure_peak(HOST, "float64") / peak.measure_peak(HOST)
    assert 0.2 < ratio < 1.0


def test_bandwidth_is_positive_and_repeats():
    """Two measurements of the same memory agree in their order of magnitude."""
    first, second = (peak.measure_bandwidth(HOST) for _ in range(2))
    assert first > 1e8 and 0.1 < first / second < 10


def test_caches_are_faster_the_smaller_they_are():
    """Each holds more than the one before; the first is faster than memory, and no cache is far slower."""
    target = host.host_cpu()
    found, memory = peak.measure_caches(target), peak.measure_bandwidth(target)
    sizes, rates = zip(*found, strict=True)
    assert sorted(set(sizes)) == list(sizes) and sizes[0] == target.l1_bytes * target.threads
    assert rates[0] > memory and min(rates) > 0


@pytest.mark.parametrize("nbytes", [4096, 5000, 1 << 20])
def test_what_stays_in_a_cache_is_a_power_of_two_of_groups(nbytes):
    """Its end is found by a mask; it takes more than half of the bytes that it may take, and is all ones."""
    resident = peak._Resident(host.host_cpu(), nbytes)
    assert nbytes / 2 < resident._bytes <= nbytes and resident._groups & (resident._groups - 1) == 0
    assert resident.run(1) > 0
    rows = resident._rounds * 4 * resident._ways * resident._lanes
    assert resident._results[0] == pytest.approx(min(rows / 4 / resident._lanes, 2.0**24 * resident._ways), rel=0.01)


def test_a_cpu_device_of_opencl_is_measured_as_the_cpu():
    """PoCL runs on the host's cores, so its peak is theirs."""
    pocl = replace(HOST, kind="opencl", units=1, is_cpu_device=True)
    assert peak.measure_peak(pocl) > 0


def test_other_devices_are_measured_by_kernels():
    """A device that is not the host's CPU runs the same bursts as programs; here an OpenCL device stands in for it."""
    try:
        target = devices.discover("opencl")
    except DeviceMissing as error:
        pytest.skip(str(error))
    other = replace(target, is_cpu_device=False, max_work_group=min(target.max_work_group, 64))
    assert 1 < peak.measure_peak(other) < 1e6
    assert 1e8 < peak.measure_bandwidth(other) < 1e14


@pytest.mark.skipif(HOST.isa not in ("sse2", "avx", "avx2", "avx512"), reason="reads x86 instructions")
def test_a_burst_without_fused_multiply_adds_is_products_and_sums():
    """A CPU that has none multiplies and adds vectors in registers, and calls no function for it."""
    plain = replace(HOST, cpu="x86-64", features="", vector_bits=128)
    text = compile_assembly(peak._burst_text("float32", 4, 12), plain)
    assert len(re.findall(r"\tmulps\b", text)) == 12 * peak._UNROLL
    assert len(re.findall(r"\taddps\b", text)) >= 12 * peak._UNROLL
    assert "call" not in text


def test_a_burst_of_bfloat16_is_dot_products_of_pairs() -> None:
    """Where the CPU has them they are what the burst consists of, and nothing else multiplies."""
    row = next(row for row in DOT_PRODUCTS if row.signs == (PAIRS,))
    text = peak._burst_text("float32", 16, 24, row)
    assert text.count("call <16 x float> @llvm.x86.avx512bf16.dpbf16ps.512") == 4 * 24 and "fmul" not in text
    if dot_product(PAIRS, HOST.cpu_features) is not None:
        assert compile_assembly(text, HOST).count("vdpbf16ps") == 4 * 24
        assert peak.measure_peak(HOST, "bfloat16") > 1


@pytest.mark.skipif(HOST.isa not in ("avx2", "avx512"), reason="reads x86 instructions")
def test_a_burst_of_bytes_is_dot_products() -> None:
    """The peak of bytes is that of the instruction that adds most of their products, in registers alone."""
    row = peak.dot_of("int8", HOST)
    assert row is not None
    lanes = HOST.vector_lanes("int32")
    text = compile_assembly(peak._burst_text("int32", lanes, 12, row), HOST)
    assert text.count(row.name) == 4 * 12
    assert peak.measure_peak(HOST, "int8") > 1
    assert peak.measure_peak(HOST, "int32") > 1
