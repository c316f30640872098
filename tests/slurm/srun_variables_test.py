"""A launch by srun, without Slurm: processes that have the variables of its tasks take the same places as under any other launcher, and what
the variables say wrongly is named."""

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent.parent / "python"))
from ports import free_port  # noqa: E402

BIN = Path(sys.argv.pop(1))
RANK, TESSERA = BIN / "rank_program", BIN / "tessera"
OF_NODE = ("sh", "-c", 'TESSERA_HOST_ID=$SLURMD_NODENAME exec "$0" "$@"')  # nodes of this machine are hosts of their own


def clean_environment():
    return {name: value for name, value in os.environ.items() if not name.startswith(("TESSERA_", "OMPI_", "PMIX_", "SLURM"))}


def own_address():
    """This machine's address on the way to others; None where there is none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing
            return probe.getsockname()[0]
        except OSError:
            return None


def lines_of(out, marker="checksum"):
    return sorted(line[line.index(marker):] for line in out.splitlines() if marker in line)


class Tasks(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(prefix="tessera-srun."))
        self.addCleanup(shutil.rmtree, self.folder)

    def variables(self, tasks_per_node, nodes=None, job=None, **others):
        """Of each task of a step. `others`: of all, or, where the value is a function of the task's number and node, of each."""
        nodes = nodes or [f"127.0.0.{node + 1}" for node in range(len(tasks_per_node))]
        size, found = sum(tasks_per_node), []
        for node, count in enumerate(tasks_per_node):
            for local in range(count):
                own = {"SLURM_CLUSTER_NAME": "here", "SLURM_JOB_ID": str(job or os.getpid()), "SLURM_STEP_ID": "0", "SLURM_PROCID": str(len(found)),
                       "SLURM_LOCALID": str(local), "SLURM_NTASKS": str(size), "SLURM_STEP_NUM_TASKS": str(size), "SLURMD_NODENAME": nodes[node],
                       "SLURM_STEP_NODELIST": ",".join(nodes), "SLURM_STEP_TASKS_PER_NODE": ",".join(map(str, tasks_per_node)),
                       "SLURM_LAUNCH_NODE_IPADDR": "127.0.0.1", "XDG_CACHE_HOME": str(self.folder), "TESSERA_TIMEOUT_MS": "30000"}
                for name, value in others.items():
                    value = value(len(found), nodes[node]) if callable(value) else value
                    own.pop(name, None)
                    if value is not None:
                        own[name] = str(value)
                found.append(own)
        return found

    def run_tasks(self, variables, *command):
        """(exit code, output with errors) of each task."""
        tasks = [subprocess.Popen([str(word) for word in command], env=clean_environment() | own, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, text=True) for own in variables]
        try:
            return [(task.communicate(timeout=100)[0], task.returncode)[::-1] for task in tasks]
        finally:
            for task in tasks:
                task.kill()

    def meet(self, variables, *command):
        """What tasks that all end well have written."""
        ended = self.run_tasks(variables, *command)
        self.assertEqual([code for code, _ in ended], [0] * len(ended), ended)
        return "".join(out for _, out in ended)

    def refused(self, variables, *words, code=1):
        """By each task, within seconds."""
        start = time.monotonic()
        for found, out in self.run_tasks(variables, RANK, "script"):
            self.assertEqual(found, code, out)
            for word in words:
                self.assertIn(word, out)
        self.assertLess(time.monotonic() - start, 20)

    def by_tessera_run(self, size, *command):
        done = subprocess.run([TESSERA, "run", "-n", str(size), *map(str, command)], env=clean_environment(), capture_output=True, text=True, timeout=100)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return lines_of(done.stdout)

    def test_the_tasks_of_one_node_are_the_ranks_of_a_job(self):
        for size in (2, 4):
            with self.subTest(size=size):
                self.assertEqual(lines_of(self.meet(self.variables([size]), RANK, "script")), self.by_tessera_run(size, RANK, "script"))

    def test_they_meet_also_where_the_user_has_no_place_for_a_key(self):
        for place in ({"XDG_CACHE_HOME": "", "HOME": ""}, {"XDG_CACHE_HOME": "/proc/nowhere"}):
            with self.subTest(**place):
                self.assertEqual(len(lines_of(self.meet(self.variables([2], **place), RANK, "script"), "of 2")), 2)

    def test_two_steps_of_a_job_do_not_meet(self):
        first, second = self.variables([2]), self.variables([2], SLURM_STEP_ID="1")
        self.assertEqual(len(lines_of(self.meet(first + second, RANK, "script"), "of 2")), 4)

    def test_tasks_of_several_nodes_meet_at_the_first_one_by_the_users_key(self):
        expected = self.by_tessera_run(3, "sh", "-c", f"TESSERA_HOST_ID=$((TESSERA_RANK / 2)) exec {RANK} script")
        for place in ({"TESSERA_PORT": free_port()}, {"TESSERA_STORE": f"tcp:127.0.0.1:{free_port()}"}):
            with self.subTest(**place):
                self.assertEqual(lines_of(self.meet(self.variables([2, 1], **place), *OF_NODE, RANK, "script")), expected)
        self.assertEqual((self.folder / "tessera/meeting_key").stat().st_mode & 0o777, 0o600)

    def test_nodes_without_a_common_home_need_the_jobs_secret(self):
        def home(_, node):
            return self.folder / node
        tasks = self.variables([1, 1], TESSERA_PORT=free_port(), XDG_CACHE_HOME=home, TESSERA_TIMEOUT_MS=10000)
        for code, out in self.run_tasks(tasks, RANK, "script"):
            self.assertEqual(code, 1, out)
            self.assertIn("meeting_key, which must be the same on all of them", out)
            self.assertIn("set TESSERA_SECRET_FILE", out)
        secret = self.folder / "secret"
        with open(os.open(secret, os.O_CREAT | os.O_WRONLY, 0o600), "wb") as file:
            file.write(os.urandom(32))
        tasks = self.variables([1, 1], TESSERA_PORT=free_port(), XDG_CACHE_HOME=home, TESSERA_SECRET_FILE=secret)
        self.assertEqual(len(lines_of(self.meet(tasks, RANK, "script"), "of 2")), 2)

    def test_a_node_whose_name_leads_nowhere_says_what_to_set(self):
        tasks = self.variables([1, 1], nodes=["no-such-node.invalid", "other"], TESSERA_TIMEOUT_MS=3000)
        self.refused(tasks, 'host "no-such-node.invalid"', "which must lead to the first node from all of them; else set TESSERA_STORE=tcp:HOST:PORT")

    def test_a_node_whose_name_is_a_loopback_address_there_listens_where_others_reach_it(self):
        address = own_address()
        if address is None:
            self.skipTest("this machine has no address beside its loopback")
        for launch in (address, "no address"):
            with self.subTest(launch=launch):
                port = free_port()
                # Rank 1 knows the first node by its address, as from another node.
                tasks = self.variables([1, 1], nodes=["localhost", "other"], TESSERA_PORT=port, SLURM_LAUNCH_NODE_IPADDR=launch,
                                       TESSERA_STORE=lambda rank, _, port=port: f"tcp:{address}:{port}" if rank == 1 else None)
                self.assertEqual(len(lines_of(self.meet(tasks, *OF_NODE, RANK, "script"), "of 2")), 2)

    def test_rank_0_on_another_node_than_the_first_says_what_to_set(self):
        tasks = self.variables([1, 1], SLURMD_NODENAME=lambda rank, _: f"127.0.0.{2 - rank}")[:1]
        self.refused(tasks, "rank 0 is on node 127.0.0.2, but SLURM_STEP_NODELIST begins with 127.0.0.1", "set TESSERA_STORE=tcp:127.0.0.2:PORT", code=2)

    def test_a_program_in_the_shell_of_sbatch_is_alone_and_says_so(self):
        for missing in ({"SLURM_STEP_ID": None}, {"SLURM_STEP_ID": "4294967290"}):
            with self.subTest(**missing):
                out = self.meet(self.variables([3], **missing)[:1], RANK, "script")
                self.assertIn("rank 0 of 1", out)
                self.assertEqual(out.count("started once, without srun, in a job of Slurm that has 3 tasks"), 1, out)

    def test_a_step_of_one_task_is_alone_because_it_was_asked_for(self):
        out = self.meet(self.variables([3], SLURM_STEP_NUM_TASKS="1")[:1], RANK, "script")
        self.assertIn("rank 0 of 1", out)
        self.assertNotIn("without srun", out)

    def test_processes_of_an_mpiexec_that_nobody_knows_say_so(self):
        ended = self.run_tasks([{"PMI_SIZE": "2", "PMI_RANK": str(rank)} for rank in range(2)], RANK, "script")
        self.assertEqual([code for code, _ in ended], [0, 0], ended)
        self.assertEqual([out.count("an mpiexec that Tessera does not know has started 2 processes") for _, out in ended], [1, 0], ended)
        self.refused(self.variables([1, 1], PMI_SIZE="8"), "has started 8 processes (PMI_SIZE) in a step of srun that has 2 tasks", code=2)
        self.assertEqual(len(lines_of(self.meet(self.variables([2], PMI_SIZE="2", PMI_RANK=lambda rank, _: rank), RANK, "script"), "of 2")), 2)

    def test_processes_of_torchrun_say_so(self):
        for launcher in ({"TORCHELASTIC_RUN_ID": "none"}, {"MASTER_ADDR": "127.0.0.1"}):
            with self.subTest(**launcher):
                ended = self.run_tasks([launcher | {"WORLD_SIZE": "2", "RANK": str(rank)} for rank in range(2)], RANK, "script")
                self.assertEqual([code for code, _ in ended], [0, 0], ended)
                self.assertEqual([out.count("one of 2 processes (WORLD_SIZE), but Tessera does not read that") for _, out in ended], [1, 0], ended)
                self.assertIn("tessera run -n 2 PROGRAM", ended[0][1])

    def test_variables_of_torchrun_that_start_nothing_are_not_spoken_of(self):
        several = {"WORLD_SIZE": "2", "RANK": "0"}
        for variables in (several, {"TORCHELASTIC_RUN_ID": "none", "WORLD_SIZE": "1", "RANK": "0"}):
            with self.subTest(**variables):
                self.assertNotIn("WORLD_SIZE", self.run_tasks([variables], RANK, "script")[0][1])
        tasks = self.variables([2], TORCHELASTIC_RUN_ID="none", WORLD_SIZE="2", RANK=lambda rank, _: rank)
        self.assertNotIn("WORLD_SIZE", self.meet(tasks, RANK, "script"))

    def test_launchers_that_each_start_a_job_say_so_once(self):
        for starter, tasks in (("srun", self.variables([2])), ("mpirun", [{"OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": str(rank)} for rank in range(2)])):
            with self.subTest(starter=starter):
                out = self.meet(tasks, TESSERA, "run", "-n", "2", RANK, "script")
                self.assertEqual(len(lines_of(out, "of 2")), 4, out)
                self.assertEqual(out.count(f"tessera run: {starter} has started 2 launchers, and each starts a job of its own"), 1, out)

    def test_what_another_launcher_says_goes_before(self):
        for other in ({"OMPI_COMM_WORLD_SIZE": "1", "OMPI_COMM_WORLD_RANK": "0"}, {"TESSERA_SIZE": "1", "TESSERA_RANK": "0"}):
            with self.subTest(**other):
                self.assertIn("rank 0 of 1", self.meet(self.variables([3], **other)[1:2], RANK, "script"))
        out = self.meet(self.variables([2])[1:], TESSERA, "run", "-n", "2", RANK, "script")
        self.assertEqual(len(lines_of(out, "of 2")), 2)

    def test_variables_that_contradict_each_other_are_refused_by_their_names(self):
        for change, words in (({"SLURM_STEP_NODELIST": "node[1-2"}, ('SLURM_STEP_NODELIST: "node[1-2": "[" has no "]"',)),
                              ({"SLURM_STEP_NODELIST": "a b,c"}, ("a node's name has letters, digits, '-', '_' and '.'",)),
                              ({"SLURM_STEP_NODELIST": "n[1-99999999]"}, ("it stands for more than 16384 nodes",)),
                              ({"SLURM_STEP_TASKS_PER_NODE": "2(x3"}, ("SLURM_STEP_TASKS_PER_NODE", "expected TASKS or TASKS(xNODES)")),
                              ({"SLURM_STEP_NUM_TASKS": "5"}, ("is 2 tasks on 2 nodes, but SLURM_STEP_NUM_TASKS is 5", "tessera run --join")),
                              ({"SLURM_PROCID": "7"}, ("SLURM_PROCID must be from 0 to 1, got 7",)),
                              ({"TESSERA_THREAD_RANKS": "2"}, ("TESSERA_THREAD_RANKS=2 in each of srun's 2 tasks",))):
            with self.subTest(**change):
                self.refused(self.variables([1, 1], **change), *words, code=2)

    def test_a_rank_that_is_lost_is_named_and_it_is_said_that_srun_brings_no_other(self):
        for lost in (0, 1):
            with self.subTest(lost=lost):
                ended = self.run_tasks(self.variables([3]), RANK, "die", lost)
                others = [out for rank, (_, out) in enumerate(ended) if rank != lost]
                self.assertEqual([code for code, _ in ended], [-9 if rank == lost else 1 for rank in range(3)], ended)
                for out in others:
                    self.assertIn(f"rank {lost}", out)
                told = [out for out in others if "start it again from its checkpoint" in out]
                self.assertEqual(len(told), 1, ended)
                self.assertIn(f"srun puts no other rank in the place of rank {lost}", told[0])


if __name__ == "__main__":
    result = unittest.main(exit=False, verbosity=2).result
    failed = len(result.failures) + len(result.errors)
    for test, reason in result.skipped:
        print(f"skipped: {test}: {reason}")
    print(f"{result.testsRun - failed - len(result.skipped)} passed, {failed} failed" + (f", {len(result.skipped)} skipped" if result.skipped else ""))
    sys.exit(1 if failed else 0)
