"""What networks do to a job of three hosts, a scheduler's and two of two ranks each: its losses and its values are those of a job on one
host. The tests carry the numbers of docs/faults.md."""

import json
import os
import re
import signal
import time

import recovery_test
from hosts import NETWORK, Hosts, needs_hosts
from own_tests import OwnTests, main
from recovery_test import ENDLESS, eventually, losses_of, ranks_of

SILENCE_S = 3
TIMEOUT_S = 60


@needs_hosts
class BetweenHosts(recovery_test.Scheduled):
    def setUp(self):
        self.hosts = Hosts("middle", "left", "right")
        self.addCleanup(self.hosts.end)
        self.address = self.hosts.addresses["middle"]
        self.options = {"scheduler": ["--host", self.address, "--node_timeout", SILENCE_S]}
        self.over = self.folder / f"over.{self.id()}"

    def at(self, name, command):
        host = "middle" if name == "scheduler" else name
        named = ["unshare", "--uts", "sh", "-c", 'hostname "$0"; TESSERA_HOST_ID=$0 exec "$@"', host]
        return self.hosts.on(host, *named, *command)

    def undisturbed(self, ranks, *arguments):
        """The same hosts count, for the order of sums does not depend on where ranks are, but on which of them share a host."""
        if arguments not in self.known:
            named = ["sh", "-c", 'TESSERA_HOST_ID=$((RANK_ID / 2)) exec "$@"', "sh"]
            code, out = recovery_test.run([recovery_test.TESSERA, "run", "-n", ranks, *named, *self.job(*arguments)])
            self.assertEqual(code, 0, out)
            self.known[arguments] = recovery_test.result(out)
        return self.known[arguments]

    def start_endless(self, *arguments, **variables):
        self.start_job(*ENDLESS, "--stop_file", self.over, *arguments, **{"TESSERA_TIMEOUT_MS": 1000 * TIMEOUT_S, **variables})
        self.after_step(5)

    def last_step(self):
        return max(losses_of(self.said()))

    def goes_on(self):
        """Steps are made."""
        step = self.last_step()
        eventually(lambda: self.last_step() > step + 2, f"a step after {step}")

    def ends_undisturbed(self):
        self.goes_on()
        self.over.touch()
        for name, process in self.processes.items():
            self.assertEqual(process.wait(timeout=recovery_test.LIMIT_S), 0, name + self.said())
        self.assert_undisturbed(self.said(), 4, *ENDLESS)

    def num_lost(self):
        return self.said().count("is lost: ")

    def test_F19_a_partition_shorter_than_the_timeout_is_no_loss(self):
        self.options["scheduler"][-1] = 4 * SILENCE_S
        self.start_endless()
        self.hosts.cut("right")
        time.sleep(1.5)
        self.hosts.mend("right")
        self.ends_undisturbed()
        self.assertEqual(self.num_lost(), 0, self.said())

    def test_F20_who_is_cut_off_makes_no_step_and_no_checkpoint_and_comes_back(self):
        saved = self.folder / "saved_by_the_few"
        self.start_endless("--checkpoint_dir", saved, "--save_steps", 2)
        self.hosts.cut("left")  # where rank 0 prints and saves
        eventually(lambda: self.num_lost() > 0, "the scheduler misses it")
        before, files = self.last_step(), sorted(saved.glob("job*"))  # the last step's may be begun, and is in no file of that name
        time.sleep(10)
        self.assertEqual((self.last_step(), sorted(saved.glob("job*"))), (before, files))
        self.hosts.mend("left")
        self.ends_undisturbed()

    def test_F21_a_way_that_swallows_what_is_sent_is_noticed_by_the_silence(self):
        self.start_endless()
        self.hosts.lose("right", "middle")
        eventually(lambda: self.num_lost() > 0, "the scheduler misses it", TIMEOUT_S / 2)  # before ranks give each other up
        self.hosts.find("right", "middle")
        self.ends_undisturbed()
        silences = re.findall(r"node right/\d \(rank [23] at right\) is lost: it has said nothing for (\d+) ms", self.said())
        self.assertTrue(silences, self.said())
        self.assertGreaterEqual(int(silences[0]), 1000 * SILENCE_S)

    def test_F22_hosts_that_do_not_reach_each_other_are_named_and_meet_when_they_do(self):
        self.start_endless(TESSERA_TIMEOUT_MS=3000)
        for one, other in (("left", "right"), ("right", "left")):
            self.hosts.lose(one, other)
        eventually(lambda: re.search(r"rank [01] .*rank [23]|rank [23] .*rank [01]", self.said()), "the pair is named")
        self.hosts.find("left", "right")
        self.hosts.find("right", "left")
        self.ends_undisturbed()

    def test_F22_hosts_that_never_reach_each_other_end_the_job(self):
        self.hosts.lose("left", "right")
        self.hosts.lose("right", "left")
        self.start_job("--steps", 10, restarts=2, TESSERA_TIMEOUT_MS=3000)
        codes = {name: process.wait(timeout=recovery_test.LIMIT_S) for name, process in self.processes.items()}
        self.assertEqual(set(codes.values()), {1}, self.said())

    def lose_each_other(self):
        self.hosts.lose("left", "right")
        self.hosts.lose("right", "left")

    def ends_of(self, checks):
        """What the processes have written, each of which has found a fault."""
        said = {name: process.communicate(timeout=recovery_test.LIMIT_S)[0] for name, process in checks.items()}
        self.assertEqual({name: process.returncode for name, process in checks.items()}, dict.fromkeys(checks, 1), said)
        return said

    def checks_by_hand(self, *names):
        """`tessera cluster check` as ranks 0, 1, ... on these hosts, without a launcher."""
        secret = self.folder / f"secret.{self.id()}"
        secret.touch(0o600)
        secret.write_text("32 bytes that nobody else knows.")
        common = {"TESSERA_SIZE": len(names), "TESSERA_STORE": f"tcp:{self.hosts.addresses[names[0]]}:{recovery_test.free_port()}",
                  "TESSERA_SECRET_FILE": secret, "TESSERA_TIMEOUT_MS": 3000}
        command = [recovery_test.TESSERA, "cluster", "check", "--mib", 1, "--json"]
        return {name: recovery_test.start(self.at(name, command), **common, TESSERA_RANK=rank) for rank, name in enumerate(names)}

    def test_F22_cluster_check_says_which_hosts_do_not_reach_each_other(self):
        self.lose_each_other()
        self.start_job(names=("scheduler",), restarts=0)
        joins = [recovery_test.TESSERA, "run", "--join", f"{self.address}:{self.port}", "-n", 2, "--node_id"]
        check = [recovery_test.TESSERA, "cluster", "check", "--mib", 1]
        said = self.ends_of({name: recovery_test.start(self.at(name, [*joins, name, *check]), TESSERA_TIMEOUT_MS=3000) for name in ("left", "right")})
        self.assertRegex(said["left"], r"left +0-1 +10\.213\.0\.2 ")
        self.assertRegex(said["left"], r"right +2-3 +10\.213\.0\.3 ")
        self.assertRegex(said["left"], r"left and right +UNREACHABLE +- +-\n")
        self.assertRegex(said["left"], r"fault: left and right do not reach each other: rank [23] does not reach rank [01] at 10\.213\.0\.2:\d+: ")
        self.assertIn("let TCP through between them", said["left"])
        self.assertNotIn("error: ", said["left"] + said["right"])

    def test_F22_cluster_check_without_a_scheduler_says_so_too(self):
        self.lose_each_other()
        said = self.ends_of(self.checks_by_hand("middle", "left", "right"))["middle"]
        pairs = {pair["between"]: pair for pair in json.loads(said[said.index("{"):])["pairs"]}
        self.assertEqual({name: pair["is_reachable"] for name, pair in pairs.items()},
                         {"middle and left": True, "middle and right": True, "left and right": False})
        self.assertRegex(pairs["left and right"]["why"], r"rank 2 does not reach rank 1 at 10\.213\.0\.2:\d+: ")

    def test_F22_cluster_check_says_who_has_not_come(self):
        self.lose_each_other()
        said = self.ends_of(self.checks_by_hand("left", "right"))
        told = json.loads(said["left"][said["left"].index("{"):])
        self.assertEqual([host["name"] for host in told["hosts"]], ["left"])
        self.assertIn("rank 1 did not join the job within 3000 ms", told["pairs"][0]["why"])
        self.assertIn(f"{self.hosts.addresses['left']}:", said["right"])  # where it has sought rank 0

    def test_F23_a_third_of_the_packets_may_be_lost(self):
        self.options["scheduler"] = self.options["scheduler"][:2]  # that says nothing of time-outs
        for host in ("left", "right", "middle"):
            self.hosts.drop_some(host)
        straight = self.undisturbed(4, "--steps", 3)
        self.start_job("--steps", 3, TESSERA_TIMEOUT_MS=1000 * TIMEOUT_S)
        self.ends_well(straight)
        self.assertEqual(self.num_lost(), 0, self.said())

    def slow_line(self, rate="1mbit"):
        """Each step's gradients take seconds: at a megabit a second one or two."""
        for host in ("left", "right"):
            self.hosts.slow_down(host, rate)
        step = self.last_step()
        self.after_step(step + 1)
        return step + 1

    def test_F23_a_line_of_a_megabit_a_second_is_enough(self):
        self.options["scheduler"] = self.options["scheduler"][:2]
        self.start_endless()
        self.slow_line()
        self.ends_undisturbed()
        self.assertEqual(self.num_lost(), 0, self.said())

    def test_F02_who_is_killed_amid_an_all_reduce_leaves_no_half_of_it(self):
        """Half of a step's bytes have left its host when the rank is killed."""
        # So slow that the other half takes longer than a busy host keeps this process waiting, and heartbeats, too.
        self.options["scheduler"][-1] = TIMEOUT_S
        self.start_endless()
        step = self.slow_line("250kbit")
        first = self.hosts.sent_bytes("right")
        self.after_step(step + 1)
        second = self.hosts.sent_bytes("right")
        eventually(lambda: self.hosts.sent_bytes("right") > second + (second - first) // 2, "half of the next step's bytes")
        os.kill(ranks_of(self.processes["right"])[2], signal.SIGKILL)
        self.assertEqual(self.last_step(), step + 1)
        for host in ("left", "right"):
            self.hosts.speed_up(host)
        self.ends_undisturbed()
        self.assertRegex(self.said(), "rank 2: killed by signal SIGKILL; the job goes on")
        self.assertRegex(self.said(), rf"stopped in all_reduce .* because rank 2 failed")

    def test_F24_connections_that_are_reset_cost_a_generation_at_most(self):
        self.start_endless()
        for one, other in (("right", "middle"), ("left", "right"), ("middle", "left")):
            with self.subTest(one=one, other=other):
                self.assertGreater(self.hosts.reset(one, other), 0)
                self.goes_on()
        self.ends_undisturbed()

    def test_F27_a_scheduler_that_comes_back_at_another_address_is_found_by_its_name(self):
        name = "scheduler.tessera.test"
        self.hosts.call(name, self.address)
        self.address = name
        self.options["scheduler"] = ["--host", name]
        self.start_endless()
        self.processes["scheduler"].kill()
        self.processes["scheduler"].wait()
        self.hosts.set("middle", "addr", "del", f"{self.hosts.addresses['middle']}/24", "dev", "cable")
        self.hosts.set("middle", "addr", "add", f"{NETWORK}.99/24", "dev", "cable")
        self.hosts.call(name, f"{NETWORK}.99")
        self.processes["scheduler"] = self.start("scheduler")
        self.ends_undisturbed()
        self.assertEqual(self.num_lost(), 0, self.said())


if __name__ == "__main__":
    main(loader=OwnTests())
