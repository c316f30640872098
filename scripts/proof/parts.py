"""The parts of a proof, in an order of worth."""

import random
import re
import shutil
import time

from proof import rows_of_benchmark
from proof.machine import Cut
from proof.record import Row, judged
from proof.schedule import Part, Step

# Losses of float32 on the CPU and on a GPU: rounding differs, and what differs grows from step to step.
LOSS_TOLERANCE = 2e-3
# compute-sanitizer's exit code where it has found something.
FOUND = 86


def info_steps(machine):
    def gpu(machine, until):
        return [Row("GPU, driver, memory", "; ".join(machine.gpus), "told"), Row("processor's cores", str(machine.cores), "told")]

    def tessera(machine, until):
        output = machine.must(machine.program("tessera", "info"), until)
        gpus = (re.search(r"^gpus\s+(.*)$", output, re.M) or ["", ""])[1].strip()
        return [judged("tessera info lists the GPU", gpus[:80], bool(gpus) and not gpus.startswith("none"), "a GPU"),
                Row("commit of the bundle", (machine.bundle / "commit").read_text().strip(), "told")]

    def torch(machine, until):
        facts = machine.torch_facts
        if not facts:
            return [Row("torch", "", "skipped",
                        detail=f"{machine.torch_python} has none that sees a GPU: name one in TESSERA_TORCH_PYTHON or --torch")]
        return [Row("torch, CUDA, cuDNN", f"{facts['torch']}, {facts['cuda']}, {facts['cudnn']}", "told")]

    return [Step("gpu", 60, gpu), Step("tessera", 60, tessera), Step("torch", 180, torch)]


def count_cases(output):
    """The names of cases that passed, failed, were skipped, and did not end, as GoogleTest prints them one by one."""
    names = {kind: re.findall(rf"^\[{re.escape(mark)}\] (\S+?),?(?= |$).*\(\d+ ms\)$", output, re.M)
             for kind, mark in (("passed", "       OK "), ("failed", "  FAILED  "), ("skipped", "  SKIPPED "))}
    ended = set().union(*names.values())
    still_open = [name for name in re.findall(r"^\[ RUN      \] (\S+)$", output, re.M) if name not in ended]
    return names["passed"], names["failed"], names["skipped"], still_open


LONGEST_TEST = "cuda_kernels_test"  # every operator
PLANS_TEST = "plans_on_cuda_test"  # says how many calls went through the device's memory


def suite_steps(machine):
    def step(program):
        def run(machine, until):
            listed = len(re.findall(r"^  \S", machine.must(machine.program(program, "--gtest_list_tests"), until), re.M))
            shards = max(1, min(machine.cores - 2, 12, listed // 4))
            # GoogleTest deals the cases to as many processes as it is told; compiling kernels takes a core for each.
            done = machine.run_all([["env", f"GTEST_TOTAL_SHARDS={shards}", f"GTEST_SHARD_INDEX={i}", *machine.program(program)]
                                    for i in range(shards)], until)
            output = "\n".join(one.output for one in done)
            if skipped := re.search(r"^skipped: all of this program: (.*)$", output, re.M):
                return [Row(program, "", "skipped", detail=skipped[1])]
            passed, failed, left_out, open_cases = count_cases(output)
            crashed = [f"{one.code}: {one.last_line()}" for one in done if not one.is_cut and one.code not in (0, 1)]
            figure = f"{len(passed):,} of {listed:,} passed"
            what = f"{len(left_out)} skipped, {shards} processes"
            if failed or crashed or any(one.code == 1 and not one.is_cut for one in done):
                names = failed + [f"{name} did not end" for name in open_cases if crashed]
                return [Row(program, figure, "failed", "none failed", ", ".join(names[:6] + crashed[:2]) or done[0].last_line())]
            if any(one.is_cut for one in done):
                return [Row(program, figure, "cut", "none failed", f"none failed; {what}")]
            rows = [judged(program, figure, len(passed) + len(left_out) == listed, "none failed", what)]
            if program == PLANS_TEST:
                calls = sum(map(int, re.findall(r"^(\d+) calls of ranks through the memory of cuda:0$", output, re.M)))
                rows.append(judged("plans on 2 and 4 ranks of one device tell each other through its memory", f"{calls:,} calls", calls > 0,
                                   "> 0"))
            return rows
        return Step(program, 240, run)

    # The longest last: it takes whatever time there is.
    return [step(program) for program in sorted((machine.bundle / "cuda_tests").read_text().split(), key=lambda name: name == LONGEST_TEST)]


def losses_of(output):
    """{(epoch, step): loss} of what --print_loss prints."""
    lines = re.findall(r"^epoch: (\d+) step: (\d+), loss is (\S+)$", output, re.M)
    return {(int(epoch), int(step)): float(loss) for epoch, step, loss in lines}


def deviation(ours, expected):
    """The largest one, relative to losses above 1. Throws RuntimeError where there are other steps."""
    if not expected or ours.keys() != expected.keys():
        raise RuntimeError(f"losses of the steps {sorted(ours)} where those of {sorted(expected)} were wanted")
    return max(abs(ours[step] - expected[step]) / max(abs(expected[step]), 1) for step in expected)


def near(point, worst, detail=""):
    """A row about losses that must be close to others."""
    return judged(point, f"{worst:.1e} apart", worst <= LOSS_TOLERANCE, f"<= {LOSS_TOLERANCE:g}", detail)


def data_of(machine, until, train, test):
    """A folder with made images."""
    folder = machine.work / f"data-{train}-{test}"
    if not (folder / "test_batch.bin").exists():
        machine.must(machine.program("resnet50_cifar10", "--make_data", folder, "--train_records", train, "--test_records", test), until)
    return folder


def training(machine, data, device, *options):
    """Of ResNet-50 in float32, the same everywhere; products of float32 are float32's."""
    return machine.program("resnet50_cifar10", "--data_path", data, "--device", device, "--kernels", "fixed", "--no_augment",
                           "--no_progress", "--print_loss", 1, *options)


NO_TF32 = {"TESSERA_CUDA_TF32": "0"}


def losses_steps(machine):
    def step(size, batch):
        def run(machine, until):
            data = data_of(machine, until, 640, 64)
            options = ("--image_size", size, "--batch_size", batch, "--epochs", 1, "--steps", 10, "--learning_rate", 0.01)
            gpu, cpu = (losses_of(machine.must(training(machine, data, device, *options), until, NO_TF32)) for device in ("cuda:0", "cpu"))
            if len(gpu) != 10:
                raise RuntimeError(f"{len(gpu)} losses where ten were wanted")
            worst = deviation(gpu, cpu)
            return [near(f"ten losses of ResNet-50 {size}x{size} batch {batch} float32, the CPU's", worst,
                         f"the last: {gpu[1, 10]:.6g}, {cpu[1, 10]:.6g} on the CPU")]
        return Step(f"{size}x{size}", 120, run)

    return [step(32, 64), step(224, 8)]


def newest(folder, epoch=None):
    """The checkpoint of an epoch, or the newest."""
    found = {}
    for path in folder.glob("*.ckpt"):
        if numbers := re.search(r"-(\d+)_(\d+)\.ckpt$", path.name):
            found[int(numbers[1]), int(numbers[2])] = path
    if epoch is not None:
        found = {key: path for key, path in found.items() if key[0] == epoch}
    if not found:
        raise RuntimeError(f"no checkpoint in {folder}")
    return found[max(found)]


def empty_folder(machine, name):
    folder = machine.work / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    return folder


def demo_steps(machine):
    def demo(machine, until):
        data = data_of(machine, until, 2000, 500)
        folder = empty_folder(machine, "demo")
        begin = time.monotonic()
        machine.must(training(machine, data, "cuda:0", "--epochs", 5, "--checkpoint_dir", folder), until)
        seconds = time.monotonic() - begin
        rows = []
        for device in ("cpu", "cuda:0"):
            options = ("--data_path", data, "--device", device, "--evaluate", newest(folder))
            output = machine.must(machine.program("resnet50_cifar10", *options), until)
            accuracy = float(re.search(r"accuracy ([\d.]+)", output)[1])
            rows.append(judged(f"the demo trains on cuda:0, evaluated on {device}", f"accuracy {accuracy:.4f}", accuracy >= 0.7, ">= 0.7",
                               f"trained in {seconds:.1f} s, all included"))
        return rows

    def checkpoints(machine, until):
        data = data_of(machine, until, 640, 64)
        there, here, back = (empty_folder(machine, f"checkpoints-{name}") for name in ("there", "here", "back"))
        options = ("--batch_size", 32, "--steps", 4, "--learning_rate", 0.01, "--epochs")

        def losses(device, folder, *more):
            # The rate depends on the number of epochs: whoever goes on asks for as many.
            return losses_of(machine.must(training(machine, data, device, *options, 3, "--checkpoint_dir", folder, *more), until, NO_TF32))

        whole = losses("cuda:0", there)
        cpu = losses("cpu", here, "--resume", newest(there, 1))
        gpu = losses("cuda:0", back, "--resume", newest(here, 2))
        rows = []
        for name, found, first in (("on the CPU", cpu, 2), ("and back on the GPU", gpu, 3)):
            worst = deviation(found, {step: loss for step, loss in whole.items() if step[0] >= first})
            rows.append(near(f"a GPU's checkpoint goes on {name}", worst, "from the losses of the GPU without a break"))
        return rows

    return [Step("demo", 90, demo), Step("checkpoints", 90, checkpoints)]


def bench_steps(machine):
    return rows_of_benchmark.steps(rows_of_benchmark.TRAININGS + rows_of_benchmark.others(machine))


def overhead_steps(machine):
    return rows_of_benchmark.steps(rows_of_benchmark.OVERHEAD)


def headline_steps(machine):
    return rows_of_benchmark.steps(rows_of_benchmark.HEADLINE)


def names_of_tests(listing):
    """Of --gtest_list_tests."""
    names, suite = [], ""
    for line in listing.splitlines():
        if found := re.match(r"^(\S+\.)(\s|$)", line):
            suite = found[1]
        elif found := re.match(r"^  (\S+)", line):
            names.append(suite + found[1])
    return names


def errors_found(output):
    """(how many, kernels in which) of what compute-sanitizer prints; None where it did not come to its end."""
    sums = re.findall(r"^=+ (?:ERROR|RACECHECK) SUMMARY: (\d+)", output, re.M)
    return (sum(map(int, sums)), sorted(set(re.findall(r"^=+\s+at (?:.* in )?([\w:<>]+)[(+ ]", output, re.M)))) if sums else None


def sanitizer_steps(machine):
    def step(tool):
        def run(machine, until):
            if machine.sanitizer is None:
                return [Row(f"{tool} of the operators", "", "skipped",
                            detail="compute-sanitizer is neither on the path nor below CUDA_HOME")]
            names = names_of_tests(machine.must(machine.program(LONGEST_TEST, "--gtest_list_tests"), until))
            random.Random((machine.bundle / "commit").read_text()).shuffle(names)
            num_run, errors, kernels, chunk = 0, 0, set(), 4
            begin = time.monotonic()
            while num_run < len(names):
                some = names[num_run:num_run + chunk]
                done = machine.run([machine.sanitizer, "--tool", tool, "--target-processes", "all", "--error-exitcode", FOUND,
                                    "--print-limit", 20, *machine.program(LONGEST_TEST, "--gtest_filter=" + ":".join(some))], until)
                if done.is_cut:
                    break
                found = errors_found(done.output)
                if "Device not supported" in done.output:
                    return [Row(f"{tool} of the operators", "", "skipped", detail="compute-sanitizer: Device not supported")]
                if found is None or done.code not in (0, FOUND):
                    raise RuntimeError(f"{tool}: code {done.code} among {some[0]} and {len(some) - 1} more: {done.last_line()}")
                num_run += len(some)
                errors += found[0]
                kernels.update(found[1])
                # As many as would take a third of the time that is left, at the pace so far.
                pace = (time.monotonic() - begin) / num_run
                left = until - time.monotonic()
                chunk = max(1, min(int(left / 3 / pace), 200))
                if left < 1.5 * pace * chunk:
                    break
            if num_run == 0:
                raise Cut(f"{tool} did not end with the first {chunk} tests")
            return [judged(f"{tool} of the operators", f"{errors} errors", errors == 0, "0 errors",
                           f"in {num_run:,} of {len(names):,} tests" + "".join(f"; {name}" for name in sorted(kernels)[:4]))]
        return Step(tool, 40, run)

    return [step(tool) for tool in ("memcheck", "racecheck", "initcheck")]


def refused(point, done, patterns):
    """A row about a program that must end with an exit code of its own and a line that says all this."""
    if done.is_cut:
        raise Cut(f"it did not end in {done.seconds:.0f} s")
    missing = [pattern for pattern in patterns if not re.search(pattern, done.output)]
    return judged(point, f"code {done.code}", 0 < done.code < 126 and not missing, "a clear error",
                  (f"nothing says {' nor '.join(missing)}: " if missing else "") + done.last_line())


SMALL_STEP = ("--image_size", 32, "--batch_size", 64, "--warmup_steps", 1)


def errors_steps(machine):
    def memory(machine, until):
        point = "out of device memory, the rest taken by another process"
        if not machine.torch_facts:
            return [Row(point, "", "skipped", detail="no torch that could take it")]
        with machine.beside(machine.torch("hold", "--leave", 1024), until):
            done = machine.run(machine.program("resnet50_bench", "--device", "cuda:0", "--image_size", 224, "--batch_size", 128), until)
        return [refused(point, done, [r"\d [KMG]?i?B.*\d [KMG]?i?B", "free", "batch|recompute|memory_limit"])]

    def absent(machine, until):
        number_99 = machine.run(machine.program("resnet50_bench", "--device", "cuda:99", *SMALL_STEP), until)
        hidden = machine.run(machine.program("resnet50_bench", "--device", "cuda:0", *SMALL_STEP), until, {"CUDA_VISIBLE_DEVICES": ""})
        return [refused("a device that is not there", number_99, ["cuda:99"]),
                refused("a driver that shows no device", hidden, ["driver|device"])]

    def shared(machine, until):
        data = data_of(machine, until, 640, 64)
        command = training(machine, data, "cuda:0", "--batch_size", 32, "--epochs", 1, "--steps", 5, "--learning_rate", 0.01)
        # Which kernels a library takes is not left to what it measures beside another process.
        environment = NO_TF32 | {"TESSERA_CUDA_MEASURE": "0"}
        alone = losses_of(machine.must(command, until, environment))
        both = machine.run_all([command, command], until, environment)
        if any(one.is_cut for one in both):
            raise Cut("two processes on one device did not end")
        equal = [losses_of(one.output) == alone and len(alone) == 5 for one in both]
        return [judged("two processes on one device: the losses of one alone, bit by bit", f"{sum(equal)} of 2", all(equal), "2 of 2",
                       "" if all(equal) else next(one for one, is_equal in zip(both, equal) if not is_equal).last_line())]

    def ranks(machine, until):
        data = data_of(machine, until, 640, 64)
        options = ("--batch_size", 32, "--epochs", 1, "--steps", 5, "--learning_rate", 0.01)
        alone = losses_of(machine.must(training(machine, data, "cuda:0", *options), until, NO_TF32))
        launcher = machine.program("tessera", "run", "-n")
        two = machine.must([*launcher, "2", *training(machine, data, "cuda:0", *options)], until, NO_TF32)
        worst = deviation(losses_of(two), alone)
        rows = [near("two ranks on one device, which they name", worst)]
        number = len(machine.gpus) + 1
        done = machine.run([*launcher, str(number), *training(machine, data, "cuda", *options)], until)
        return rows + [refused(f"{number} ranks with a device each, {number - 1} there", done, [f"cuda:{number - 1}"])]

    def within(machine, until):
        data = data_of(machine, until, 640, 64)
        environment = NO_TF32 | {"TESSERA_CUDA_MEASURE": "0", "TESSERA_LOG_LEVEL": "info"}
        rows = []
        for number in (2, 4):
            command = [*machine.program("tessera", "run", "-n"), str(number),
                       *training(machine, data, "cuda:0", "--batch_size", 32, "--epochs", 1, "--steps", 5, "--learning_rate", 0.01)]
            there = machine.must(command, until, environment)
            by_host = losses_of(machine.must(command, until, environment | {"TESSERA_CUDA_SHARED_MEMORY": "0"}))
            is_there = "tell each other goes through its memory" in there
            is_equal = losses_of(there) == by_host and len(by_host) == 5
            rows.append(judged(f"{number} processes on one device, through its memory: the losses of the host's memory, bit by bit",
                               "equal" if is_equal else "not equal", is_there and is_equal, "equal",
                               "" if is_there else "they went through the host's memory, too"))
        return rows

    return [Step("memory", 90, memory), Step("absent", 60, absent), Step("shared", 90, shared), Step("ranks", 90, ranks),
            Step("within", 120, within)]


def python_steps(machine):
    def run(machine, until):
        point = "the package tessera trains on cuda:0 as on the CPU"
        if not (machine.bundle / "python").is_dir():
            return [Row(point, "", "skipped",
                        detail="the bundle has no Python package: build it (-DTESSERA_PYTHON=ON) before it is packed")]
        python = shutil.which(machine.torch_python) or machine.torch_python
        losses = []
        for device in ("cuda:0", "cpu"):
            done = machine.run(machine.program(python, "-B", machine.root / "scripts" / "proof" / "python_side.py", device), until, NO_TF32)
            if done.is_cut:
                raise Cut(f"it did not end on {device}")
            if re.search(r"No module named '(tessera\._tessera|numpy)'", done.output):
                return [Row(point, "", "skipped",
                            detail=f"{python}: {done.last_line()}: it needs NumPy, and the packages its version of Python")]
            if done.code != 0:
                raise RuntimeError(f"on {device}: {done.last_line()}")
            losses.append(losses_of(done.output))
        return [near(point, deviation(*losses))]

    return [Step("package", 60, run)]


PARTS = [
    Part("info", "the GPU, its driver, and that tessera and torch see it", 60, info_steps),
    Part("suite", "the suite cuda: every operator against the reference, plans on 1, 2 and 4 ranks", 150, suite_steps),
    Part("losses", "ten losses of ResNet-50 in float32, without TF32, against the CPU", 45, losses_steps),
    Part("demo", "the demo trains there and is evaluated on the CPU; checkpoints go to the CPU and back", 60, demo_steps),
    Part("bench", "rows of benchmarks/gpu.py: PyTorch beside it, products alone, memory of both", 300, bench_steps,
         rows_of_benchmark.compile_ahead),
    Part("overhead", "what one of 1,000 tiny operators of a graph costs", 40, overhead_steps),
    Part("headline", "the tutorials' training, images read and enlarged on the way", 60, headline_steps),
    Part("sanitizer", "compute-sanitizer: memcheck, racecheck and initcheck of a sample of operators", 125, sanitizer_steps),
    Part("python", "the Python package trains there", 30, python_steps),
    Part("errors", "no memory left, no such device, two processes and several ranks on one device", 120, errors_steps),
]
