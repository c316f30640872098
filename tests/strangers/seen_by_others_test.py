"""What everybody on a host sees of a job's processes, their arguments, and what their user sees beside it, their environments:
no secret is in either, whoever starts the ranks."""

import base64
import os
import re
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

from attacked_jobs import BIN, JOB, STEPS, eventually, family, main, read

TESSERA = BIN / "tessera"
MPIRUN = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none"]
SECRET = bytes(range(128, 160))


def own_secret(pid):
    """What a rank has inherited in the memory of its launcher; None where it has none there."""
    found = re.search(rb"(?:^|\0)TESSERA_SECRET_FD=(\d+)", read(f"/proc/{pid}/environ"))
    return read(f"/proc/{pid}/fd/{found[1].decode()}") if found else None


class SeenByOthers(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(prefix="tessera-seen."))
        self.addCleanup(shutil.rmtree, self.folder)
        self.gate = self.folder / "gate"
        os.mkfifo(self.gate)
        self.file = self.folder / "job.secret"
        self.file.touch(0o600)
        self.file.write_bytes(SECRET)
        self.rank = [str(word) for word in (JOB, STEPS, self.folder, self.gate)]
        self.launchers = []

    def start(self, *command, **environment):
        env = {key: value for key, value in os.environ.items() if not key.startswith(("TESSERA_", "OMPI_", "PMIX_"))}
        env |= {"TESSERA_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE", "XDG_CACHE_HOME": str(self.folder / "cache"), **environment}
        output = self.folder / f"output.{len(self.launchers)}"
        launcher = subprocess.Popen([str(word) for word in command], env=env, stdout=output.open("wb"), stderr=subprocess.STDOUT)
        self.launchers.append((launcher, output))
        self.addCleanup(lambda: launcher.poll() is not None or (launcher.kill(), launcher.wait()))
        return launcher, output

    def outputs(self):
        return b"\n".join(read(output) for _, output in self.launchers)

    def shown_by(self, num_ranks, secrets=(SECRET,)):
        """Asserts for the job that waits at the gate, and lets it end well."""
        eventually(lambda: b"waiting\n" in self.outputs() or any(launcher.poll() is not None for launcher, _ in self.launchers), "rank 0 waits")
        processes = {pid: read(f"/proc/{pid}/cmdline") for launcher, _ in self.launchers for pid in family(launcher.pid)}
        ranks = [pid for pid, words in processes.items() if words.startswith(os.fsencode(JOB))]
        self.assertEqual(len(ranks), num_ranks, (processes, self.outputs()))
        secrets = [*secrets, *filter(None, map(own_secret, ranks))]
        self.assertTrue(secrets)
        for secret in secrets:
            self.assertGreaterEqual(len(secret), 16)
            forms = (secret, secret.hex().encode(), secret.hex().upper().encode(), base64.b64encode(secret).rstrip(b"="), repr(secret).encode()[2:-1])
            for pid in processes:
                for what in ("cmdline", "environ", "comm", "status"):
                    for form in forms:
                        self.assertNotIn(form, read(f"/proc/{pid}/{what}"), f"{what} of {processes[pid]}")
        self.gate.write_text("go\n")
        for launcher, _ in self.launchers:
            self.assertEqual(launcher.wait(timeout=60), 0, self.outputs())
        for secret in secrets:
            for form in (secret, secret.hex().encode()):
                self.assertNotIn(form, self.outputs())
        return secrets

    def test_the_secret_that_the_launcher_draws(self):
        self.start(TESSERA, "run", "-n", 2, *self.rank)
        self.assertEqual(len(self.shown_by(2, secrets=())), 2)

    def test_the_launchers_secret_behind_a_shell(self):
        self.start(TESSERA, "run", "-n", 2, "sh", "-c", '"$0" "$@"; true', *self.rank)
        self.assertEqual(len(self.shown_by(2, secrets=())), 2)

    def test_a_secrets_file_under_mpirun(self):
        if shutil.which("mpirun") is None:
            self.skipTest("mpirun is absent")
        self.start(*MPIRUN, "-n", 2, *self.rank, TESSERA_SECRET_FILE=str(self.file), TESSERA_STORE="mpi")
        self.shown_by(2)

    def scheduled(self, **environment):
        _, output = self.start(TESSERA, "scheduler", "--workers", 2, "--port", 0, **environment)
        port = eventually(lambda: re.search(rb"listening at 127\.0\.0\.1:(\d+)", read(output)), "the scheduler listens")[1].decode()
        for _ in range(2):
            self.start(TESSERA, "run", "--join", f"127.0.0.1:{port}", "-n", 1, *self.rank, **environment)

    def test_a_secrets_file_of_a_scheduler(self):
        self.scheduled(TESSERA_SECRET_FILE=str(self.file))
        self.shown_by(2)

    def test_the_users_key_at_a_scheduler(self):
        self.scheduled()
        key = eventually(lambda: read(self.folder / "cache" / "tessera" / "meeting_key"), "the key is made")
        self.shown_by(2, secrets=(key,))

    def test_a_secret_that_stands_there_is_found(self):
        """What the others rely on."""
        for forms in ({"SEEN": SECRET.hex()}, {"SEEN": os.fsdecode(SECRET)}):
            with self.subTest(forms):
                self.launchers = []
                self.start(TESSERA, "run", "-n", 2, *self.rank, **forms)
                with self.assertRaises(AssertionError):
                    self.shown_by(2)
                self.gate.write_text("go\n")
                self.launchers[0][0].wait(timeout=60)


if __name__ == "__main__":
    main()
