"""tessera-job, and `tessera job`: a job's manifest is looked at, and run on this machine, before a cluster sees it. What reads manifests is imported
where it is needed: the command helps, and says what it lacks, where there is no PyYAML."""

import argparse
import errno
import os
import re
import signal
import sys
from pathlib import Path

from tessera_operator import installation, needs
from tessera_operator.job import InvalidManifest, OutputLost
from tessera_operator.pod_rules import fault_of_label

DESCRIPTION = """Looks at the manifest of an MSJob or a TesseraJob, and runs it on this machine, before a cluster sees it; prints what installs the operator that
runs them in a cluster."""
CODES = """exit codes: 0 success; 1 the job has failed, or a file cannot be read; 2 the manifest or the command line is wrong: all that is wrong is
said, each fault with the path of its field; 128 + N after signal N."""
RENDER = """Prints the objects that the operator makes of the job, in their order: its Service, its Secret (whose value the operator draws), its pods.
Nothing is asked of a cluster.

examples:
  tessera job render job.yaml
  tessera job render job.yaml | grep -A1 'name: MS_'          what each pod is told
  tessera job render job.yaml --pod mnist-worker-0"""
RUN = """Runs the job as the operator would, with processes of this machine in the place of pods: the scheduler, then servers, then workers, each with the
command, the arguments and the variables of its container; a pod that fails is started again as its restartPolicy says, and the job ends as its
successPolicy says. Lines of output begin with the pod's name. Ctrl-C and SIGTERM end all pods; a second one kills them.

Other than in a pod: programs are those of this machine (an image's own command is not known: name it), and run as this user; limits of resources and
probes do not hold; `suspend` does not hold a job back. Mounted paths are replaced in commands, arguments and variables by folders of this machine, and
so are those of --path: a folder of the image, or one of a node that a volume (hostPath) names, or one above it. Paths that the program itself knows are not.

examples:
  tessera job run job.yaml --local
  tessera job run job.yaml --local --workers 2                two workers instead of as many as a cluster has room for
  tessera job run job.yaml --local --path /train=./train      the folder /train of the image, or of a hostPath, is ./train here
  tessera job run job.yaml --local --secret bert-certificates=./tls --claim bert-data=./data"""

MANIFESTS = """Prints the operator's own manifests, for kubectl: CRDs, namespace, rights, Deployment. Or writes the folder with all that belongs to it: the Kustomize
base (config), samples of jobs (config/samples), the Helm chart (chart), and what the operator's image is built of.

examples:
  tessera job manifests --to operator && podman build -t registry.example/tessera-operator:0.1.0 operator
  tessera job manifests --image registry.example/tessera-operator:0.1.0 | kubectl apply --server-side -f -
  tessera job manifests --crds | kubectl apply --server-side -f -      after helm upgrade, which does not change CRDs"""


class UsageError(Exception):
    """A command line that is wrong."""


class Unreadable(Exception):
    """A file that cannot be read."""


def _pair(text):
    name, equals, folder = text.partition("=")
    if not equals or not name or not folder:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=FOLDER")
    if not Path(folder).is_dir():
        raise argparse.ArgumentTypeError(f"{folder} is no folder")
    return name, Path(folder).resolve()


def _number(least, most):
    def parse(text):
        if not text.isdecimal() or not least <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"{text!r} is no number from {least} to {most}")
        return int(text)
    return parse


def _parser():
    parser = argparse.ArgumentParser(prog="tessera job", description=DESCRIPTION, epilog=CODES)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def command(name, text, help_text):
        added = commands.add_parser(name, description=text, help=help_text, epilog=CODES, formatter_class=argparse.RawDescriptionHelpFormatter)
        added.add_argument("file", metavar="FILE", help="a manifest, as YAML or JSON; -: standard input. What else it has is left out, but for Secrets and "
                           "ConfigMaps that the job names")
        added.add_argument("--job", metavar="NAME", help="the job, where the file has several")
        added.add_argument("--namespace", metavar="NAME", help="the job's namespace (default: what the file says, else default)")
        return added

    render = command("render", RENDER, "print the objects that a job becomes")
    render.add_argument("--pod", metavar="NAME", help="print this pod alone")
    run = command("run", RUN, "run a job on this machine")
    run.add_argument("--local", action="store_true", help="on this machine; a cluster is given the file by kubectl apply")
    run.add_argument("--workers", type=_number(1, 4096), metavar="N", help="so many workers")
    run.add_argument("--port", type=_number(1, 65535), metavar="N", help="the scheduler's port (default: the manifest's)")
    run.add_argument("--path", type=_pair, action="append", default=[], metavar="PATH=FOLDER", help="where a folder of the image, or of a node (hostPath), is here")
    run.add_argument("--secret", type=_pair, action="append", default=[], metavar="NAME=FOLDER", help="a folder with the files of a Secret")
    run.add_argument("--config", type=_pair, action="append", default=[], metavar="NAME=FOLDER", help="a folder with the files of a ConfigMap")
    run.add_argument("--claim", type=_pair, action="append", default=[], metavar="NAME=FOLDER", help="a folder in the place of a PersistentVolumeClaim")
    manifests = commands.add_parser("manifests", description=MANIFESTS, help="print what installs the operator in a cluster", epilog=CODES,
                                    formatter_class=argparse.RawDescriptionHelpFormatter)
    manifests.add_argument("--crds", action="store_true", help="print the CRDs alone")
    manifests.add_argument("--image", metavar="NAME", help="the operator's image, as the nodes of the cluster find it (default: tessera-operator of this version)")
    manifests.add_argument("--to", metavar="FOLDER", help="write everything into this folder, which is made")
    return parser


def _words_of(failure):
    """An error of the system in words, without its number."""
    return failure.strerror or str(failure)


def _print(text):
    """On standard output, where it has arrived when this returns. Throws OutputLost; whoever has read enough and gone is content."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except OSError as failure:
        # What is left in its buffer would fail again at the end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(failure, BrokenPipeError):
            raise OutputLost(failure) from None


def _options(arguments):
    try:
        return _parser().parse_args(arguments)
    except SystemExit as end:
        if not end.code:
            _print("")  # the help, which has been written, arrives
        raise


def _take_closed_streams():
    """What a shell has closed (`>&-`) gives its number to nothing else that is opened, and is written to nowhere."""
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")


def _read(file, origin):
    if file == "-" and sys.stdin is None:
        raise Unreadable(f"{origin}: it is closed")
    try:
        content = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    except IsADirectoryError:
        raise Unreadable(f"{origin}: it is a folder; name the file of a manifest in it") from None
    except OSError as failure:
        raise Unreadable(f"{origin}: {_words_of(failure)}") from None
    try:
        return content.decode()
    except UnicodeDecodeError as wrong:
        line = content.count(b"\n", 0, wrong.start) + 1
        raise InvalidManifest(origin, [f"line {line}: it is no text in UTF-8: the byte 0x{content[wrong.start]:02x} cannot stand there"]) from None


def _load(options):
    origin = "standard input" if options.file == "-" else options.file
    from tessera_operator.manifest import load
    if options.namespace is not None and (wrong := fault_of_label(options.namespace)):
        raise UsageError(f"--namespace: {wrong}")
    manifest = load(_read(options.file, origin), origin, options.job, options.namespace)
    for note in manifest.notes:
        print(f"{origin}: {note}", file=sys.stderr)
    if manifest.others:
        print(f"{origin}: left out: {', '.join(manifest.others)}", file=sys.stderr)
    return manifest


def _render(options):
    from tessera_operator.render import objects_of, text_of
    manifest = _load(options)
    found = objects_of(manifest.body)
    if options.pod is not None:
        pods = {item["metadata"]["name"]: item for item in found if item["kind"] == "Pod"}
        if options.pod not in pods:
            raise UsageError(f"--pod {options.pod}: the job has no such pod; it has {', '.join(list(pods)[:10])}" + (", ..." if len(pods) > 10 else ""))
        found = [pods[options.pod]]
    _print(text_of(found))
    return 0


def _files_of(folders):
    """The files of each folder, as the keys of a Secret or ConfigMap."""
    return {name: {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.is_file()} for name, folder in folders}


def _run(options):
    if not options.local:
        raise UsageError("run needs --local: it runs the job on this machine; a cluster is given the file by: kubectl apply -f FILE")
    from tessera_operator.local_cluster import run_here
    manifest = _load(options)
    for path, _ in options.path:
        if not path.startswith("/"):
            raise UsageError(f"--path {path}=...: a path of an image begins with /")
    faults, code = run_here(manifest, options.workers, options.port, _files_of(options.secret), _files_of(options.config), dict(options.claim),
                            dict(options.path))
    if faults:
        raise InvalidManifest(options.file, faults)
    return code


def _manifests(options):
    if options.image is not None and not re.fullmatch(r"\S+", options.image):
        raise UsageError(f"--image {options.image!r}: an image's name has at least one character and no spaces, as registry.example/tessera-operator:0.1.0")
    if options.to is None:
        if options.crds and options.image is not None:
            raise UsageError("--crds prints nothing that names an image: leave out --image, or --crds")
        _print(installation.base(options.image, options.crds))
        return 0
    if options.image is not None or options.crds:
        raise UsageError("--to writes everything, with the image as it is: it is named in the folder, by config/kustomization.yaml and chart/values.yaml; "
                         "--image and --crds are of what is printed")
    try:
        installation.write(options.to)
    except FileExistsError:
        raise UsageError(f"--to {options.to}: there is something of that name; name a folder that is to be made") from None
    _print(f"""{options.to} is the operator's folder; next:
  podman build -t {installation.image()} {options.to}
  kubectl apply --server-side -k {options.to}/config       or by Helm: {options.to}/chart
""")
    return 0


def main(arguments=None):
    _take_closed_streams()
    try:
        if sys.stdout is None:  # the shell has closed it
            raise OutputLost(OSError(errno.EBADF, os.strerror(errno.EBADF)))
        options = _options(arguments)
        return {"render": _render, "run": _run, "manifests": _manifests}[options.command](options)
    except ModuleNotFoundError as missing:
        if missing.name != "yaml":
            raise
        print(f"error: {needs.words_of_job()}", file=sys.stderr)
        return 1
    except (InvalidManifest, UsageError) as fault:
        for line in str(fault).splitlines():
            print(f"error: {line}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:  # before the job has begun
        print("ended by SIGINT", file=sys.stderr)
        return 128 + signal.SIGINT
    except (Unreadable, OutputLost, installation.NotInstalled) as failure:
        print(f"error: {failure}", file=sys.stderr)
        return 1
    except OSError as failure:
        print(f"error: {failure.filename or 'tessera job'}: {_words_of(failure)}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
