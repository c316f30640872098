"""What kopf tells, as questions to Looks: nothing is decided here."""

import kopf
import kubernetes.client
import kubernetes.config

from tessera_operator import names
from tessera_operator.cluster import Cluster
from tessera_operator.looks import Looks


def load_access():
    """A pod's service account, else the user's kubeconfig. Throws ConfigException where there is neither."""
    try:
        kubernetes.config.load_incluster_config()
        return
    except kubernetes.config.ConfigException as failure:
        no_pod = failure
    try:
        kubernetes.config.load_kube_config()
    except (kubernetes.config.ConfigException, OSError) as failure:
        raise kubernetes.config.ConfigException(f"there is neither a pod's service account nor a kubeconfig: {no_pod} {failure} Name a kubeconfig by "
                                                "KUBECONFIG, or run where a service account is mounted.") from failure


def register(registry, num_threads=4):
    """Handlers in a registry of kopf's, for one operator of this process, after load_access()."""
    looks = []

    @kopf.on.login(registry=registry)
    def log_in(**given):
        return kopf.login_with_service_account(**given) or kopf.login_with_kubeconfig(**given)

    @kopf.on.startup(registry=registry)
    def start(settings, **_):
        settings.posting.enabled = False  # the operator tells its own events
        settings.scanning.disabled = True  # so that it needs no rights to namespaces and CRDs
        settings.watching.label_selectors["pods"] = names.JOB_LABEL
        settings.watching.server_timeout = 300
        looks.append(Looks(Cluster(kubernetes.client.ApiClient()), num_threads))
        looks[0].start()

    @kopf.on.cleanup(registry=registry)
    def stop(**_):
        for one in looks:
            one.stop()

    for kind, (group, version, plural) in names.KINDS.items():
        @kopf.on.event(group, version, plural, registry=registry)
        def job_changed(namespace, name, kind=kind, **_):
            looks[0].ask((kind, namespace, name))

    @kopf.on.event("v1", "pods", labels={names.JOB_LABEL: kopf.PRESENT, names.KIND_LABEL: kopf.PRESENT}, registry=registry)
    def pod_changed(namespace, labels, **_):
        if labels[names.KIND_LABEL] in names.KINDS:
            looks[0].ask((labels[names.KIND_LABEL], namespace, labels[names.JOB_LABEL]))

    return registry
