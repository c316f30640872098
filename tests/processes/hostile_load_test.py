"""Four ranks train while strangers do all that they can to their scheduler's port (benchmarks/hostile_load.py): ten seconds, ten minutes with
--full. Nobody is lost, and no bit of a result is another one. The benchmark `recovery` says what it costs."""

import multiprocessing
import os
import sys
import time
from pathlib import Path

import recovery_test
from own_tests import OwnTests, main
from recovery_test import ENDLESS

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent / "benchmarks"))
import hostile_load
from simulated_workers import Certificates

SECONDS = 600 if os.environ.get("TESSERA_TEST_FULL") == "1" else 10


class UnderLoad(recovery_test.Scheduled):
    def trains(self, **variables):
        over = self.folder / f"over.{self.id()}"
        self.start_job(*ENDLESS, "--stop_file", over, **variables)
        self.after_step(5)
        strangers = multiprocessing.get_context("fork").Process(target=hostile_load.attack, args=(int(self.port), SECONDS), daemon=True)
        strangers.start()
        begin, first = time.monotonic(), max(recovery_test.losses_of(self.said()))
        strangers.join()
        last = max(recovery_test.losses_of(self.said()))
        self.assertEqual(strangers.exitcode, 0)
        self.addCleanup(print, f"under load: {(last - first) / (time.monotonic() - begin):.1f} steps a second")
        over.touch()
        for name, process in self.processes.items():
            self.assertEqual(process.wait(timeout=recovery_test.LIMIT_S), 0, name + self.said())
        self.assert_undisturbed(self.said(), 4, *ENDLESS)
        self.assertNotIn("is lost", self.said())

    def test_strangers_change_nothing_where_ranks_have_certificates(self):
        self.trains(**Certificates(self.folder, recovery_test.TESSERA).environment)

    def test_strangers_change_nothing_where_ranks_have_a_secret(self):
        self.trains()


if __name__ == "__main__":
    main(loader=OwnTests())
