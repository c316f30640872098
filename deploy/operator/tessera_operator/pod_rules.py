"""What Kubernetes refuses of a pod's template though its schema allows it, as far as it says where files lie and what processes are given: names of
volumes and variables, paths within a volume, keys of Secrets and ConfigMaps, references that name nothing. An API server refuses it when the pod is
made, which is late."""

import re

MAX_KEY = 253
KEY = re.compile(r"[-._a-zA-Z0-9]+")
LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
VARIABLE = re.compile(r"[ -<>-~]+")  # printable, and no =


def fault_of_key(key):
    """What is wrong with a key of a Secret or a ConfigMap, which is a file's name where it is mounted; None where nothing is."""
    if not isinstance(key, str):
        return "a key must be a text: write it in quotes"
    if not KEY.fullmatch(key) or key.startswith("..") or key == "." or len(key) > MAX_KEY:
        return f"a key has letters, digits, '-', '_' and '.', at most {MAX_KEY} of them, and does not begin with '..'"
    return None


def fault_of_label(name):
    """What is wrong with a name that is a part of names of hosts, as a namespace's is; None where nothing is."""
    if not LABEL.fullmatch(name) or len(name) > 63:
        return f"it is {name[:80]!r}, but must have small letters, digits and '-', at most 63 of them, a letter or a digit first and last"
    return None


def fault_of_path(path):
    """What is wrong with a path within a volume; None where nothing is."""
    if path.startswith("/"):
        return f'it is "{path}", but must be relative: it lies within the volume'
    if ".." in path.split("/"):
        return f'it is "{path}", but must not have "..": it lies within the volume'
    return None


def _fault_of_file(path):
    wrong = fault_of_path(path)
    if wrong is None and not path.strip("./"):
        return f'it is "{path}", which names no file'
    if wrong is None and path.startswith(".."):
        return f'it is "{path}", but must not begin with ".."'  # a kubelet's own files do
    return wrong


def _objects(parent, name):
    """(index, object) of a list. What is of another type is another check's matter."""
    found = parent.get(name)
    return [(index, item) for index, item in enumerate(found) if isinstance(item, dict)] if isinstance(found, list) else []


def _object(parent, name):
    found = parent.get(name)
    return found if isinstance(found, dict) else {}


def _faults_of_name(parent, kind, place, field="name"):
    """Of a reference to a Secret or a ConfigMap, which must name one."""
    if isinstance(parent.get(kind), dict) and not parent[kind].get(field):
        return [(f"{place}.{kind}.{field}", f"it is missing: which {'Secret' if kind.startswith('secret') else 'ConfigMap'} is meant?")]
    return []


def _faults_of_kinds(item, kinds, place):
    """Of an object of which exactly one field says what it stands for."""
    found = [kind for kind in kinds if isinstance(item.get(kind), dict)]
    if len(found) == 1:
        return []
    has = "has none of them" if not found else f"has {' and '.join(found)}"
    return [(place, f"it must have one of {', '.join(kinds)}, but {has}")]


def mistakes(pod, path):
    """As faults() has them: what Kubernetes takes though nobody means it. It is refused where a file is looked at, and not in a cluster, where a pod
    of it may run."""
    if not isinstance(pod, dict):
        return []
    found = []
    grace = pod.get("terminationGracePeriodSeconds")
    if isinstance(grace, int) and grace < 0:
        found.append((f"{path}.terminationGracePeriodSeconds", f"it is {grace}, but must be at least 0"))
    for index, volume in _objects(pod, "volumes"):
        place = f"{path}.volumes[{index}].projected.sources"
        if isinstance(volume.get("projected"), dict):
            if not volume["projected"].get("sources"):
                found.append((place, "it is missing: of what is the volume?"))
            found += [(f"{place}[{number}]", "it names no source, such as secret, configMap or downwardAPI")
                      for number, source in _objects(volume["projected"], "sources") if not any(isinstance(part, dict) for part in source.values())]
    for kind in ("initContainers", "containers"):
        for index, container in _objects(pod, kind):
            for number, mount in _objects(container, "volumeMounts"):
                if isinstance(where := mount.get("mountPath"), str) and not where.startswith("/"):
                    found.append((f"{path}.{kind}[{index}].volumeMounts[{number}].mountPath", f'it is "{where}", but must begin with /'))
    return found


def faults(pod, path):
    """(path, words) of each fault of a pod's spec, which lies at `path`. Its values may have wrong types."""
    if not isinstance(pod, dict):
        return []
    found = []
    names = set()
    for index, volume in _objects(pod, "volumes"):
        place, name = f"{path}.volumes[{index}]", volume.get("name")
        if isinstance(name, str):
            if not LABEL.fullmatch(name) or len(name) > 63:
                found.append((f"{place}.name", f'it is "{name}", but must have small letters, digits and \'-\', at most 63 of them'))
            elif name in names:
                found.append((f"{place}.name", f'there is another volume "{name}"'))
            names.add(name)
        found += _faults_of_volume(volume, place)
    for kind in ("initContainers", "containers"):
        for index, container in _objects(pod, kind):
            found += _faults_of_container(container, f"{path}.{kind}[{index}]")
    return found


def _faults_of_volume(volume, place):
    found = []
    of_host = _object(volume, "hostPath").get("path")
    if isinstance(of_host, str) and ".." in of_host.split("/"):
        found.append((f"{place}.hostPath.path", f'it is "{of_host}", but must not have ".."'))
    found += _faults_of_name(volume, "secret", place, "secretName") + _faults_of_name(volume, "configMap", place)
    sources = [(_object(volume, kind), f"{place}.{kind}") for kind in ("secret", "configMap", "downwardAPI")]
    for index, source in _objects(_object(volume, "projected"), "sources"):
        of_it = f"{place}.projected.sources[{index}]"
        found += _faults_of_name(source, "secret", of_it) + _faults_of_name(source, "configMap", of_it)
        sources += [(_object(source, kind), f"{of_it}.{kind}") for kind in ("secret", "configMap", "downwardAPI")]
        for kind in ("serviceAccountToken", "clusterTrustBundle"):
            if isinstance(file := _object(source, kind).get("path"), str) and (wrong := _fault_of_file(file)):
                found.append((f"{of_it}.{kind}.path", wrong))
    for source, at in sources:
        for index, item in _objects(source, "items"):
            if isinstance(file := item.get("path"), str) and (wrong := _fault_of_file(file)):
                found.append((f"{at}.items[{index}].path", wrong))
            if at.endswith(".downwardAPI"):
                found += _faults_of_kinds(item, ("fieldRef", "resourceFieldRef"), f"{at}.items[{index}]")
    return found


def _faults_of_container(container, place):
    found = []
    for index, mount in _objects(container, "volumeMounts"):
        for name in ("subPath", "subPathExpr"):
            if isinstance(part := mount.get(name), str) and (wrong := fault_of_path(part)):
                found.append((f"{place}.volumeMounts[{index}].{name}", wrong))
    for index, variable in _objects(container, "env"):
        if isinstance(name := variable.get("name"), str) and not VARIABLE.fullmatch(name):
            found.append((f"{place}.env[{index}].name", "a variable's name has at least one character, all of them printable ASCII, and no '='"))
        if isinstance(source := variable.get("valueFrom"), dict):
            at = f"{place}.env[{index}].valueFrom"
            kinds = ("fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef")
            # A kind that is not known here is a newer cluster's.
            if not set(source) - set(kinds):
                found += _faults_of_kinds(source, kinds, at)
            found += _faults_of_name(source, "secretKeyRef", at) + _faults_of_name(source, "configMapKeyRef", at)
    for index, source in _objects(container, "envFrom"):
        if isinstance(prefix := source.get("prefix"), str) and prefix and not VARIABLE.fullmatch(prefix):
            found.append((f"{place}.envFrom[{index}].prefix", "what variables' names begin with is printable ASCII without '='"))
        at = f"{place}.envFrom[{index}]"
        if not set(source) - {"prefix", "secretRef", "configMapRef"}:
            found += _faults_of_kinds(source, ("secretRef", "configMapRef"), at)
        found += _faults_of_name(source, "secretRef", at) + _faults_of_name(source, "configMapRef", at)
    return found
