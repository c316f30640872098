"""Hosts for tests of what networks do: network namespaces, each with a cable to one switch, which is another. Only root may have them."""

import os
import shutil
import subprocess
import unittest
from pathlib import Path

NETWORK = "10.213.0"
# What `tc` runs in the kernel on each packet: of those of IP a random 30 % are dropped.
DROPS_30_PERCENT = "4,32 0 0 4294963256,37 0 1 1288490188,6 0 0 4294967295,6 0 0 2"


def ip(*words):
    return subprocess.run(["ip", *words], capture_output=True, text=True)


class Hosts:
    def __init__(self, *names):
        self.addresses = {name: f"{NETWORK}.{number + 1}" for number, name in enumerate(names)}
        self.spaces = {name: f"tessera-{name}-{os.getpid()}" for name in (*names, "switch")}
        try:
            self.connect()
        except BaseException:
            self.end()
            raise

    def connect(self):
        for space in self.spaces.values():
            self.done("netns", "add", space)
            self.done("-n", space, "link", "set", "lo", "up")
        self.set("switch", "link", "add", "switch", "type", "bridge")
        self.set("switch", "link", "set", "switch", "up")
        for name, address in self.addresses.items():
            self.done("link", "add", name, "netns", self.spaces["switch"], "type", "veth", "peer", "name", "cable", "netns", self.spaces[name])
            self.set("switch", "link", "set", name, "master", "switch", "up")
            self.set(name, "addr", "add", f"{address}/24", "dev", "cable")
            self.set(name, "link", "set", "cable", "up")

    def end(self):
        for space in self.spaces.values():
            ip("netns", "del", space)
            shutil.rmtree(self.names_of(space), ignore_errors=True)

    @staticmethod
    def done(*words):
        result = ip(*words)
        assert result.returncode == 0, f"ip {' '.join(words)}: {result.stderr}"

    def set(self, name, *words):
        self.done("-n", self.spaces[name], *words)

    def on(self, name, *program):
        """The command that runs the program on this host."""
        return ("ip", "netns", "exec", self.spaces[name], *program)

    def do(self, name, *program):
        subprocess.run(self.on(name, *program), check=True, capture_output=True)

    @staticmethod
    def names_of(space):
        """The folder whose files stand in /etc on that host."""
        return Path("/etc/netns") / space

    def call(self, name, address):
        """What all hosts call this address from now on. Programs that run already hear of it where there was a name when they began."""
        for host in self.addresses:
            folder = self.names_of(self.spaces[host])
            folder.mkdir(parents=True, exist_ok=True)
            # Into the file that is there: that is what programs which run see.
            (folder / "hosts").write_text(f"127.0.0.1 localhost\n{address} {name}\n")

    def cut(self, name):
        self.set("switch", "link", "set", name, "down")

    def mend(self, name):
        self.set("switch", "link", "set", name, "up")

    def lose(self, name, to):
        """Nothing of this host reaches that one any more, and nobody is told."""
        self.set(name, "neigh", "replace", self.addresses[to], "lladdr", "02:00:00:00:00:99", "dev", "cable", "nud", "permanent")

    def find(self, name, to):
        self.set(name, "neigh", "del", self.addresses[to], "dev", "cable")

    def drop_some(self, name):
        self.do(name, "tc", "qdisc", "add", "dev", "cable", "clsact")
        self.do(name, "tc", "filter", "add", "dev", "cable", "egress", "bpf", "da", "bytecode", DROPS_30_PERCENT)

    def slow_down(self, name, rate):
        self.do(name, "tc", "qdisc", "add", "dev", "cable", "root", "tbf", "rate", rate, "burst", "16kb", "latency", "400ms")

    def speed_up(self, name):
        self.do(name, "tc", "qdisc", "del", "dev", "cable", "root")

    def reset(self, name, to):
        """Ends all connections of this host to that one, as a firewall that has forgotten them does: both ends hear RST. How many there were."""
        said = subprocess.run(self.on(name, "ss", "-HKtn", "dst", self.addresses[to]), capture_output=True, text=True).stdout
        return said.count("ESTAB")

    def sent_bytes(self, name):
        """What has left this host, by its cable."""
        text = subprocess.run(self.on(name, "cat", "/proc/net/dev"), check=True, capture_output=True, text=True).stdout
        return int(text.split("cable:")[1].split()[8])


def may_have_hosts():
    """Whether this user and this kernel may have them, with all that is done to them here."""
    if os.getuid() != 0 or not all(map(shutil.which, ("ip", "tc", "ss"))):
        return False
    try:
        hosts = Hosts("probe")
    except AssertionError:
        return False
    try:
        hosts.slow_down("probe", "1mbit")
        hosts.speed_up("probe")
        hosts.drop_some("probe")
    except subprocess.CalledProcessError:
        return False
    finally:
        hosts.end()
    return True


needs_hosts = unittest.skipUnless(may_have_hosts(), "only root, on a kernel with network namespaces, bridges and qdiscs, can have several hosts")
