#!/usr/bin/env python3
"""A bundle of programs that pretend: each is this file under another name, says what the real one would say, and computes nothing.

make(folder) lays it out, with a fake of nvidia-smi, of compute-sanitizer and of a Python that has torch. What goes wrong stands in
files of the folder `faults`, by program: `hangs`, `fails` (all tests but one pass) or `crashes`."""

import json
import os
import shutil
import sys
import time
from pathlib import Path

PROGRAMS = ("tessera", "resnet50_cifar10", "resnet50_bench", "transformer_bench", "step_overhead_bench", "cuda_kernels_test",
            "training_on_cuda_test")
TESTS = [f"All/CudaKernels.AgreeWithTheReference/operator_{number}" for number in range(40)] + ["Plans.AreEqual"]
RUN = """#!/bin/sh
here=$(cd "$(dirname "$0")" && pwd)
program=$1
shift
case $program in */*) exec "$program" "$@" ;; esac
exec "$here/bin/$program" "$@"
"""


def make(folder):
    """Returns the bundle and a folder for PATH."""
    bundle, path = folder / "bundle", folder / "path"
    for made in (bundle / "bin", bundle / "faults", bundle / "python", path):
        made.mkdir(parents=True)
    places = [bundle / "bin" / name for name in PROGRAMS] + [path / name for name in ("nvidia-smi", "compute-sanitizer", "torch-python")]
    for place in places:
        shutil.copy(__file__, place)
        place.chmod(0o755)
    (bundle / "run").write_text(RUN)
    (bundle / "run").chmod(0o755)
    (bundle / "cuda_tests").write_text("cuda_kernels_test\ntraining_on_cuda_test\n")
    (bundle / "commit").write_text("0123456789ab\n")
    return bundle, path


def option(name, default=""):
    return sys.argv[sys.argv.index(name) + 1] if name in sys.argv else default


def has_fault(what):
    here = Path(sys.argv[0]).resolve()
    file = here.parent.parent / "faults" / here.name
    return file.exists() and file.read_text().strip() == what


def serve(unit, value, bytes_now):
    print(json.dumps({"ready": True, "unit": unit, "about": "made up", "bytes": bytes_now}), flush=True)
    for _ in sys.stdin:
        print(json.dumps({"value": value, "bytes": bytes_now}), flush=True)


def test_program():
    if "--gtest_list_tests" in sys.argv:
        print("Running main() from gtest_main.cc")
        suite = ""
        for name in TESTS:
            if not name.startswith(suite) or not suite:
                suite = name.split(".")[0] + "."
                print(suite)
            print(f"  {name.removeprefix(suite)}  # GetParam() = 7")
        return 0
    if "--help" in sys.argv:
        return 0
    chosen = next((word.split("=")[1].split(":") for word in sys.argv if word.startswith("--gtest_filter=")), TESTS)
    shards, shard = int(os.environ.get("GTEST_TOTAL_SHARDS", 1)), int(os.environ.get("GTEST_SHARD_INDEX", 0))
    num_failed = 0
    for number, name in enumerate(chosen):
        if number % shards != shard:
            continue
        print(f"[ RUN      ] {name}", flush=True)
        if number == 3 and has_fault("crashes"):
            os.abort()
        if number == 3 and has_fault("hangs"):
            while True:
                time.sleep(1000)
        is_wrong = number == 3 and has_fault("fails")
        num_failed += is_wrong
        print(f"[  FAILED  ] {name}, where GetParam() = 7 (1 ms)" if is_wrong else f"[       OK ] {name} (1 ms)")
    return 1 if num_failed else 0


def loss(epoch, step, device):
    return 2.0 / (4 * epoch + step) + (1e-6 if device == "cpu" else 0)


def cifar10():
    device = option("--device", "cpu")
    if "--make_data" in sys.argv:
        folder = Path(option("--make_data"))
        folder.mkdir(parents=True)
        (folder / "test_batch.bin").write_text("images")
    elif "--evaluate" in sys.argv:
        print(f"{option('--evaluate')}: accuracy 0.9100, loss 0.2")
    else:
        resumed = option("--resume")
        first = int(Path(resumed).stem.rpartition("-")[2].split("_")[0]) + 1 if resumed else 1
        steps = int(option("--steps", "31"))
        for epoch in range(first, int(option("--epochs", "5")) + 1):
            for step in range(1, steps + 1):
                print(f"epoch: {epoch} step: {step}, loss is {loss(epoch, step, device)}")
            print(f"epoch {epoch}/5: loss 0.1000, 4000.0 images/s, 1.6 s", flush=True)
            if "--checkpoint_dir" in sys.argv:
                (Path(option("--checkpoint_dir")) / f"resnet50-{epoch}_{steps}.ckpt").write_text("values")
    return 0


def bench(name):
    if has_fault("hangs"):
        time.sleep(1000)
    if option("--device") == "cuda:99":
        return error(name, "cuda: there is no device cuda:99; 1 devices are here")
    if os.environ.get("CUDA_VISIBLE_DEVICES") == "":
        return error(name, "cuda: the driver finds no device it can use (CUDA_ERROR_NO_DEVICE)")
    if name == "resnet50_bench" and option("--batch_size") == "128" and option("--image_size") == "224":
        return error(name, "cuda: the device has no more memory for an arena of 8.0 GiB, of which 0.5 GiB are free: "
                           "a smaller batch takes less")
    sizes = {"arena": 600 << 20, "plan": 600 << 20}
    if name == "step_overhead_bench":
        serve("us", 1.5, {})
    else:
        serve("tokens/s" if name == "transformer_bench" else "images/s", 53000.0, sizes)
    return 0


def error(name, text):
    print(f"{name}: {text}", file=sys.stderr)
    return 1


def tessera():
    if "info" in sys.argv:
        print("version       1\ngpus          NVIDIA Fake (sm_90, 80 GiB)")
        return 0
    if option("--device") == "cuda":
        return error("tessera", "rank 1: cuda: there is no device cuda:1; 1 devices are here")
    if os.environ.get("TESSERA_LOG_LEVEL") == "info" and os.environ.get("TESSERA_CUDA_SHARED_MEMORY") != "0":
        print("what ranks on GPU-0 tell each other goes through its memory (device memory 1)", flush=True)
    command = sys.argv[sys.argv.index("-n") + 2:] if "-n" in sys.argv else ["true"]
    os.execvp(command[0], command)


def torch_python():
    if "-c" in sys.argv:
        print(json.dumps({"torch": "2.11", "cuda": "13.0", "cudnn": 91900, "device": "Fake"}))
    elif "python_side.py" in " ".join(sys.argv):
        for step in range(1, 11):
            print(f"epoch: 1 step: {step}, loss is {loss(1, step, sys.argv[-1])}")
    elif "hold" in sys.argv:
        print(json.dumps({"ready": True}), flush=True)
        sys.stdin.read()
    elif "--serve" in sys.argv:
        values = {"eager": 5000.0, "graph": 34000.0, "limit": 100000.0, "max-autotune": 60000.0}
        if option("--serve") == "default":
            return error("torch_gpu", "it does not compile")
        is_tiny = "tiny" in sys.argv
        serve("us" if is_tiny else "images/s", 9.0 if is_tiny else values.get(option("--serve"), 25000.0), {"peak": 1000 << 20})
    return 0


def compute_sanitizer():
    tool = option("--tool")
    print("========= COMPUTE-SANITIZER")
    if tool == "initcheck":
        print("========= Uninitialized __global__ memory read of size 4 bytes\n=========     at tessera_reduce+0x120")
        print("========= ERROR SUMMARY: 1 error")
        return int(option("--error-exitcode"))
    summary = "RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)" if tool == "racecheck" else "ERROR SUMMARY: 0 errors"
    print("========= " + summary)
    return 0


def nvidia_smi():
    print("1000" if any("memory.used" in word for word in sys.argv) else "NVIDIA Fake, 580.1, 81559 MiB")
    return 0


def main():
    name = Path(sys.argv[0]).name
    if name.endswith("_test"):
        return test_program()
    roles = {"tessera": tessera, "resnet50_cifar10": cifar10, "nvidia-smi": nvidia_smi, "torch-python": torch_python,
             "compute-sanitizer": compute_sanitizer}
    return roles[name]() if name in roles else bench(name)


if __name__ == "__main__":
    sys.exit(main())
