"""Where ranks listen over TCP, at no more addresses than they need, and who connects there in a rank's place."""

import os
import shutil
import socket
import subprocess
import unittest

import wire
from attacked_jobs import JOB, STEPS, Strangers, eventually, free_port, listening_ports, main

MPIRUN = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none"]
EVERYWHERE = {"0.0.0.0", "::"}


def interface_beside_loopback():
    """(name, IPv4 address) of the first one that is up, as rank 0 takes it; None where there is none."""
    for _, name in socket.if_nameindex():
        shown = subprocess.run(["ip", "-o", "-4", "addr", "show", "dev", name, "up"], capture_output=True, text=True).stdout.split()
        if name != "lo" and "inet" in shown:
            return name, shown[shown.index("inet") + 1].partition("/")[0]
    return None


def needs_interface(test):
    return unittest.skipUnless(interface_beside_loopback(), "there is no interface beside lo that is up")(test)


def heard_by(connection):
    heard = b""
    connection.settimeout(5)
    try:
        while data := connection.recv(4096):
            heard += data
    except OSError:
        pass
    connection.close()
    return heard


def is_hub(host, port):
    """Whether what listens there speaks TLS, as the hub does: it refuses a guess by an alert."""
    try:
        with socket.create_connection((host, port), timeout=5) as connection:
            connection.settimeout(1)
            connection.sendall(wire.hello())
            return connection.recv(4096).startswith(b"\x15\x03")
    except OSError:
        return False


class BetweenRanks(Strangers):
    """Gloo's connections. A relay keeps the other ranks' words back, so that rank 0 listens for them and none has come yet."""

    transport = "gloo"
    answers_thieves = True

    def num_ports(self, size):
        """Gloo has a port for each of the others."""
        return size - 1

    def held(self, size, address=None, **environment):
        """(job, relay, the addresses at which rank 0 listens by port)."""
        job = self.job(size, TESSERA_TRANSPORT=self.transport, TESSERA_TIMEOUT_MS="60000", **environment)
        job.address = address or job.address
        job.start(0)
        relay = wire.Relay("tcp:127.0.0.1:0", job.address)
        self.addCleanup(relay.close)
        relay.hold(wire.JOINED)
        for rank in range(1, size):
            job.start(rank, relay.address)
        self.assertTrue(relay.held.wait(60))
        ports = eventually(lambda: (found := listening_ports(job.ranks[0].pid)) and len(found) == self.num_ports(size) and found,
                           "rank 0 listens for the others")
        return job, relay, ports

    def test_a_stolen_connection_is_made_anew(self):
        for size in (2, 3, 4):
            with self.subTest(ranks=size):
                job, relay, ports = self.held(size)
                self.assertEqual(set(ports.values()), {"127.0.0.1"})
                thieves = [thief for port in ports if (thief := wire.steal(port))]
                relay.go_on()
                outputs = self.ends_undisturbed(job)
                self.assertIn(f" over {self.transport}\n", outputs[0])
                self.assertTrue(thieves, "nobody stood there before the ranks")
                heard = [heard_by(thief) for thief in thieves]
                self.assertTrue(any(heard) or not self.answers_thieves, "no pair was stolen")
                self.tells_nothing(job, b"".join(heard))

    @needs_interface
    def test_ranks_listen_at_the_interface_that_is_named_and_nowhere_else(self):
        name, own = interface_beside_loopback()
        for interface, store, expected in (("lo", own, "127.0.0.1"), (name, "127.0.0.1", own)):
            with self.subTest(interface=interface, rank_0=store):
                job, relay, ports = self.held(3, f"tcp:{store}:{free_port()}", TESSERA_INTERFACE=interface)
                self.assertEqual(set(ports.values()), {expected})
                relay.go_on()
                self.ends_undisturbed(job)

    @needs_interface
    def test_ranks_of_several_hosts_listen_where_rank_0_is_reached(self):
        """Hosts that share no memory are several to them."""
        name, own = interface_beside_loopback()
        job = self.job(2, TESSERA_TRANSPORT=self.transport, TESSERA_TIMEOUT_MS="60000")
        job.address = f"tcp:{own}:{free_port()}"
        relay = wire.Relay(f"tcp:{own}:0", job.address)
        self.addCleanup(relay.close)
        relay.hold(wire.JOINED)
        job.environment["TESSERA_HOST_ID"] = "a"
        job.start(0)
        job.environment["TESSERA_HOST_ID"] = "b"
        job.start(1, relay.address)
        self.assertTrue(relay.held.wait(60))
        ports = eventually(lambda: listening_ports(job.ranks[0].pid), "rank 0 listens for the other")
        self.assertEqual(set(ports.values()), {own})
        relay.go_on()
        self.ends_undisturbed(job)


class BetweenRanksByTls(BetweenRanks):
    """The same of connections by TLS: all come to one port, and a thief there is nobody's pair."""

    transport = "tls"
    answers_thieves = False

    def num_ports(self, size):
        return 1


@unittest.skipUnless(shutil.which("mpirun"), "mpirun is absent")
class ByMpi(Strangers):
    """Jobs whose ranks hear by MPI where rank 0 listens. Rank 1 has another secret, so that it never joins."""

    def hub_addresses(self, **environment):
        job = self.job(2)
        other = self.job(2)
        env = {key: value for key, value in os.environ.items() if not key.startswith(("TESSERA_", "OMPI_", "PMIX_"))}
        env |= {"TESSERA_STORE": "mpi", "TESSERA_TIMEOUT_MS": "60000", "TESSERA_NUM_THREADS": "1", **environment}
        ranks = [["-n", "1", "env", *(f"{key}={value}" for key, value in environment.items()), f"TESSERA_SECRET_FILE={file}",
                  "sh", "-c", f'echo $$ > {job.folder}/pid.{rank}; exec "$0" "$@"', str(JOB), str(STEPS), str(job.folder)]
                 for rank, file in enumerate((job.secret_file, other.secret_file))]
        launcher = subprocess.Popen([*MPIRUN, *ranks[0], ":", *ranks[1]], env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        job.ranks[0] = launcher  # ended with the test
        pid = eventually(lambda: (file := job.folder / "pid.0").exists() and file.read_text().strip(), "rank 0 starts")

        def found():
            if launcher.poll() is not None:
                raise AssertionError(launcher.stdout.read())
            return {host for port, host in listening_ports(pid).items() if is_hub("127.0.0.1" if host in EVERYWHERE else host, port)}

        return eventually(found, "rank 0 listens")

    def test_ranks_of_one_host_meet_at_its_loopback(self):
        self.assertEqual(self.hub_addresses(), {"127.0.0.1"})

    @needs_interface
    def test_ranks_meet_at_the_interface_that_is_named(self):
        name, own = interface_beside_loopback()
        self.assertEqual(self.hub_addresses(TESSERA_INTERFACE=name), {own})

    @needs_interface
    def test_ranks_of_several_hosts_meet_at_one_interface(self):
        _, own = interface_beside_loopback()
        self.assertEqual(self.hub_addresses(OMPI_COMM_WORLD_LOCAL_SIZE="1"), {own})


if __name__ == "__main__":
    main()
