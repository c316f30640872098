"""What goes between two hosts, as somebody on the way sees it: two network namespaces at a switch."""

import os
import subprocess
import sys

import wire
from attacked_jobs import Strangers, eventually, main
from hosts import Hosts, needs_hosts

PORT = 7100
# Writes all packets of the cable to a file, until it is killed.
TAP = """
import socket, sys
tap = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
tap.setsockopt(socket.SOL_SOCKET, 33, 64 << 20)  # SO_RCVBUFFORCE: what it has not come to yet is not dropped
with open(sys.argv[1], "wb", buffering=0) as file:
    print("ready", flush=True)
    while True:
        file.write(tap.recv(1 << 17))
"""


@needs_hosts
class BetweenHosts(Strangers):
    def setUp(self):
        self.hosts = Hosts("left", "right")
        self.addCleanup(self.hosts.end)

    def packets_of(self, transport, **environment):
        """All that crosses the cable while a job of two hosts runs; its outputs."""
        job = self.job(2, TESSERA_TIMEOUT_MS="30000", **environment)
        job.address = f"tcp:{self.hosts.addresses['left']}:{PORT}"
        if transport:
            job.environment["TESSERA_TRANSPORT"] = transport
        seen = job.folder / "packets"
        tap = subprocess.Popen(self.hosts.on("left", sys.executable, "-c", TAP, seen), stdout=subprocess.PIPE, text=True)
        self.addCleanup(lambda: (tap.kill(), tap.communicate()))
        self.assertEqual(tap.stdout.readline(), "ready\n")
        program = job.program
        for rank, side in enumerate(self.hosts.addresses):
            job.environment["TESSERA_HOST_ID"] = side
            job.program = self.hosts.on(side, *program)
            job.start(rank, is_seen=False)
        codes, outputs = job.end()
        self.assertEqual(set(codes.values()), {0}, outputs)
        self.assertEqual(job.weights(), self.undisturbed[2])
        # Packets lie in the tap's queue when the job is over, and this one behind them.
        last = os.urandom(32)
        says = f"import socket; socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(bytes.fromhex('{last.hex()}'), ('{self.hosts.addresses['left']}', 9))"
        self.hosts.do("right", sys.executable, "-c", says)
        eventually(lambda: last in seen.read_bytes(), "the tap has written all packets")
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
        self.tells_nothing(job, packets)
        self.assertNotIn(wire.PROTOCOL, packets)
        self.assertEqual(self.num_seen(job, packets), 0)

    def test_gloo_shows_them_and_says_so(self):
        packets, output, job = self.packets_of("gloo")
        self.assertIn(" and gloo\n", output)
        self.assertIn("what ranks send each other between hosts is not encrypted", output)
        self.assertGreater(self.num_seen(job, packets), 100)


if __name__ == "__main__":
    main()
