"""The objects that a job is made of: its pods, the Service by which they find the scheduler, the Secret that they prove."""

import copy
import json

from tessera_operator import names
from tessera_operator.job import container_of

ANY_NUMBER = "1000000"  # so often a scheduler lets workers come again: the operator counts them
# Of the certificates' Secret what each side gets.
TLS_KEYS = {"Scheduler": ("ca.crt", "server.p12", "password"), "Worker": ("ca.crt", "client.p12", "password")}
SOURCE_FOLDER = f"{names.FOLDER}/source"
NOBODY = 65532

# For so long members wait for one another where a template does not say: when a pod finds a place is the cluster's matter, and is said by
# the job's conditions, so that it is no failure of those that wait.
JOIN_TIMEOUT_S = 86400

# Copies what is mounted to where only this user reads it, and again when it was exchanged: `..data` leads elsewhere then.
COPY_SCRIPT = """umask 077
trap 'exit 0' TERM INT
seen=
while :; do
  now=$(for d in {source}/*; do readlink "$d/..data"; done)
  if [ "$now" != "$seen" ]; then
    for d in {source}/*; do
      for f in "$d"/*; do
        to={folder}/"${{d##*/}}"
        cp "$f" "$to/.new" && chmod 0400 "$to/.new" && mv -f "$to/.new" "$to/${{f##*/}}" || exit 1
      done
    done
    seen=$now
    : > {source}-is-copied
  fi
  sleep 5 & wait $!
done
"""


def labels_of(job):
    return {names.JOB_LABEL: job.name, names.KIND_LABEL: job.kind} | names.MANAGED_BY


def owner_of(job):
    return {"apiVersion": job.api_version, "kind": job.kind, "name": job.name, "uid": job.uid, "controller": True, "blockOwnerDeletion": True}


def make_service(job):
    """Headless: its name stands for the address of the scheduler's pod, whichever that is now, and before it says that it is ready."""
    selector = {names.JOB_LABEL: job.name, names.KIND_LABEL: job.kind, names.ROLE_LABEL: names.SLUGS["Scheduler"]}
    return {"apiVersion": "v1", "kind": "Service",
            "metadata": {"name": names.service_name(job.name), "namespace": job.namespace, "labels": labels_of(job), "ownerReferences": [owner_of(job)]},
            "spec": {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": selector,
                     "ports": [{"name": names.PORT_NAME, "port": job.port, "targetPort": job.port, "protocol": "TCP"}]}}


def make_secret(job):
    """Its value is None: who creates it draws 32 random bytes, so that a plan has none."""
    return {"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "immutable": True, "data": {names.SECRET_KEY: None},
            "metadata": {"name": job.secret_name, "namespace": job.namespace, "labels": labels_of(job), "ownerReferences": [owner_of(job)]}}


def needed_keys(job):
    """Secret's name -> (the field that names it, the keys that it must have), of those that are the user's."""
    if job.tls:
        workers = {names.node_id(role.name, index) + ".p12" for _, role, index in job.members() if role.name != "Scheduler"}
        clients = workers if job.tls.get("perNode") else {"client.p12"}
        lists = {"crl.pem"} if job.tls.get("revocationList") else set()
        return {job.tls["secretName"]: ("spec.tls.secretName", sorted({"ca.crt", "server.p12", "password"} | clients | lists))}
    if job.secret:
        return {job.secret: ("spec.secretName", [names.SECRET_KEY])}
    return {}


def must_copy(job, pod):
    """Whether the pod's program is another user than root, to whom the kubelet gives what it mounts. A program takes a secret only
    from a file of its own user that nobody else may read, and a kubelet lets the group read where there is an fsGroup."""
    if job.secret_delivery != "Auto":
        return job.secret_delivery == "Copy"
    own, shared = container_of({"spec": pod}).get("securityContext") or {}, pod.get("securityContext") or {}
    user = own.get("runAsUser", shared.get("runAsUser"))
    return user not in (None, 0) or own.get("runAsNonRoot", shared.get("runAsNonRoot", False)) or "fsGroup" in shared


def _add_by_name(items, added):
    """Those of `added` replace what has their name."""
    given = {item["name"] for item in added}
    return [item for item in items or [] if item["name"] not in given] + added


def environment(job, role, index, attempt):
    variables = {"TESSERA_ATTEMPT": str(attempt)}
    if job.has_scheduler:
        total = str(job.num_workers + job.num_servers)
        host = f"{names.service_name(job.name)}.{job.namespace}.svc"
        variables |= {"MS_ROLE": names.MS_ROLES[role.name], "MS_SCHED_PORT": str(job.port), "MS_WORKER_NUM": str(job.num_workers),
                      "MS_SERVER_NUM": str(job.num_servers), "MS_NODE_ID": names.node_id(role.name, index)}
        if role.name == "Scheduler":
            # It listens there, also before its name is known to anybody.
            variables["MS_SCHED_HOST"] = {"fieldRef": {"fieldPath": "status.podIP"}}
        else:
            variables |= {"MS_SCHED_HOST": host, "TESSERA_SCHEDULER": f"{host}:{job.port}", "TESSERA_NODE_ID": names.node_id(role.name, index),
                          "TESSERA_NUM_WORKERS": total, "TESSERA_ROLE": "server" if role.name == "PS" else "worker"}
        if job.tls:
            variables |= {"TESSERA_TLS_CONFIG": f"{names.TLS_FOLDER}/config.json", "TESSERA_TLS_PASSWORD_FILE": f"{names.TLS_FOLDER}/password"}
        else:
            variables["TESSERA_SECRET_FILE"] = f"{names.SECRET_FOLDER}/{names.SECRET_KEY}"
        if job.recovery:
            variables |= {"MS_ENABLE_RECOVERY": "1", "MS_RECOVERY_PATH": f"{names.RECOVERY_FOLDER}/{job.uid}.{job.formation}"}
    return _as_list(variables)


def _patience(job, role):
    if not job.has_scheduler:
        return []
    seconds = {"MS_TOPO_TIMEOUT": str(JOIN_TIMEOUT_S)}
    return _as_list(seconds if role.name == "Scheduler" else seconds | {"TESSERA_JOIN_TIMEOUT_MS": str(1000 * JOIN_TIMEOUT_S)})


def _as_list(variables):
    return [{"name": name, "valueFrom": value} if isinstance(value, dict) else {"name": name, "value": value}
            for name, value in sorted(variables.items())]


def _scheduler_command(job):
    command = ["tessera", "scheduler", "--workers", str(job.num_workers + job.num_servers), "--port", str(job.port), "--host", "$(MS_SCHED_HOST)",
               "--timeout", str(JOIN_TIMEOUT_S)]
    if job.roles["Worker"].restart_policy != "Never":
        command += ["--max_restarts", ANY_NUMBER]
    if job.recovery:
        command += ["--state", f"{names.RECOVERY_FOLDER}/{job.uid}.{job.formation}.state"]
    return command


def _secret_volumes(job, role, index):
    """What is mounted into the pod: the part of a folder's path -> its volume, readable by its owner only."""
    if not job.has_scheduler:
        return {}
    if not job.tls:
        return {"secret": {"secret": {"secretName": job.secret_name, "defaultMode": 0o400, "items": [{"key": names.SECRET_KEY, "path": names.SECRET_KEY}]}}}
    side = "Scheduler" if role.name == "Scheduler" else "Worker"
    of_node = names.node_id(role.name, index) + ".p12" if side == "Worker" and job.tls.get("perNode") else None
    items = [{"key": of_node if of_node and key == "client.p12" else key, "path": key} for key in TLS_KEYS[side]]
    items += [{"key": "crl.pem", "path": "crl.pem"}] if job.tls.get("revocationList") else []
    config = {"path": "config.json", "fieldRef": {"fieldPath": f"metadata.annotations['{names.TLS_ANNOTATION}']"}}
    return {"tls": {"projected": {"defaultMode": 0o400, "sources": [
        {"secret": {"name": job.tls["secretName"], "items": items}}, {"downwardAPI": {"items": [config]}}]}}}


def tls_config(job):
    """Where certificates are, as TESSERA_TLS_CONFIG has it: beside it. It is no secret, and comes into the pod as an annotation."""
    config = {"server_cert_path": "server.p12", "client_cert_path": "client.p12", "ca_cert_path": "ca.crt"}
    if job.tls.get("revocationList"):
        config["crl_path"] = "crl.pem"
    return json.dumps(config | {"cipher_list": job.tls.get("cipherList", ""), "cert_expire_warning_time_in_day": 90})


def _give_secrets(job, pod, container, volumes):
    if must_copy(job, pod):
        context = pod.setdefault("securityContext", {})
        if "fsGroup" not in context:
            own = container.get("securityContext") or {}
            user = own.get("runAsUser", context.get("runAsUser")) or NOBODY
            context |= {"fsGroup": own.get("runAsGroup", context.get("runAsGroup")) or user, "fsGroupChangePolicy": "OnRootMismatch"}
        mounts = []
        for part, volume in volumes.items():
            pod["volumes"] = _add_by_name(pod.get("volumes"), [{"name": f"tessera-source-{part}"} | volume,
                                                               {"name": f"tessera-{part}", "emptyDir": {"medium": "Memory", "sizeLimit": "4Mi"}}])
            mounts += [{"name": f"tessera-source-{part}", "mountPath": f"{SOURCE_FOLDER}/{part}", "readOnly": True},
                       {"name": f"tessera-{part}", "mountPath": f"{names.FOLDER}/{part}"}]
            container["volumeMounts"] = _add_by_name(container.get("volumeMounts"),
                                                     [{"name": f"tessera-{part}", "mountPath": f"{names.FOLDER}/{part}", "readOnly": True}])
        # The mark that all is copied lies beside the copies: a file that another program does not ask for.
        part = next(iter(volumes))
        mark = f"{names.FOLDER}/{part}/.is-copied"
        script = COPY_SCRIPT.format(source=SOURCE_FOLDER, folder=names.FOLDER).replace(f"{SOURCE_FOLDER}-is-copied", mark)
        size = {"cpu": "50m", "memory": "32Mi"}
        sidecar = {"name": "tessera-secrets", "image": container["image"], "restartPolicy": "Always", "command": ["/bin/sh", "-c", script],
                   "volumeMounts": mounts, "startupProbe": {"exec": {"command": ["test", "-e", mark]}, "periodSeconds": 1, "failureThreshold": 120},
                   "resources": {"requests": size, "limits": size},
                   "securityContext": {key: value for key, value in (container.get("securityContext") or {}).items() if key.startswith("runAs")}
                   | {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}}
        if "imagePullPolicy" in container:
            sidecar["imagePullPolicy"] = container["imagePullPolicy"]
        pod["initContainers"] = [sidecar] + [other for other in pod.get("initContainers") or [] if other["name"] != sidecar["name"]]
        return
    for part, volume in volumes.items():
        pod["volumes"] = _add_by_name(pod.get("volumes"), [{"name": f"tessera-{part}"} | volume])
        container["volumeMounts"] = _add_by_name(container.get("volumeMounts"),
                                                 [{"name": f"tessera-{part}", "mountPath": f"{names.FOLDER}/{part}", "readOnly": True}])


def _gang(job, metadata, pod):
    """What a scheduler of pods needs in order to start all of a job's or none; its PodGroup is the user's."""
    if not job.gang:
        return
    if job.gang["scheduler"] == "volcano":
        metadata["annotations"]["scheduling.k8s.io/group-name"] = job.gang["podGroup"]
        pod.setdefault("schedulerName", "volcano")
    else:
        metadata["labels"]["scheduling.x-k8s.io/pod-group"] = job.gang["podGroup"]
        if "schedulerName" in job.gang:
            pod.setdefault("schedulerName", job.gang["schedulerName"])


def make_pod(job, role, index, attempt):
    """The pod of one member of a job. The operator starts it anew itself, as a new attempt, so the kubelet does not."""
    template = copy.deepcopy(role.template)
    above = template.get("metadata") or {}
    pod = template["spec"]
    name = names.pod_name(job.name, role.name, index)
    metadata = {"name": name, "namespace": job.namespace, "annotations": dict(above.get("annotations") or {}), "ownerReferences": [owner_of(job)],
                "labels": (above.get("labels") or {}) | labels_of(job) | {
                    names.ROLE_LABEL: names.SLUGS[role.name], names.INDEX_LABEL: str(index), names.ATTEMPT_LABEL: str(attempt),
                    names.FORMATION_LABEL: job.formation}}
    pod |= {"restartPolicy": "Never", "hostname": name, "enableServiceLinks": False}
    pod.setdefault("automountServiceAccountToken", False)
    container = container_of(template)
    if job.has_scheduler:
        pod["subdomain"] = names.service_name(job.name)
        if role.name == "Scheduler" and not any(port.get("name") == names.PORT_NAME for port in container.get("ports") or []):
            container["ports"] = (container.get("ports") or []) + [{"name": names.PORT_NAME, "containerPort": job.port, "protocol": "TCP"}]
        if role.name == "Scheduler" and job.kind == "TesseraJob" and not container.get("command") and not container.get("args"):
            container["command"] = _scheduler_command(job)
    given = {variable["name"] for variable in container.get("env") or []}
    container["env"] = _add_by_name(container.get("env"), [variable for variable in _patience(job, role) if variable["name"] not in given]
                                    + environment(job, role, index, attempt))
    volumes = _secret_volumes(job, role, index)
    if volumes:
        if job.tls:
            metadata["annotations"][names.TLS_ANNOTATION] = tls_config(job)
        _give_secrets(job, pod, container, volumes)
    if job.recovery and job.has_scheduler:
        pod["volumes"] = _add_by_name(pod.get("volumes"), [{"name": "tessera-recovery", "persistentVolumeClaim": {"claimName": job.recovery["claimName"]}}])
        container["volumeMounts"] = _add_by_name(container.get("volumeMounts"), [{"name": "tessera-recovery", "mountPath": names.RECOVERY_FOLDER}])
        if "fsGroup" in (pod.get("securityContext") or {}):
            # A scheduler takes its state only from a file that nobody else may read. At each mount a kubelet would give the group what is in the claim.
            pod["securityContext"].setdefault("fsGroupChangePolicy", "OnRootMismatch")
    _gang(job, metadata, pod)
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": pod}
