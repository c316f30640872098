"""The CRDs: every field with its type, its limits and what it means, and the rules between fields. make_manifests.py writes them as YAML."""

from tessera_operator import names
from tessera_operator.job import CLEAN_POLICIES, DEFAULT_MAX_RESTARTS, MAX_NAME, MAX_REPLICAS, RESTART_POLICIES

SECONDS = {"type": "integer", "format": "int32", "minimum": 0}
SECRET_NAME = {"type": "string", "minLength": 1, "maxLength": 253, "pattern": r"^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$"}


def _rule(rule, message, path=None):
    return {"rule": rule, "message": message} | ({"fieldPath": path} if path else {})


def _text(description, **more):
    return {"type": "string", "description": description} | more


def _template():
    """A pod's template. The API server checks a pod itself when it is made, and the operator asks it to refuse unknown fields; what is
    written here is what the operator reads of it."""
    port = {"type": "object", "x-kubernetes-preserve-unknown-fields": True, "required": ["containerPort"],
            "properties": {"name": {"type": "string", "maxLength": 15},
                           "containerPort": {"type": "integer", "format": "int32", "minimum": 1, "maximum": 65535}}}
    container = {"type": "object", "x-kubernetes-preserve-unknown-fields": True, "required": ["name", "image"],
                 "properties": {"name": {"type": "string", "minLength": 1, "maxLength": 63}, "image": {"type": "string", "minLength": 1, "maxLength": 1024},
                                "command": {"type": "array", "items": {"type": "string"}}, "args": {"type": "array", "items": {"type": "string"}},
                                "ports": {"type": "array", "maxItems": 32, "items": port}}}
    spec = {"type": "object", "description": "As of any pod; restartPolicy, hostname and subdomain are the operator's.", "required": ["containers"],
            "x-kubernetes-preserve-unknown-fields": True,
            "properties": {"containers": {"type": "array", "minItems": 1, "maxItems": 16, "items": container}},
            "x-kubernetes-validations": [
                _rule(f"self.containers.filter(c, c.name == '{names.CONTAINER}').size() == 1",
                      f"exactly one container must have the name '{names.CONTAINER}': in it the role's program runs", ".containers"),
                _rule(f"self.containers.all(c, !has(c.ports) || c.ports.filter(p, has(p.name) && p.name == '{names.PORT_NAME}').size() <= 1)",
                      f"at most one port may have the name '{names.PORT_NAME}'", ".containers")]}
    labels = {"type": "object", "additionalProperties": {"type": "string"}}
    return {"type": "object", "description": "The template of the role's pods.", "required": ["spec"],
            "properties": {"metadata": {"type": "object", "properties": {"labels": labels, "annotations": labels}}, "spec": spec}}


def _roles(needs_scheduler):
    """A map, as an unknown role of an object would be forgotten in silence; its rules name the role."""
    role = {"type": "object", "description": "Pods that do the same.", "required": ["template"],
            "properties": {
                "replicas": {"type": "integer", "format": "int32", "minimum": 1, "maximum": MAX_REPLICAS, "default": 1, "description": "How many pods it has."},
                "restartPolicy": {"type": "string", "enum": list(RESTART_POLICIES), "default": "OnFailure", "description":
                                  "What becomes of a pod that has failed, was evicted or deleted. Never: the job has failed. OnFailure, Always: a pod of "
                                  "the same name takes its place; with Always also where a scheduler or server has ended before the workers."},
                "template": _template()}}
    known = ", ".join(f"'{name}'" for name in names.SLUGS)
    rules = [_rule(f"self.all(role, role in [{known}])", f"there is no such role; roles are {', '.join(names.SLUGS)}"),
             _rule("'Worker' in self", "a job has at least one worker: msReplicaSpecs.Worker is missing"),
             _rule("!('Scheduler' in self) || self['Scheduler'].replicas == 1", "a job has one scheduler: msReplicaSpecs.Scheduler.replicas must be 1")]
    if needs_scheduler:
        rules.append(_rule("!('Worker' in self) || 'Scheduler' in self || (self['Worker'].replicas == 1 && !('PS' in self))",
                           "a job of several workers, or with PS, needs msReplicaSpecs.Scheduler; only one worker may be alone"))
    return {"type": "object", "description": "Scheduler tells the others who they are, PS keeps parameters, Worker trains.",
            "minProperties": 1, "maxProperties": 8, "additionalProperties": role, "x-kubernetes-validations": rules}


def _run_policy(is_msjob):
    found = {"cleanPodPolicy": {"type": "string", "enum": list(CLEAN_POLICIES), "default": "Running",
                                "description": "Which pods are deleted when the job has ended: All, those that still run (Running), or None."},
             "activeDeadlineSeconds": SECONDS | {"description": "The job has failed when it has run for so long."}}
    if is_msjob:
        found |= {"ttlSecondsAfterFinished": SECONDS | {"description": "The job is deleted so long after its end."},
                  "backoffLimit": SECONDS | {"default": DEFAULT_MAX_RESTARTS, "maximum": 1000000,
                                             "description": "So many failures may be answered by a restart."},
                  "suspend": {"type": "boolean", "default": False, "description": "true: the job has no pods until it is false."}}
    return {"type": "object", "default": {}, "description": "How the job begins and ends.", "properties": found}


def _spec(kind):
    is_msjob = kind == "MSJob"
    fields = {
        "runPolicy": _run_policy(is_msjob),
        "successPolicy": {"type": "string", "enum": ["", "AllWorkers"], "default": "" if is_msjob else "AllWorkers",
                          "description": "The job has succeeded when one worker has ended well (the empty text), or all of them (AllWorkers)."},
        "msReplicaSpecs": _roles(needs_scheduler=is_msjob)}
    if is_msjob:
        return {"type": "object", "required": ["msReplicaSpecs"], "properties": fields}
    count = {"type": "integer", "format": "int32", "minimum": 1, "maximum": MAX_REPLICAS}
    fields |= {
        "generation": {"type": "integer", "format": "int32", "minimum": 1, "default": 1, "description":
                       "A larger number begins the job anew: all pods are made again, from the templates as they are then, and restarts count from 0."},
        "maxRestarts": {"type": "integer", "format": "int32", "minimum": 0, "maximum": 1000000, "default": DEFAULT_MAX_RESTARTS,
                        "description": "So many failures may be answered by a restart; one more, and the job has failed."},
        "countDisruptions": {"type": "boolean", "default": False, "description": "true: evicted and deleted pods count as failures."},
        "suspend": {"type": "boolean", "default": False, "description": "true: the job has no pods until it is false. Kueue sets it."},
        "ttlSecondsAfterFinished": SECONDS | {"description": "The job is deleted so long after its end."},
        "minWorkers": count | {"description": "Worker.replicas must be at least that."},
        "maxWorkers": count | {"description": "Worker.replicas must be at most that."},
        "ranksPerWorker": count | {"default": 1, "description": "Ranks that each worker's pod starts, by `tessera run --join`."},
        "secretName": SECRET_NAME | {"description": f"A Secret whose key {names.SECRET_KEY} is the job's secret; without it the operator draws one."},
        "secretDelivery": {"type": "string", "enum": ["Auto", "Mount", "Copy"], "default": "Auto", "description":
                           "How secrets come into a pod: mounted, as root can read them, or copied by a container beside the program's for another user."},
        "tls": {"type": "object", "required": ["secretName"], "description": "Certificates take the secret's place.",
                "properties": {"secretName": SECRET_NAME | {"description": "A Secret with ca.crt, server.p12, client.p12 and password."},
                               "revocationList": {"type": "boolean", "default": False, "description": "true: who is on the list crl.pem of the Secret is "
                                                  "turned away."},
                               "cipherList": {"type": "string", "maxLength": 4096, "description": "Names of ciphers, with colons between them; none: all."},
                               "perNode": {"type": "boolean", "default": False, "description": "true: a worker's certificate is worker_N.p12, a server's "
                                           "server_N.p12, instead of client.p12."}}},
        "recovery": {"type": "object", "required": ["claimName"], "description": "Where the scheduler keeps the job's state, so that it may be lost, too.",
                     "properties": {"claimName": SECRET_NAME | {"description": "A PersistentVolumeClaim that all pods of the job can write (ReadWriteMany)."}}},
        "gang": {"type": "object", "required": ["scheduler", "podGroup"], "description": "All pods of the job are placed at once, or none.",
                 "properties": {"scheduler": {"type": "string", "enum": ["volcano", "coscheduling"]},
                                "podGroup": SECRET_NAME | {"description": "The PodGroup, which is the user's."},
                                "schedulerName": SECRET_NAME | {"description": "coscheduling: the scheduler's name in this cluster."}}},
    }
    rules = [
        _rule("!has(self.minWorkers) || !('Worker' in self.msReplicaSpecs) || self.msReplicaSpecs['Worker'].replicas >= self.minWorkers",
              "msReplicaSpecs.Worker.replicas must be at least minWorkers", ".msReplicaSpecs"),
        _rule("!has(self.maxWorkers) || !('Worker' in self.msReplicaSpecs) || self.msReplicaSpecs['Worker'].replicas <= self.maxWorkers",
              "msReplicaSpecs.Worker.replicas must be at most maxWorkers", ".msReplicaSpecs"),
        _rule("!has(self.minWorkers) || !has(self.maxWorkers) || self.minWorkers <= self.maxWorkers", "minWorkers must be at most maxWorkers", ".minWorkers"),
        _rule("!(has(self.tls) && has(self.secretName))", "certificates (tls) take the secret's place: name one of the two", ".secretName"),
        _rule("self.generation >= oldSelf.generation", "a generation is never lowered: pods of the later one may still run", ".generation")]
    return {"type": "object", "required": ["msReplicaSpecs"], "properties": fields, "x-kubernetes-validations": rules}


def _status():
    count = {"type": "integer", "format": "int32", "minimum": 0}
    time = {"type": "string", "format": "date-time"}
    condition = {"type": "object", "required": ["type", "status", "reason", "message", "lastTransitionTime"], "properties": {
        "type": {"type": "string"}, "status": {"type": "string", "enum": ["True", "False", "Unknown"]}, "reason": {"type": "string"},
        "message": {"type": "string"}, "lastTransitionTime": time}}
    member = {"type": "object", "required": ["attempt"], "properties": {
        "attempt": count | {"description": "Which start of this pod's name is the present or next one, from 0."},
        "uid": _text("That of the attempt's pod, once it was seen."), "restarts": count | {"description": "How many of its losses count."},
        "succeeded": {"type": "boolean"}, "notBefore": time | {"description": "When the next attempt begins."}}}
    return {"type": "object", "properties": {
        "state": _text("The last of Created, Running, Restarting, Suspended, Succeeded and Failed that is true."),
        "conditions": {"type": "array", "items": condition, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
        "observedGeneration": {"type": "integer", "format": "int64"}, "startTime": time, "completionTime": time, "lastRestartTime": time,
        "restarts": count | {"description": "Losses that count against maxRestarts."}, "suspensions": count,
        "refused": {"type": "boolean", "description": "The text is wrong in a way that no rule of this CRD has noticed."},
        "replicas": count | {"description": "Workers whose pods have not ended."}, "selector": _text("Selects the workers' pods."),
        "ready": count | {"description": "Pods that run and have not said that they are not ready, of all roles."},
        "formation": {"type": "object", "description": "What all pods have been told alike.", "properties": {
            "generation": {"type": "integer", "format": "int32"}, "name": {"type": "string"}}},
        "replicaStatuses": {"type": "object", "additionalProperties": {"type": "object", "properties": {"active": count, "succeeded": count, "failed": count}}},
        "members": {"type": "object", "additionalProperties": member}}}


def crd(kind):
    group, version, plural = names.KINDS[kind]
    name = {"type": "string", "maxLength": MAX_NAME, "pattern": r"^[a-z]([-a-z0-9]*[a-z0-9])?$", "description": "Pods, hosts and a Service are named by it."}
    schema = {"type": "object", "description": "A job of Tessera's. docs/kubernetes.md says how it runs.", "required": ["spec"],
              "properties": {"apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": {"type": "object", "properties": {"name": name}},
                             "spec": _spec(kind), "status": _status()}}
    columns = [("State", "string", ".status.state", 0), ("Workers", "integer", ".spec.msReplicaSpecs.Worker.replicas", 0),
               ("Ready", "integer", ".status.ready", 0), ("Generation", "integer", ".status.formation.generation", 0),
               ("Restarts", "integer", ".status.restarts", 0),
               ("Why", "string", ".status.conditions[-1:].message", 1), ("Age", "date", ".metadata.creationTimestamp", 0)]
    return {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": f"{plural}.{group}"},
            "spec": {"group": group, "scope": "Namespaced",
                     "names": {"kind": kind, "listKind": f"{kind}List", "plural": plural, "singular": kind.lower(),
                               "shortNames": ["msj" if kind == "MSJob" else "tj"], "categories": ["all"]},
                     "versions": [{"name": version, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema},
                                   "subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.msReplicaSpecs.Worker.replicas",
                                                                            "statusReplicasPath": ".status.replicas", "labelSelectorPath": ".status.selector"}},
                                   "additionalPrinterColumns": [{"name": name, "type": kind_of, "jsonPath": path, "priority": priority}
                                                                for name, kind_of, path, priority in columns]}]}}
