"""Ports for programs that are told theirs."""
import secrets
import socket
from pathlib import Path


def free_port():
    """A port of 127.0.0.1 that is free, and stays so until it is used: it is below those that the system itself gives to who asks for any."""
    first_drawn = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    lowest, end = (10_000, first_drawn) if first_drawn > 12_000 else (1024, 65_536)
    while True:
        port = lowest + secrets.randbelow(end - lowest)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
