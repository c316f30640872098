"""What a command or a program of ours prints has arrived when it ends with 0: a full disk and a closed output are failures that are named, and a
reader that has seen enough is none. The commands are those that `tessera completion` knows, so a new one is missed here until it is tried."""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

BIN = Path(sys.argv.pop(1))
sys.path.insert(0, str(Path(__file__).parent.parent / "processes"))
from own_tests import main  # noqa: E402

TESSERA, RESNET, JOB = BIN / "tessera", BIN / "resnet50_cifar10", BIN / "train_job"
LIMIT_S = 300
# Commands that are left out here, with the reason: of them only --help is tried.
LEFT_OUT = {
    "run": "its ranks print, and it passes that on: process_test has its full disks",
    "scheduler": "it speaks on standard error",
    "cluster resize": "it needs an elastic job that runs",
    "cluster make-certificates": "it prints only that a certificate is revoked already: make_certificates_test.cc has it",
    "job": "it is a program in Python",
    "calibrate": "it measures for most of a minute",
    "ckpt merge-strategies": "it needs the strategy files of a pipeline's stages",
    "trace merge": "it prints only what is missing",
    "trace export": "it prints nothing",
}


class StandardOutput(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory(prefix="tessera-output.")
        folder = cls.folder = Path(cls.scratch.name)
        (folder / "secret").write_text("a secret of this test, and of nobody else\n")
        (folder / "secret").chmod(0o600)
        data = folder / "cifar"
        cls.done([RESNET, "--make_data", data, "--train_records", 64, "--test_records", 8])
        cls.done([TESSERA, "run", "-n", 2, "--num_threads", 1, "--trace", folder / "job.json", "--record_values", folder / "values",
                  JOB, "--data_path", data, "--steps", 2, "--checkpoint_dir", folder / "saved", "--save_steps", 1])
        cls.call([TESSERA, "run", "-n", 1, "--report_dir", folder / "report", "false"], stdout=subprocess.PIPE)
        step = {"kind": "step", "time": "2026-03-04T05:06:07.000Z", "seconds": 1.5, "epoch": 1, "step": 1, "loss": 0.5, "learning_rate": 0.5,
                "rows_per_second": 1.0, "resident_bytes": 2048, "arena_bytes": 1024}
        (folder / "log.jsonl").write_text(json.dumps(step) + "\n")
        problem = {"name": "two", "nodes": {"intervals": [[0, 2], [1, 3]], "costs": [[1, 2], [1, 5]], "usages": [[3, 4], [3, 1]]},
                   "edges": {"nodes": [[0, 1]], "costs": [[9, 0, 0, 0]]}, "usage_limit": 10}
        (folder / "problem.json").write_text(json.dumps({"problem": problem}))
        cls.scheduler = subprocess.Popen([TESSERA, "scheduler", "--workers", "1", "--port", "0"], env=cls.environment(), stdout=subprocess.DEVNULL,
                                         stderr=subprocess.PIPE, text=True)
        address = re.search(r"listening at (\S+) for", cls.scheduler.stderr.readline())[1]
        saved, ckpt = folder / "saved", next((folder / "saved").glob("*.ckpt"))
        net = folder / "net.safetensors"
        cls.done([TESSERA, "ckpt", "export", ckpt, net])
        cls.count = 0
        cls.commands = {
            "cluster status": [address, "--json", "--timeout", 60],
            "cluster check": ["--mib", 1],
            "cluster why": [folder / "report", "--json"],
            "info": ["--json"],
            "ckpt ls": [saved],
            "ckpt inspect": [ckpt],
            "ckpt verify": [saved],
            "ckpt newest": [saved],
            "ckpt diff": [ckpt, ckpt],
            "ckpt transform": [saved, cls.new("whole"), "--json"],
            "ckpt export": [ckpt, cls.new("net.safetensors"), "--json"],
            "ckpt import": [net, cls.new("net.ckpt"), "--json"],
            "graph": ["mlp"],
            "simulate": ["mlp", "--ranks", 2, "--json"],
            "plan": ["mlp", "--ranks", 2, "--json"],
            "report": [folder / "log.jsonl", "--json"],
            "bisect": [folder / "values", folder / "values"],
            "trace summary": [folder / "job.json"],
            "solve": [folder / "problem.json", "--quiet"],
            "completion": ["bash"],
            "version": [],
        }

    @classmethod
    def tearDownClass(cls):
        cls.scheduler.kill()
        cls.scheduler.communicate()
        cls.scratch.cleanup()

    @classmethod
    def environment(cls):
        inherited = {k: v for k, v in os.environ.items() if not k.startswith(("TESSERA_", "OMPI_", "PMIX_", "MS_"))}
        return inherited | {"OMP_WAIT_POLICY": "PASSIVE", "TESSERA_NUM_THREADS": "1", "TESSERA_SECRET_FILE": str(cls.folder / "secret")}

    @classmethod
    def new(cls, name):
        """A path at which nothing is yet, another one each time that the command is run."""
        def path():
            cls.count += 1
            return cls.folder / f"{cls.count}-{name}"
        return path

    @classmethod
    def call(cls, command, **options):
        words = [str(word() if callable(word) else word) for word in command]
        return subprocess.run(words, env=cls.environment(), stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, timeout=LIMIT_S, **options)

    @classmethod
    def done(cls, command):
        result = cls.call(command, stdout=subprocess.PIPE)
        assert result.returncode == 0, (command, result)
        return result.stdout.decode()

    def names(self):
        """The commands, those that have others below them left out: "info", "ckpt ls"."""
        line = next(line for line in self.done([TESSERA, "completion", "bash"]).splitlines() if line.endswith('path="$path $word" ;;'))
        names = re.findall(r'"tessera ([^"]+)"', line)
        return [name for name in names if not any(other.startswith(name + " ") for other in names)]

    def assert_cut(self, command, reason, **options):
        with self.subTest(command=" ".join(str(word) for word in command)):
            result = self.call(command, **options)
            said = result.stderr.decode()
            self.assertEqual((result.returncode, said.count(f"cannot write standard output: {reason}")), (1, 1), said)

    def test_a_new_command_is_tried_here_or_left_out_for_a_reason(self):
        self.assertEqual(sorted([*self.commands, *LEFT_OUT]), sorted(self.names()))

    def commands_that_print(self):
        for name, arguments in self.commands.items():
            yield [TESSERA, *name.split(), *arguments]
        for name in [*self.names(), "ckpt", "cluster", "trace"]:
            if name != "job":
                yield [TESSERA, *name.split(), "--help"]
        yield [TESSERA, "--help"]
        yield [TESSERA, "--version"]
        yield [RESNET, "--help"]
        yield [BIN / "all_gather"]

    def test_a_full_disk_is_a_failure_with_its_reason(self):
        with open("/dev/full", "wb") as full:
            for command in self.commands_that_print():
                self.assert_cut(command, "No space left on device", stdout=full)

    def test_a_closed_output_is_a_failure_with_its_reason(self):
        for command in self.commands_that_print():
            self.assert_cut(command, "Bad file descriptor", preexec_fn=lambda: os.close(1))

    def test_what_is_opened_does_not_take_the_place_of_a_closed_output(self):
        file = self.folder / "timeline.json"
        self.call([TESSERA, "simulate", "mlp", "--ranks", 2, "--trace", file], preexec_fn=lambda: os.close(1))
        json.loads(file.read_text())

    def test_what_arrives_is_a_success(self):
        for name, arguments in self.commands.items():
            with self.subTest(command=name):
                self.assertTrue(self.done([TESSERA, *name.split(), *arguments]))

    def test_a_reader_that_has_seen_enough_is_no_failure(self):
        command = [TESSERA, "graph", "resnet50"]
        for restores, code in ((True, -signal.SIGPIPE), (False, 0)):
            read, write = os.pipe()
            os.close(read)
            with os.fdopen(write, "wb") as output:
                result = self.call(command, stdout=output, restore_signals=restores)
            self.assertEqual((result.returncode, result.stderr), (code, b""))


if __name__ == "__main__":
    main()
