"""msrun: a scheduler and workers, each a process that runs the same script with its MS_ROLE, whose output is a file of the folder of logs."""
import argparse
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

_COMPAT = Path(__file__).absolute().parents[3]
_COMMANDS = ("python", "python3", "pytest")
_POLL_S = 0.1
# How long a scheduler whose workers are gone may take to end by itself.
_SCHEDULER_ENDS_S = 30
_FOREVER_S = 2147483


class _Parser(argparse.ArgumentParser):
    def error(self, message):
        self.exit(2, f"{self.prog}: error: {message}; {self.prog} --help says what there is\n")


def _truth(text):
    if text not in ("True", "False"):
        raise argparse.ArgumentTypeError(f"must be True or False, but got {text}")
    return text == "True"


def _lacking(instead):
    def refuse(text):
        raise argparse.ArgumentTypeError(f"is not available: {instead}")

    return refuse


def _port(text):
    if not text.isdecimal() or not 1024 <= int(text) <= 65535:
        raise argparse.ArgumentTypeError(f"must be a number from 1024 to 65535, but got {text}")
    return int(text)


def _workers(text):
    if not re.fullmatch(r"-1|[0-9]+(,[0-9]+)*", text):
        raise argparse.ArgumentTypeError(f"must be -1 for all, or numbers of workers, separated by commas, but got {text}")
    return None if text == "-1" else {int(number) for number in text.split(",")}


def get_args(arguments=None):
    """The command line, sys.argv unless given, as a namespace; ends the process with code 2 where it is wrong."""
    parser = _Parser(prog="msrun", description="start a script as a scheduler and workers, whose outputs are scheduler.log and worker_N.log",
                     epilog="Exit codes: 0 when the processes were started, with --join=True when all ended with 0; 1 when one failed; 2 when the command line "
                     "is wrong; 128 + N after signal N.")
    add = parser.add_argument
    add("--worker_num", type=int, default=8, help="workers of the job (8)")
    add("--local_worker_num", type=int, default=8, help="workers that are started here (8)")
    add("--master_addr", default="127.0.0.1", help="address or name of the host of the scheduler, which is started where that is this host (127.0.0.1)")
    add("--master_port", type=_port, default=8118, help="the scheduler's port (8118)")
    add("--node_rank", type=int, default=-1, help="which of the hosts this is, from 0 on; each has as many workers")
    add("--log_dir", default="", help="the folder of logs, made where it is missing; default: this one")
    add("--join", type=_truth, default=False, help="True: wait until all have ended, show what workers write, and end the others where one fails (False)")
    add("--cluster_time_out", type=int, default=600, help="seconds until all processes must be there; negative: no limit (600)")
    add("--worker_log_name", default="", help="the name in front of _N.log, in which {ip} and {hostname} are this host's (worker)")
    add("--tail_worker_log", type=_workers, default=None, help="of which workers --join=True shows what they write: 0,3; default: -1, all")
    add("--bind_core", default="False", help="no effect: each process computes with its share of the host's cores")
    add("--bind_numa", default="False", help="the same")
    add("--sim_level", type=_lacking("tessera plan says how a job would be split, and what it needs, on one process"), help=argparse.SUPPRESS)
    add("--sim_rank_id", type=_lacking("tessera plan says how a job would be split, and what it needs, on one process"), help=argparse.SUPPRESS)
    add("--rank_table_file", type=_lacking("the scheduler says where the ranks are; leave it out"), help=argparse.SUPPRESS)
    add("task_script", help="the script, or python, python3 or pytest")
    add("task_script_args", nargs=argparse.REMAINDER, help="its arguments")
    args = parser.parse_args(arguments)
    if args.worker_num < 1:
        parser.error(f"--worker_num must be greater than 0, but got {args.worker_num}")
    if not 0 <= args.local_worker_num <= args.worker_num:
        parser.error(f"--local_worker_num must be from 0 to --worker_num, {args.worker_num}, but got {args.local_worker_num}")
    if args.node_rank >= 0 and args.local_worker_num < args.worker_num and (args.node_rank + 1) * args.local_worker_num > args.worker_num:
        parser.error(f"--node_rank {args.node_rank} with {args.local_worker_num} workers each is beyond --worker_num {args.worker_num}")
    for name in ("bind_core", "bind_numa"):
        if getattr(args, name).lower() != "false":
            print(f"msrun: --{name} has no effect: each process computes with its share of the host's cores, and TESSERA_NUM_THREADS says another number; "
                  "taskset and numactl in front of msrun bind all of them", file=sys.stderr)
    try:
        args.master_ip = socket.getaddrinfo(args.master_addr.strip("[]"), None, type=socket.SOCK_STREAM)[0][4][0]
    except OSError as error:
        parser.error(f"--master_addr {args.master_addr} is no address and no name of a host: {error}")
    return args


def _is_of_this_host(ip):
    """Whether a socket can listen there."""
    family = socket.AF_INET6 if ":" in ip else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((ip, 0))
        except OSError:
            return False
    return True


def _own_ip(master_ip):
    """The address of this host that the scheduler's sees."""
    family = socket.AF_INET6 if ":" in master_ip else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect((master_ip, 9))  # which sends nothing
        return probe.getsockname()[0]


class _Process:
    """A process of the job and its log. number: of a worker; None: the scheduler."""

    def __init__(self, what, number, command, environment, log, joins):
        self.what, self.number, self.log = what, number, log
        print(f"Start {what}, log file:{log}. Execute command: {' '.join(command)}", flush=True)
        with open(log, "wb") as file:
            self.process = subprocess.Popen(command, env=environment, stdin=None if joins else subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT,
                                            start_new_session=True)

    def show(self):
        """Writes on, as it comes, what the process writes, until it has ended."""
        with open(self.log, "rb") as file:
            while True:
                has_ended = self.process.poll() is not None
                text = file.read()
                if text:
                    sys.stdout.buffer.write(text)
                    sys.stdout.buffer.flush()
                elif has_ended:
                    return
                else:
                    time.sleep(_POLL_S)

    def end(self, number):
        """Sends the process, and what it has started, a signal."""
        try:
            os.killpg(self.process.pid, number)
        except ProcessLookupError:
            pass


class _Signal(Exception):
    """Ctrl-C, or a signal that ends this command."""


def _environment(args):
    """Of every process. The package mindspore is the one that this file is of."""
    paths = [str(_COMPAT), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    seconds = args.cluster_time_out if args.cluster_time_out > 0 else _FOREVER_S
    return os.environ | {
        "MS_WORKER_NUM": str(args.worker_num), "MS_SCHED_HOST": args.master_ip, "MS_SCHED_PORT": str(args.master_port), "MS_TOPO_TIMEOUT": str(seconds),
        "RANK_SIZE": str(args.worker_num), "PYTHONPATH": os.pathsep.join(dict.fromkeys(paths)), "PYTHONUNBUFFERED": "1"}


def _worker_name(args):
    name = args.worker_log_name or "worker"
    if "{ip}" in name:
        name = name.replace("{ip}", _own_ip(args.master_ip))
    return name.replace("{hostname}", socket.gethostname())


def _start(args, processes):
    """Starts the scheduler, on its own host only, and the workers, and adds each to the processes."""
    is_python = args.task_script in _COMMANDS
    command = [*([] if is_python else [sys.executable]), args.task_script, *args.task_script_args]
    if args.log_dir:
        os.makedirs(args.log_dir, mode=0o700, exist_ok=True)
    common = _environment(args)
    if _is_of_this_host(args.master_ip):
        processes.append(_Process("scheduler process", None, command, common | {"MS_ROLE": "MS_SCHED", "RANK_ID": "0"},
                                  os.path.join(args.log_dir, "scheduler.log"), args.join))
    name, first = _worker_name(args), None
    if args.local_worker_num == args.worker_num:
        first = 0
    elif args.node_rank >= 0:
        first = args.node_rank * args.local_worker_num
    elif args.local_worker_num:
        print("msrun: several hosts without --node_rank: ranks follow when all processes are there, worker_N.log is of any of them", file=sys.stderr)
    for i in range(args.local_worker_num):
        number = i if first is None else first + i
        own = {"MS_ROLE": "MS_WORKER", "DEVICE_ID": str(i)} | ({} if first is None else {"MS_NODE_ID": str(number), "RANK_ID": str(number)})
        log = os.path.join(args.log_dir, f"{name}_{number}.log")
        processes.append(_Process(f"worker process with rank id:{number}", number, command, common | own, log, args.join))


def _failed(workers):
    """Waits until all have ended with 0, or some have not, which it returns."""
    left = list(workers)
    while left:
        ended = [worker for worker in left if worker.process.poll() is not None]
        failed = [worker for worker in ended if worker.process.returncode]
        if failed:
            return failed
        left = [worker for worker in left if worker not in ended]
        time.sleep(_POLL_S if left else 0)
    return []


def _how(process):
    code = process.process.returncode
    return f"the {process.what} " + (f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}")


def _end_scheduler(scheduler):
    """Waits for it; where it does not end by itself, kills it."""
    try:
        scheduler.process.wait(_SCHEDULER_ENDS_S)
    except subprocess.TimeoutExpired:
        scheduler.end(signal.SIGKILL)
        scheduler.process.wait()


def _joined(args, processes):
    """The exit code, once all processes have ended."""
    workers = [process for process in processes if process.number is not None]
    shown = [worker for worker in workers if args.tail_worker_log is None or worker.number in args.tail_worker_log]
    threads = [threading.Thread(target=worker.show, daemon=True) for worker in shown]
    for thread in threads:
        thread.start()
    failed = _failed(workers)
    told = "; ".join(map(_how, failed))
    for worker in workers if failed else []:
        worker.end(signal.SIGKILL)
    for worker in workers:
        worker.process.wait()
    for thread in threads:
        thread.join()
    lines = []
    for scheduler in [process for process in processes if process.number is None]:
        _end_scheduler(scheduler)
        if scheduler.process.returncode and not failed:
            failed, told = [scheduler], _how(scheduler)
        lines = Path(scheduler.log).read_text(encoding="utf-8", errors="replace").splitlines()[-1:]
    if not failed:
        return 0
    logs = ", ".join(process.log for process in failed)
    for line in [*lines, f"msrun: the job has failed: {told}; what they have written is in {logs}, all logs are in {os.path.abspath(args.log_dir or '.')}"]:
        print(line, file=sys.stderr)
    return 1


def run(args):
    """Starts the processes. Returns the exit code: 0, or with args.join what the job has come to."""

    def on_signal(number, _):
        raise _Signal(number)

    processes = []
    if not args.join:
        _start(args, processes)
        return 0
    before = {number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        _start(args, processes)
        return _joined(args, processes)
    except _Signal as error:
        for process in processes:
            process.end(signal.SIGKILL)
            process.process.wait()
        return 128 + error.args[0]
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def main():
    """The command."""
    return run(get_args())


if __name__ == "__main__":
    sys.exit(main())
