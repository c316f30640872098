"""Certificates and files of certificates that are wrong, at a scheduler that is a process: refused with the reason, and nobody is registered.
What Tessera does not make, `openssl` does. The tests carry the numbers of docs/faults.md; tls_test.cc has others of them."""

import json
import os
import re
import secrets
import shutil
import socket
import ssl
import statistics
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

import attacked_jobs
from attacked_jobs import BIN, eventually
from simulated_workers import Certificates, Member, Scheduler, frame

TESSERA, JOB, RESNET = BIN / "tessera", BIN / "train_job", BIN / "resnet50_cifar10"
NODES = [f"node{number}" for number in range(5)]  # with a certificate each
OPENSSL_CONFIG = """
[ca]
default_ca = own
[own]
database = {folder}/database
new_certs_dir = {folder}
rand_serial = yes
unique_subject = no
policy = any
default_md = sha256
[any]
commonName = supplied
[worker]
basicConstraints = critical,CA:FALSE
keyUsage = critical,digitalSignature
extendedKeyUsage = clientAuth
subjectAltName = URI:tessera:worker:*
[req]
distinguished_name = name
[name]
"""


@unittest.skipUnless(shutil.which("openssl"), "certificates that Tessera does not make need the program openssl")
class AtTheDoor(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(prefix="tessera-tls."))
        self.addCleanup(shutil.rmtree, self.folder)
        self.certificates = Certificates(self.folder, TESSERA, NODES)
        self.tls = self.certificates.folder
        (self.tls / "database").touch()
        (self.tls / "openssl.conf").write_text(OPENSSL_CONFIG.format(folder=self.tls))

    def start(self, workers=2, **variables):
        self.certificates.environment |= variables
        self.scheduler = Scheduler(TESSERA, self.folder, workers, self.certificates, "--max_restarts", 9)
        self.addCleanup(self.said)

    def said(self):
        """Ends the scheduler: what it has said."""
        if not hasattr(self, "log"):
            self.log = self.scheduler.kill()
        return self.log

    def openssl(self, *words):
        done = subprocess.run(["openssl", *map(str, words)], capture_output=True, text=True, cwd=self.tls)
        self.assertEqual(done.returncode, 0, done.stderr)

    def issue(self, name, key=("-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256"), until_s=86400, digest="sha256", authority="ca", legacy=()):
        """A worker's certificate, as NAME.p12."""
        moment = lambda after_s: time.strftime("%y%m%d%H%M%SZ", time.gmtime(time.time() + after_s))
        self.openssl("genpkey", *key, "-out", f"{name}.key")
        self.openssl("req", "-new", "-config", "openssl.conf", "-key", f"{name}.key", "-subj", f"/CN={name}", "-out", f"{name}.csr")
        self.openssl("ca", "-batch", "-config", "openssl.conf", "-cert", f"{authority}.crt", "-keyfile", f"{authority}.key", "-in", f"{name}.csr", "-out",
                     f"{name}.crt", "-startdate", moment(-60), "-enddate", moment(until_s), "-extensions", "worker", "-md", digest, "-notext")
        self.pack(name, "-in", f"{name}.crt", "-inkey", f"{name}.key", *legacy)

    def pack(self, name, *words):
        self.openssl("pkcs12", "-export", *words, "-passout", f"file:{self.certificates.password}", "-out", f"{name}.p12")
        (self.tls / f"{name}.p12").chmod(0o600)

    def new_authority(self, name):
        """Another one with the name of the first."""
        self.openssl("req", "-x509", "-config", "openssl.conf", "-newkey", "rsa:2048", "-nodes", "-keyout", f"{name}.key", "-subj", "/CN=Tessera test authority",
                     "-addext", "basicConstraints=critical,CA:TRUE", "-out", f"{name}.crt")

    def config(self, name, **changes):
        path = self.tls / f"{secrets.token_hex(4)}.json"
        config = json.loads((self.tls / "config.json").read_text()) | {"client_cert_path": str(self.tls / f"{name}.p12")} | changes
        path.write_text(json.dumps(config))
        return {"TESSERA_TLS_CONFIG": str(path)}

    def ask(self, name, **changes):
        """(exit code, words) of who asks with this certificate."""
        done = subprocess.run([TESSERA, "cluster", "status", f"127.0.0.1:{self.scheduler.port}"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, timeout=60, env=os.environ | self.certificates.environment | self.config(name, **changes))
        self.assertNotIn(self.certificates.password.read_text(), done.stdout)
        return done.returncode, done.stdout

    def refused(self, name, words, **changes):
        code, said = self.ask(name, **changes)
        self.assertEqual(code, 1, said)
        self.assertRegex(said, words)

    def nobody_is_registered(self):
        code, said = self.ask("client")
        self.assertEqual(code, 0, said)
        self.assertIn("0 of 2 workers", said)

    def test_F54_who_speaks_no_tls_is_hung_up_on_and_who_meets_nobody_that_does_says_so(self):
        self.start()
        with socket.create_connection(("127.0.0.1", self.scheduler.port), timeout=10) as plain:
            plain.sendall(b"GET / HTTP/1.1\r\n\r\n")
            while plain.recv(4096):
                pass
        self.nobody_is_registered()
        self.assertRegex(self.said(), "turned away a connection from 127.0.0.1: it (speaks|said).*no TLS")
        with socket.create_server(("127.0.0.1", 0)) as other:
            plain = subprocess.Popen([TESSERA, "cluster", "status", "127.0.0.1:%d" % other.getsockname()[1]], stdout=subprocess.PIPE,
                                     stderr=subprocess.STDOUT, text=True, env=os.environ | self.certificates.environment)
            line = other.accept()[0]
            line.sendall(b"SSH-2.0-OpenSSH_9.2\r\n")
            said = plain.communicate(timeout=60)[0]
        self.assertEqual(plain.returncode, 1)
        self.assertRegex(said, "no TLS")

    def test_F55_certificates_that_the_authority_has_not_signed_are_refused_whatever_their_names(self):
        self.start()
        self.new_authority("same")
        self.issue("of_same_name", authority="same")
        self.refused("of_same_name", "not to be trusted", ca_cert_path=str(self.tls / "same.crt"), crl_path="")
        self.openssl("req", "-x509", "-config", "openssl.conf", "-newkey", "rsa:2048", "-nodes", "-keyout", "own.key", "-subj", "/CN=own", "-addext",
                     "subjectAltName=URI:tessera:worker:*", "-out", "own.crt")
        self.pack("own", "-in", "own.crt", "-inkey", "own.key")
        self.refused("own", "not to be trusted|self-signed")
        naked = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        naked.check_hostname = False
        naked.load_verify_locations(self.tls / "ca.crt")
        # A client of TLS 1.3 hears only after its handshake that it was refused.
        self.assertEqual(Member(self.scheduler.port, naked).enroll("a"), "without a word")
        self.nobody_is_registered()
        # Of several within a short time it names one.
        self.assertRegex(self.said(), "turned away a connection from 127.0.0.1: .*(certificate|unknown ca)")

    def test_F57_who_is_there_when_its_certificate_expires_stays_and_comes_no_more(self):
        self.start()
        # It must be in before its certificate expires: that is made, read and shown once for the time that it takes here.
        begin = time.monotonic()
        self.issue("long")
        self.assertEqual(Member(self.scheduler.port, self.certificates.context("long")).enroll("b"), "")
        until_s = 6 + int(10 * (time.monotonic() - begin))
        self.issue("short", until_s=until_s)
        expires = time.monotonic() + until_s
        member = Member(self.scheduler.port, self.certificates.context("short"))
        self.assertEqual(member.enroll("a"), "")
        while time.monotonic() < expires + 1.5:
            member.beat()
            time.sleep(0.2)
        self.refused("short", "certificate has expired")
        with self.assertRaises((ssl.SSLError, ConnectionError)):
            Member(self.scheduler.port, self.certificates.context("short")).beat()
        member.beat()
        self.assertRegex(self.said(), "certificate has expired")

    def test_F58_who_is_revoked_is_hung_up_on_within_a_second(self):
        self.start(workers=len(NODES))
        members = {node: Member(self.scheduler.port, self.certificates.context(node)) for node in NODES}
        self.assertEqual({member.enroll(node) for node, member in members.items()}, {""})
        observer = Member(self.scheduler.port, self.certificates.context("observer"))
        times = []
        for node, member in members.items():
            self.revoke(node)
            begin = time.monotonic()
            self.assertIsNone(member.hear("Status"))
            times.append(time.monotonic() - begin)
        # Unless the machine keeps the two waiting.
        self.assertLess(statistics.median(times), 1.5, times)
        observer.say(frame("AskStatus"))
        self.assertIsNotNone(observer.hear("Status"))
        self.assertRegex(self.said(), "revoked")

    def revoke(self, name):
        subprocess.run([TESSERA, "cluster", "make-certificates", self.tls, "--revoke", name], check=True, stdout=subprocess.DEVNULL,
                       env=os.environ | self.certificates.environment)

    def test_F58_a_revoked_scheduler_is_believed_by_nobody(self):
        self.start()
        before = self.tls / "before.pem"
        shutil.copy(self.tls / "crl.pem", before)
        self.revoke("server")
        after = self.tls / "after.pem"
        shutil.move(self.tls / "crl.pem", after)
        shutil.copy(before, self.tls / "crl.pem")  # it has not heard of it itself
        self.refused("client", "revoked", crl_path=str(after))

    def test_F59_an_empty_list_of_the_revoked_admits_nobody(self):
        self.start()
        empty = self.tls / "empty.pem"
        empty.touch()
        self.refused("client", "is none in PEM|no list|empty", crl_path=str(empty))
        (self.tls / "crl.pem").write_text("")
        eventually(lambda: self.ask("client", crl_path="")[0] == 1, "the scheduler reads it, and admits nobody")
        self.assertRegex(self.said(), "admits nobody until its files are right")

    def test_F61_each_file_that_cannot_be_used_has_a_message_of_its_own(self):
        self.start()
        self.issue("plain")
        messages = set()
        self.pack("keyless", "-in", "plain.crt", "-nokeys")
        self.issue("legacy", legacy=("-legacy", "-certpbe", "PBE-SHA1-RC2-40", "-keypbe", "PBE-SHA1-RC2-40"))
        (self.tls / "der.p12").write_bytes(os.urandom(300))
        (self.tls / "cut.p12").write_bytes((self.tls / "plain.p12").read_bytes()[:-40])
        shutil.copy(self.tls / "plain.p12", self.tls / "open.p12")
        for name in ("der", "cut"):
            (self.tls / f"{name}.p12").chmod(0o600)
        (self.tls / "open.p12").chmod(0o644)
        for name, words in (("keyless", "key"), ("legacy", "RC2|legacy|algorithm|unsupported"), ("der", "is no PKCS#12"), ("open", "chmod 600"), ("none", "No such file")):
            with self.subTest(name):
                code, said = self.ask(name)
                self.assertEqual(code, 1, said)
                self.assertRegex(said, words)
                messages.add(re.sub(r"/\S+", "", said))
        self.assertEqual(len(messages), 5, messages)
        code, said = self.ask("cut")
        self.assertEqual(code, 1, said)
        # What stands beside the certificate is no harm.
        self.new_authority("beside")
        self.pack("chain", "-in", "plain.crt", "-inkey", "plain.key", "-certfile", "beside.crt")
        code, said = self.ask("chain")
        self.assertEqual(code, 0, said)

    def test_F63_older_tls_and_weak_keys_are_refused_and_rsa_of_2048_bits_is_not(self):
        self.start()
        rsa = lambda bits: ("-algorithm", "RSA", "-pkeyopt", f"rsa_keygen_bits:{bits}")
        self.issue("strong", rsa(2048))
        code, said = self.ask("strong")
        self.assertEqual(code, 0, said)
        self.issue("weak", rsa(1024))
        self.refused("weak", "too weak|too small|1024")
        self.issue("old_digest", digest="sha1")
        self.refused("old_digest", "too weak|SHA-1|sha1|digest")
        for version in (ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1, ssl.TLSVersion.TLSv1_2):
            context = self.certificates.context()
            context.set_ciphers("ALL:@SECLEVEL=0")
            context.minimum_version = context.maximum_version = version
            with self.subTest(version), self.assertRaises((ssl.SSLError, ConnectionError)):
                Member(self.scheduler.port, context)
        context = self.certificates.context()
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        self.assertEqual(Member(self.scheduler.port, context).enroll("a"), "")

    def test_F65_no_password_and_no_key_stands_in_a_checkpoint_a_log_a_report_or_the_state(self):
        self.start()
        data = self.folder / "cifar"
        subprocess.run([RESNET, "--make_data", data, "--train_records", "320", "--test_records", "40"], check=True, stdout=subprocess.DEVNULL)
        left = self.folder / "left"
        for name in ("client", "server"):
            self.certificates.context(name)
        done = subprocess.run([TESSERA, "run", "--join", f"127.0.0.1:{self.scheduler.port}", "-n", "2", "--num_threads", "1", "--log_dir", left / "logs",
                               "--report_dir", left / "reports", JOB, "--data_path", data, "--steps", "6", "--checkpoint_dir", left / "saved", "--save_steps", "3"],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=120, env=os.environ | self.certificates.environment | {"TESSERA_LOG_LEVEL": "debug"})
        self.assertEqual(done.returncode, 0, done.stdout)
        self.scheduler.process.wait(timeout=30)
        texts = {"what it prints": done.stdout, "the scheduler": self.said().encode(), "the state": (self.folder / "state").read_bytes()}
        texts |= {str(path): path.read_bytes() for path in left.rglob("*") if path.is_file()}
        self.assertTrue(any(name.endswith(".ckpt") for name in texts), texts.keys())
        hidden = [self.certificates.password.read_bytes()]
        for name in ("client", "server"):
            lines = re.search(r"-----BEGIN PRIVATE KEY-----\n(.*?)-----END", (self.tls / f"{name}.pem").read_text(), re.S)[1]
            der = ssl.PEM_cert_to_DER_cert(f"-----BEGIN CERTIFICATE-----\n{lines}-----END CERTIFICATE-----\n")
            scalar = der[der.index(b"\x04\x20") + 2:][:32]  # of a key of P-256: 32 bytes as an octet string
            hidden += [scalar, scalar.hex().encode(), lines.splitlines()[1].encode()]
        for name, text in texts.items():
            for one in hidden:
                self.assertNotIn(one, text, name)


if __name__ == "__main__":
    attacked_jobs.main(__name__)
