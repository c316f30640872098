"""A pod as processes of this machine: the commands, arguments and variables of its containers, its volumes as folders, its end by signals.

What a container's image and its limits are is nothing here: programs are those of this machine, and see its files. Where a mounted path stands in a
word or a variable, it becomes the folder where the volume lies.
"""

import os
import posixpath
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from tessera_operator import local_guard, names, quantity
from tessera_operator.pod_rules import VARIABLE
from tessera_operator.status import text_of

ADDRESS = "127.0.0.1"
# Of the shell that starts a job: what would tell a process that it is a rank of another one.
FOREIGN = ("TESSERA_", "MS_", "OMPI_", "PMIX_", "SLURM", "RANK_", "DEVICE_ID", "MINDSPORE_HCCL_CONFIG_PATH")
# Those for whoever runs the programs of this machine stay: where they lie, how they are spoken of, and where they write what they know of a failure.
KEPT = ("TESSERA_CUDA_", "TESSERA_PLUGIN_DIR", "TESSERA_LOG_LEVEL", "TESSERA_NUM_THREADS", "TESSERA_REPORT_DIR")
# Beside PYTHON where the command `tessera` of a wheel has set that, for itself.
PYTHON_IS_OURS = "_PYTHON_OF_TESSERA_JOB"
INTERPRETER = re.compile(r"python[0-9.]*|bash|sh")
GUARD = [sys.executable, "-I", "-S", "-B", local_guard.__file__]
MAX_TEXT = 128 << 10  # a process's arguments and NAME=VALUE are shorter than that: Linux' MAX_ARG_STRLEN
END_S = 30  # so long programs that were killed may take to end
NOT_STARTED = 128  # as a kubelet says of a container whose program cannot be started


class Refused(Exception):
    """A part of a pod that cannot be had here: `path` within the pod's spec."""

    def __init__(self, path, message):
        super().__init__(message)
        self.path = path


def _throw(fault):
    raise fault


class TooLong(Exception):
    """A text that no process can be given."""


def _bounded(text):
    if len(text) >= MAX_TEXT or len(text.encode(errors="surrogateescape")) >= MAX_TEXT:
        raise TooLong
    return text


def expand(text, variables):
    """$(NAME) as Kubernetes expands it; $$ is a $, and what is not known stays. Throws TooLong before it takes the memory."""
    length = 0

    def value(match):
        nonlocal length
        found = "$" + match.group(0)[2:] if match.group(0).startswith("$$") else variables.get(match.group(1), match.group(0))
        length += len(found)
        if length >= MAX_TEXT:
            raise TooLong
        return found
    return _bounded(re.sub(r"\$\$\(\w+\)|\$\(([-.\w]+)\)|\$\$", value, text))


def own_environment():
    """This process's, without what makes it a rank of another job, and without what the command itself has set."""
    ours = ("PYTHON", PYTHON_IS_OURS) if PYTHON_IS_OURS in os.environ else ()
    return {name: value for name, value in os.environ.items()
            if name not in ours and (not name.startswith(FOREIGN) or name.startswith(KEPT))}


class Here:
    """What a pod finds on this machine: folders for volumes by their names, and for paths of an image or a node. `folder`, a JobFolder, is where the rest lies."""

    def __init__(self, folder, secrets=None, config_maps=None, claims=None, paths=None):
        self.folder, self.held = folder.path, folder.held
        self.secrets, self.config_maps = secrets or {}, config_maps or {}  # name -> {key: bytes}
        self.claims, self.paths = claims or {}, paths or {}  # name of a claim, path of an image or a node -> folder
        self.used = {"--secret": set(), "--config": set(), "--claim": set(), "--path": set()}  # what a pod has asked for, by the option that gives it


def _write_within(folder, name, content, path):
    """A new file of a volume. Whatever its name is, nothing else is written: that names do not lead elsewhere was checked before (pod_rules)."""
    target = folder / name
    try:
        if posixpath.normpath(name).startswith(("/", "..")) or not target.resolve().is_relative_to(folder.resolve()):
            raise Refused(path, f'the file "{name}" would not lie in the volume')
        target.parent.mkdir(parents=True, exist_ok=True)
        with open(os.open(target, os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_WRONLY, 0o600), "wb") as file:
            file.write(content)
    except (OSError, ValueError) as failure:
        why = failure.strerror if isinstance(failure, OSError) else failure
        raise Refused(path, f'the file "{name}" cannot be made in the volume: {why}') from None


class Layout:
    """Where the volumes of a pod lie, and what its containers' words and variables become. Throws Refused."""

    def __init__(self, pod, here, service, folder):
        self.pod, self.here, self.service, self.folder = pod, here, service, Path(folder)
        self.volumes = {volume["name"]: (index, volume) for index, volume in enumerate(pod["spec"].get("volumes") or [])}

    def mount(self):
        """Makes the folders of all volumes."""
        return {name: self._place(index, volume) for name, (index, volume) in self.volumes.items()}

    def _place(self, index, volume):
        path, own = f"volumes[{index}]", self.folder / "volumes" / volume["name"]
        if "hostPath" in volume:
            named = volume["hostPath"]["path"]
            place = self._of_node(named)
            if place != Path(named) and not place.exists():
                raise Refused(f"{path}.hostPath.path", f"{named}, here {place}, does not exist")
            return place
        if "persistentVolumeClaim" in volume:
            claim = volume["persistentVolumeClaim"]["claimName"]
            self.here.used["--claim"].add(claim)
            if claim not in self.here.claims:
                raise Refused(f"{path}.persistentVolumeClaim.claimName", f'name a folder for the claim "{claim}": --claim {claim}=FOLDER')
            return self.here.claims[claim]
        files = {}
        if "secret" in volume:
            source = volume["secret"]
            files = self._files(source | {"name": source["secretName"]}, self.here.secrets, "Secret", "--secret", f"{path}.secret.secretName")
        elif "configMap" in volume:
            files = self._files(volume["configMap"], self.here.config_maps, "ConfigMap", "--config", f"{path}.configMap.name")
        elif "downwardAPI" in volume:
            files = self._downward(volume["downwardAPI"], f"{path}.downwardAPI")
        elif "projected" in volume:
            for number, source in enumerate(volume["projected"]["sources"]):
                place = f"{path}.projected.sources[{number}]"
                if "secret" in source:
                    files |= self._files(source["secret"], self.here.secrets, "Secret", "--secret", f"{place}.secret.name")
                elif "configMap" in source:
                    files |= self._files(source["configMap"], self.here.config_maps, "ConfigMap", "--config", f"{place}.configMap.name")
                elif "downwardAPI" in source:
                    files |= self._downward(source["downwardAPI"], f"{place}.downwardAPI")
                else:
                    raise Refused(place, f"a volume of this kind ({', '.join(source)}) cannot be had without a cluster")
        elif "emptyDir" not in volume:
            kind = ", ".join(sorted(set(volume) - {"name"})) or "none"
            raise Refused(path, f"a volume of this kind ({kind}) cannot be had without a cluster")
        own.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            _write_within(own, name, content, path)
        return own

    def _files(self, source, found, kind, option, path):
        name = source.get("name", "")
        self.here.used[option].add(name)
        if name not in found:
            if source.get("optional"):
                return {}
            raise Refused(path, f'name a folder with the files of the {kind} "{name}": {option} {name}=FOLDER')
        data = found[name]
        files = {}
        for item in source.get("items") or [{"key": key, "path": key} for key in data]:
            if item["key"] in data:
                files[item["path"]] = data[item["key"]]
            elif not source.get("optional"):
                raise Refused(path, f'the {kind} "{name}" has no key {item["key"]}')
        return files

    def _downward(self, source, path):
        return {item["path"]: self._field(item, f"{path}.items[{index}]", None).encode() for index, item in enumerate(source.get("items") or [])}

    def _field(self, source, path, container):
        """The text of a fieldRef or a resourceFieldRef."""
        if "fieldRef" in source:
            return self._text_of_field(source["fieldRef"]["fieldPath"], f"{path}.fieldRef.fieldPath")
        asked = source["resourceFieldRef"]["resource"]
        kind, _, resource = asked.partition(".")
        value = (((container or {}).get("resources") or {}).get(kind) or {}).get(resource)
        if value is None:
            raise Refused(f"{path}.resourceFieldRef.resource", f"the container has no {asked}, and a node's size is not known here")
        return quantity.whole_number(value, source["resourceFieldRef"].get("divisor", 1))

    def _text_of_field(self, asked, path):
        metadata, spec = self.pod["metadata"], self.pod["spec"]
        plain = {"metadata.name": metadata["name"], "metadata.namespace": metadata["namespace"], "metadata.uid": metadata["uid"],
                 "spec.nodeName": os.uname().nodename, "spec.serviceAccountName": spec.get("serviceAccountName", "default"), "status.podIP": ADDRESS,
                 "status.podIPs": ADDRESS, "status.hostIP": ADDRESS, "status.hostIPs": ADDRESS}
        if asked in plain:
            return plain[asked]
        of_map = re.fullmatch(r"metadata\.(labels|annotations)(?:\['(.+)'\])?", asked)
        if not of_map:
            raise Refused(path, f'"{asked}" is no field that a pod has here')
        values = metadata.get(of_map.group(1)) or {}
        if of_map.group(2):
            return values.get(of_map.group(2), "")
        return "\n".join(f"{key}={_quoted(value)}" for key, value in sorted(values.items()))

    def environment(self, container, path, say=_throw):
        """Its variables, all of them. `say` is told of each that cannot be had."""
        found = own_environment() | {"HOSTNAME": self.pod["spec"].get("hostname", self.pod["metadata"]["name"])}
        left = os.sysconf("SC_ARG_MAX") - sum(len(name) + len(value) for name, value in found.items())

        def add(name, value, place):
            nonlocal left
            if "\0" in value:
                raise Refused(place, f"the variable {name} has the character U+0000, where a text ends")
            if len(f"{name}={value}".encode(errors="surrogateescape")) >= MAX_TEXT:
                raise Refused(place, f"the variable {name} is longer than a process can be given: {MAX_TEXT >> 10} KiB with its name")
            left -= len(name) + len(value)
            if left < 0:
                raise Refused(place, f"up to {name} the variables have more than {os.sysconf('SC_ARG_MAX') >> 10} KiB, which is more than a process can be given")
            found[name] = value

        for index, source in enumerate(container.get("envFrom") or []):
            place = f"{path}.envFrom[{index}]"
            try:
                part = next((part for part in ("secretRef", "configMapRef") if part in source), None)
                if part is None:
                    raise Refused(place, "it names neither a secretRef nor a configMapRef")
                kind = ("Secret", "--secret") if part == "secretRef" else ("ConfigMap", "--config")
                files = self._files(source[part], self.here.secrets if part == "secretRef" else self.here.config_maps, *kind, f"{place}.{part}.name")
                for key, content in files.items():
                    name = (source.get("prefix") or "") + key
                    if not VARIABLE.fullmatch(name):
                        raise Refused(f"{place}.{part}.name", f"{name!r} is no name of a variable")
                    add(name, self._decoded(content, key, f"{place}.{part}.name"), f"{place}.{part}.name")
            except Refused as fault:
                say(fault)
        for index, variable in enumerate(container.get("env") or []):
            place, name = f"{path}.env[{index}]", variable["name"]
            try:
                if "valueFrom" not in variable:
                    add(name, self._expanded(container, variable.get("value") or "", found, f"{place}.value", f"the variable {name} becomes"), f"{place}.value")
                    continue
                value = self._value_from(variable["valueFrom"], f"{place}.valueFrom", container)
                if value is not None:
                    add(name, value, f"{place}.valueFrom")
            except Refused as fault:
                say(fault)
        return found

    def _expanded(self, container, text, variables, place, what):
        try:
            return _bounded(self.here_of(container, expand(text, variables)))
        except TooLong:
            raise Refused(place, f"{what} longer than a process can be given: {MAX_TEXT >> 10} KiB") from None

    @staticmethod
    def _decoded(content, key, place):
        try:
            return content.decode()
        except UnicodeDecodeError:
            raise Refused(place, f"the value of {key} is no text in UTF-8, as a variable's must be") from None

    def faults(self):
        """All that cannot be had here. Makes the volumes' folders."""
        found = []
        for index, volume in self.volumes.values():
            try:
                self._place(index, volume)
            except Refused as fault:
                found.append(fault)
        for kind in ("initContainers", "containers"):
            for index, container in enumerate(self.pod["spec"].get(kind) or []):
                path = f"{kind}[{index}]"
                try:
                    self.words(container, path, self.environment(container, path, found.append))
                except Refused as fault:
                    found.append(fault)
        return found

    def _value_from(self, source, path, container):
        for kind, field, found, option in (("Secret", "secretKeyRef", self.here.secrets, "--secret"),
                                           ("ConfigMap", "configMapKeyRef", self.here.config_maps, "--config")):
            if field in source:
                files = self._files(source[field] | {"items": [{"key": source[field]["key"], "path": "value"}]}, found, kind, option, f"{path}.{field}")
                return self._decoded(files["value"], source[field]["key"], f"{path}.{field}") if "value" in files else None
        if "fieldRef" in source or "resourceFieldRef" in source:
            return self._field(source, path, container)
        raise Refused(path, f"a value of this kind ({', '.join(source)}) cannot be had without a cluster")

    def words(self, container, path, variables):
        """Program and arguments."""
        fields = [(f"{path}.{field}[{index}]", word) for field in ("command", "args") for index, word in enumerate(container.get(field) or [])]
        words = [self._expanded(container, word, variables, place, "it becomes") for place, word in fields]
        if not container.get("command"):
            raise Refused(f"{path}.command", "it is missing: what an image starts by itself is not known here")
        folder = self.working_folder(container)
        if not folder.is_dir():
            named = container["workingDir"]
            is_placed = folder != Path(named)
            raise Refused(f"{path}.workingDir", f"{named}, here {folder}, is no folder" if is_placed else
                          f"{folder} is no folder here; --path PATH=FOLDER says where a folder of the image is")
        program = words[0]
        # Of a word with variables the manifest's own text is said: their values may be secrets.
        told = [word if expand(word, variables) != word else here for (_, word), here in zip(fields, words)]
        found = shutil.which(program, path=variables.get("PATH")) if "/" not in program else str(folder / program)
        if not found or not os.access(found, os.X_OK):
            raise Refused(f"{path}.command[0]", f'"{told[0]}" is no program here' + ("" if "/" in program else ", it is not in PATH"))
        script = next((index for index, word in enumerate(words) if index and not word.startswith("-")), None)
        if script is not None and INTERPRETER.fullmatch(Path(program).name) and re.fullmatch(r"/\S+", words[script]) and not os.path.exists(words[script]):
            _, named = fields[script]
            if told[script] != words[script]:
                raise Refused(f"{path}.command", f"there is no {named} here, with the values of its variables; --path PATH=FOLDER says where a folder of "
                              "the image is")
            raise Refused(f"{path}.command", f"{named}, here {words[script]}, does not exist" if words[script] != named else
                          f"there is no {named} here; --path {Path(named).parent}=FOLDER says where that folder of the image is")
        return words

    def working_folder(self, container):
        return Path(self.here_of(container, container.get("workingDir") or "."))

    def here_of(self, container, text):
        """A text of the container with the paths and the address that it stands for here."""
        paths = {path.rstrip("/"): path for path in self.here.paths}
        places = {plain: self.here.paths[path] for plain, path in paths.items()}
        for mount in container.get("volumeMounts") or []:
            if mount["name"] in self.volumes:
                at, place = mount["mountPath"].rstrip("/"), self.place_of(mount["name"])
                if at in paths and "hostPath" in self.volumes[mount["name"]][1]:
                    continue  # --path says where the folder is, by the name that the container has for it
                places[at] = place / mount["subPath"] if mount.get("subPath") else place
                paths.pop(at, None)  # what is mounted there hides the image's folder
        if self.service:
            name, namespace = self.service
            text = re.sub(rf"(?<![\w.-]){re.escape(name)}\.{re.escape(namespace)}\.svc(\.cluster\.local)?(?![\w-])", ADDRESS, text)
        if not places:
            return text
        known = "|".join(re.escape(path) for path in sorted(places, key=len, reverse=True) if path)

        def folder_of(match):
            if match.group(1) in paths:
                self.here.used["--path"].add(paths[match.group(1)])
            return str(places[match.group(1)])
        return re.sub(rf"(?<![\w/.-])({known})(?![\w.-])", folder_of, text) if known else text

    def _of_node(self, path):
        """Where a folder of the node is here: in what the longest --path says that has it, else under its own name."""
        path = posixpath.normpath(path)
        for named in sorted(self.here.paths, key=len, reverse=True):
            above = posixpath.normpath(named)
            if f"{path}/".startswith(f"{above.rstrip('/')}/"):
                self.here.used["--path"].add(named)
                return self.here.paths[named] / posixpath.relpath(path, above)
        return Path(path)

    def place_of(self, volume_name):
        """Where it lies, whether or not it was made already."""
        _, volume = self.volumes[volume_name]
        if "hostPath" in volume:
            return self._of_node(volume["hostPath"]["path"])
        if "persistentVolumeClaim" in volume:
            return Path(self.here.claims.get(volume["persistentVolumeClaim"]["claimName"], self.folder))
        return self.folder / "volumes" / volume_name


def _quoted(text):
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def _new_folder():
    """Below TMPDIR, where that is set: nowhere else then. Throws OSError."""
    named = os.environ.get("TMPDIR")
    try:
        return Path(tempfile.mkdtemp(prefix="tessera-job.", dir=os.path.abspath(named) if named else None))
    except OSError as failure:
        raise OSError(failure.errno, failure.strerror, f"TMPDIR={named}" if named else failure.filename) from None


class JobFolder:
    """A job's folder, with its secrets: removed at the end, also where this process is killed, by a guard that waits for that. What a program's guard
    has not ended, as it was killed itself, falls to this process, and ends then, too; not where this process had children before, from whose leavings
    it could not be told."""

    def __init__(self):
        self._adopts = not local_guard.children()
        if self._adopts:
            local_guard.adopt_fallen_processes()
        self.path = _new_folder()
        self._guard = None
        try:
            waits, self.held = os.pipe()
            try:
                self._guard = subprocess.Popen([*GUARD, "folder", str(self.path)], stdin=waits, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                               cwd="/", start_new_session=True)
            finally:
                os.close(waits)
        except BaseException:
            self.remove()
            raise

    def remove(self):
        """Returns when no program of the job is left that could write there."""
        if self._guard is not None:
            os.close(self.held)
            try:
                self._guard.wait(END_S)
            except subprocess.TimeoutExpired:  # a program's guard does not answer, as one that was stopped
                self._guard.kill()
                self._guard.wait()
        if self._adopts:
            local_guard.end_children(END_S)
        shutil.rmtree(self.path, ignore_errors=True)
        try:
            shutil.rmtree(self.path)
        except FileNotFoundError:
            pass
        except OSError as failure:
            print(f"the job's folder {self.path} cannot be removed ({failure.filename}: {failure.strerror}): it may have the job's secrets; remove it",
                  file=sys.stderr)


class Output:
    """Lines of several programs, each in one piece, with the name of who wrote it. They are written at once, by the descriptors alone: a thread that
    waits for whoever reads them holds no lock that this process's end needs."""

    def __init__(self, out=1, err=2):
        self._descriptors = {"out": out, "err": err}
        self._locks = {"out": threading.Lock(), "err": threading.Lock()}
        self.failure = None  # the OSError by which lines of standard output were lost; a reader that has gone is none

    def write(self, stream, name, line):
        failure = self._write(stream, f"[{name}] ".encode() + line.rstrip(b"\n") + b"\n")
        if stream == "out" and failure is not None and self.failure is None:
            self.failure = failure
            self.write("err", "job", f"standard output takes no more ({failure.strerror}): the job goes on, what its pods print is lost".encode())

    def _write(self, stream, content):
        descriptor = self._descriptors[stream]
        with self._locks[stream]:
            while content:
                try:
                    content = content[os.write(descriptor, content):]
                except BlockingIOError:
                    select.select([], [descriptor], [])
                except BrokenPipeError:
                    return None  # nobody reads: the job's end is another's matter
                except OSError as failure:
                    return failure
        return None


class _Program:
    """A container's process, with all that it has started: a guard ends that with it (local_guard.py). `held`: of the job's folder.
    Throws OSError where it cannot be started."""

    def __init__(self, container, words, variables, folder, label, output, changed, held):
        self.container = container
        self.code = None
        told, tells = os.pipe()
        with open(told, "rb") as answer:
            try:
                self._process = subprocess.Popen([*GUARD, "program", str(os.getpid()), str(tells), str(held), *words], env=variables, cwd=folder,
                                                 stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
                                                 pass_fds=(tells, held))
            finally:
                os.close(tells)
            number = answer.read()
        if number:
            self._process.communicate()
            raise OSError(int(number), os.strerror(int(number)), words[0])
        readers = [threading.Thread(target=self._read, args=(stream, kind, label, output), daemon=True)
                   for stream, kind in ((self._process.stdout, "out"), (self._process.stderr, "err"))]
        for reader in readers:
            reader.start()
        threading.Thread(target=self._wait, args=(readers, changed), daemon=True).start()

    @staticmethod
    def _read(stream, kind, label, output):
        for line in stream:
            output.write(kind, label, line)

    def _wait(self, readers, changed):
        code = self._process.wait()
        for reader in readers:
            reader.join(5)
        self.code = code if code >= 0 else 128 - code
        changed.set()

    def signal(self, number):
        self._process.send_signal(local_guard.END_ALL if number == signal.SIGKILL else number)


class LocalPod:
    """The pod `item` of a job, whose status it writes. One thread calls its functions."""

    def __init__(self, item, here, service, output, changed):
        self.item, self._output, self._changed = item, output, changed
        self._layout = Layout(item, here, service, here.folder / f"{item['metadata']['name']}.{item['metadata']['uid'][:8]}")
        self._first = list(item["spec"].get("initContainers") or [])
        self._main, self._sidecars, self._step = [], [], None
        self._kill_at, self._is_begun = None, False
        item["status"] = {"phase": "Pending"}

    def start(self):
        try:
            self._layout.mount()
        except Refused as fault:
            return self._end_early(str(fault))
        self.item["status"] |= {"phase": "Running", "startTime": text_of(time.time()), "podIP": ADDRESS, "hostIP": ADDRESS}
        self._go_on()
        return None

    def _run(self, container, kind, index):
        path = f"{kind}[{index}]"
        variables = self._layout.environment(container, path)
        words = self._layout.words(container, path, variables)
        name = self.item["metadata"]["name"]
        label = name if container["name"] == names.CONTAINER else f"{name}/{container['name']}"
        try:
            return _Program(container, words, variables, self._layout.working_folder(container), label, self._output, self._changed, self._layout.here.held)
        except OSError as failure:
            if failure.filename == words[0]:
                failure.filename = container["command"][0]  # without its variables' values
            raise

    def _go_on(self):
        """Init containers one after the other, those that stay beside the others at once; then all containers."""
        try:
            while self._first:
                if self._step is not None:
                    if self._step.code is None:
                        return
                    if self._step.code != 0:
                        return self._finish("Failed", self._step.code, f"Init:{self._step.container['name']}")
                    self._step = None
                    self._first.pop(0)
                    continue
                container = self._first[0]
                index = len(self.item["spec"]["initContainers"]) - len(self._first)
                program = self._run(container, "initContainers", index)
                if container.get("restartPolicy") == "Always":
                    self._sidecars.append(program)
                    self._first.pop(0)
                else:
                    self._step = program
            if not self._is_begun:
                self._is_begun = True
                for index, container in enumerate(self.item["spec"]["containers"]):
                    self._main.append(self._run(container, "containers", index))
        except (Refused, OSError) as fault:
            self._end_early(str(fault))

    def look(self):
        """Notes in the pod's status what its programs have come to."""
        if self.has_ended():
            return
        if self._kill_at is not None and time.monotonic() > self._kill_at:
            self.kill()
        self._go_on()
        if self.has_ended() or not self._is_begun or any(program.code is None for program in self._main):
            return
        codes = {program.container["name"]: program.code for program in self._main}
        self._finish("Succeeded" if not any(codes.values()) else "Failed", codes.get(names.CONTAINER, 0) or max(codes.values()))

    def _end_early(self, why):
        self._output.write("err", self.item["metadata"]["name"], f"cannot be started: {why}".encode())
        self._finish("Failed", NOT_STARTED, "StartError")

    def _finish(self, phase, code, reason=None):
        self.signal(signal.SIGKILL)
        ended = {"exitCode": code, "finishedAt": text_of(time.time()), "reason": reason or ("Completed" if phase == "Succeeded" else "Error")}
        self.item["status"] |= {"phase": phase, "containerStatuses": [{"name": names.CONTAINER, "state": {"terminated": ended}}]}

    def has_ended(self):
        return self.item["status"]["phase"] in ("Succeeded", "Failed")

    def _programs(self):
        return [*self._main, *self._sidecars, *([self._step] if self._step else [])]

    def signal(self, number):
        for program in self._programs():
            if program.code is None:
                program.signal(number)

    def delete(self):
        """Begins its end: SIGTERM, and SIGKILL when its grace period is over."""
        if self._kill_at is None:
            self._kill_at = time.monotonic() + self.item["spec"].get("terminationGracePeriodSeconds", 30)
            self.item["metadata"]["deletionTimestamp"] = text_of(time.time())
            self.signal(signal.SIGTERM)

    def kill(self):
        self.signal(signal.SIGKILL)

    def is_gone(self):
        """Whether it was deleted, and none of its programs is left."""
        return self._kill_at is not None and all(program.code is not None for program in self._programs())

    def seconds_until_kill(self):
        return None if self._kill_at is None else max(self._kill_at - time.monotonic(), 0.0)
