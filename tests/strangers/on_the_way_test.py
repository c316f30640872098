"""What goes between two hosts, as somebody on the way sees it: two network namespaces with a cable between them."""

import os
import shutil
import subprocess
import sys
import unittest

from attacked_jobs import JOB_ID, Strangers, eventually, main

HOSTS = {"left": "10.213.0.1", "right": "10.213.0.2"}
PORT = 7100
# Writes all packets of the cable to a file, until it is killed.
TAP = """
import socket, sys
tap = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
with open(sys.argv[1], "wb", buffering=0) as file:
    print("ready", flush=True)
    while True:
        file.write(tap.recv(1 << 17))
"""


def ip(*words):
    return subprocess.run(["ip", *words], capture_output=True, text=True)


def may_have_hosts():
    name = f"tessera-{os.getpid()}"
    if os.getuid() != 0 or not shutil.which("ip") or ip("netns", "add", name).returncode != 0:
        return False
    return ip("netns", "del", name).returncode == 0


@unittest.skipUnless(may_have_hosts(), "only root where network namespaces are allowed can have two hosts")
class BetweenHosts(Strangers):
    def setUp(self):
        self.hosts = {side: f"tessera-{side}-{os.getpid()}" for side in HOSTS}
        for name in self.hosts.values():
            self.done("netns", "add", name)
            self.addCleanup(ip, "netns", "del", name)
        self.done("link", "add", "cable", "netns", self.hosts["left"], "type", "veth", "peer", "name", "cable", "netns", self.hosts["right"])
        for side, name in self.hosts.items():
            self.done("-n", name, "addr", "add", f"{HOSTS[side]}/24", "dev", "cable")
            self.done("-n", name, "link", "set", "cable", "up")
            self.done("-n", name, "link", "set", "lo", "up")

    def done(self, *words):
        result = ip(*words)
        self.assertEqual(result.returncode, 0, f"ip {' '.join(words)}: {result.stderr}")

    def on(self, side, *program):
        return ("ip", "netns", "exec", self.hosts[side], *program)

    def packets_of(self, transport, **environment):
        """All that crosses the cable while a job of two hosts runs; its outputs."""
        job = self.job(2, TESSERA_TIMEOUT_MS="30000", **environment)
        job.address = f"tcp:{HOSTS['left']}:{PORT}"
        if transport:
            job.environment["TESSERA_TRANSPORT"] = transport
        seen = job.folder / "packets"
        tap = subprocess.Popen(self.on("left", sys.executable, "-c", TAP, seen), stdout=subprocess.PIPE, text=True)
        self.addCleanup(lambda: (tap.kill(), tap.communicate()))
        self.assertEqual(tap.stdout.readline(), "ready\n")
        program = job.program
        for rank, side in enumerate(HOSTS):
            job.environment["TESSERA_HOST_ID"] = side
            job.program = self.on(side, *program)
            job.start(rank, is_seen=False)
        codes, outputs = job.end()
        self.assertEqual(set(codes.values()), {0}, outputs)
        self.assertEqual(job.weights(), self.undisturbed[2])
        # Packets lie in the tap's queue when the job is over.
        sizes = []
        eventually(lambda: sizes.append(seen.stat().st_size) or len(sizes) > 100 and sizes[-1] == sizes[-100], "the cable is silent")
        return seen.read_bytes(), outputs[0], job

    @staticmethod
    def num_seen(job, packets):
        """How many pieces of the weights after the first step are among the packets: rank 1's gradient in the second one is made of them, twice
        by a half."""
        weights = (job.folder / "step_1").read_bytes()
        return sum(weights[start:start + 16] in packets for start in range(0, len(weights), 16))

    def test_no_weight_is_seen_by_default(self):
        packets, output, job = self.packets_of("")
        self.assertIn(" and tls\n", output)
        self.assertGreater(len(packets), 100_000)
        self.tells_nothing(job, packets.replace(JOB_ID.encode(), b""))  # the hub speaks of the job in plain words
        self.assertEqual(self.num_seen(job, packets), 0)

    def test_gloo_shows_them_and_says_so(self):
        packets, output, job = self.packets_of("gloo")
        self.assertIn(" and gloo\n", output)
        self.assertIn("what ranks send each other between hosts is not encrypted", output)
        self.assertGreater(self.num_seen(job, packets), 100)


if __name__ == "__main__":
    main()
