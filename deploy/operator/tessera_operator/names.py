"""Names that the operator gives, and those of labels, annotations, variables and paths by which pods and people know its objects."""

import hashlib

GROUP = "tessera.dev"
JOB_LABEL = f"{GROUP}/job"
KIND_LABEL = f"{GROUP}/kind"
ROLE_LABEL = f"{GROUP}/role"
INDEX_LABEL = f"{GROUP}/index"
ATTEMPT_LABEL = f"{GROUP}/attempt"
FORMATION_LABEL = f"{GROUP}/formation"
TLS_ANNOTATION = f"{GROUP}/tls-config"
FINALIZER = f"{GROUP}/pods-end-first"
MANAGED_BY = {"app.kubernetes.io/managed-by": "tessera-operator"}

CONTAINER = "mindspore"
PORT_NAME = "msjob-port"
DEFAULT_PORT = 2222

# Where a pod finds what it must know to join.
FOLDER = "/var/run/tessera"
SECRET_FOLDER = f"{FOLDER}/secret"
SECRET_KEY = "secret"
TLS_FOLDER = f"{FOLDER}/tls"
RECOVERY_FOLDER = f"{FOLDER}/recovery"

# A role of msReplicaSpecs: its part of a pod's name, what MS_ROLE says of it.
SLUGS = {"Scheduler": "scheduler", "PS": "server", "Worker": "worker"}
MS_ROLES = {"Scheduler": "MS_SCHED", "PS": "MS_PSERVER", "Worker": "MS_WORKER"}

# kind -> (group, version, plural)
KINDS = {"MSJob": ("mindspore.gitee.com", "v1", "msjobs"), "TesseraJob": (GROUP, "v1alpha1", "tesserajobs")}


def pod_name(job_name, role, index):
    return f"{job_name}-{SLUGS[role]}-{index}"


def node_id(role, index):
    """By which the scheduler knows a pod over its restarts; a certificate of one node has it in its name."""
    return f"{SLUGS[role]}_{index}"


def service_name(job_name):
    return f"{job_name}-scheduler"


def secret_name(job_name):
    return f"{job_name}-secret"


def event_name(job_name, uid, reason, about):
    """The same for the same event, so that one that is told again is one."""
    return f"{job_name}.{hashlib.sha256(f'{uid} {reason} {about}'.encode()).hexdigest()[:16]}"
