"""Claims about the objects that a job is made of."""

import json

import pytest
from harness import job, names, port_named, role, trainee
from kubernetes.client import V1Pod, V1Secret, V1Service
from tessera_operator import pods
from tessera_operator.job import InvalidJob, read


def read_job(**options):
    body = job("a", **options)
    body["metadata"]["uid"] = "1234"
    return read(body)


def pod_of(parsed, name="Worker", index=0, attempt=0):
    return pods.make_pod(parsed, parsed.roles[name], index, attempt)


def variables(pod):
    return {entry["name"]: entry.get("value", entry.get("valueFrom")) for entry in pod["spec"]["containers"][0]["env"]}


def test_every_object_is_one_of_the_official_clients_types():
    for delivery in ("Mount", "Copy"):
        parsed = read_job(kind="TesseraJob", servers=1, secretDelivery=delivery, recovery={"claimName": "state"},
                          gang={"scheduler": "volcano", "podGroup": "all"})
        for _, of_role, index in parsed.members():
            V1Pod.model_validate(pods.make_pod(parsed, of_role, index, 0))
        V1Service.model_validate(pods.make_service(parsed))
        V1Secret.model_validate(pods.make_secret(parsed) | {"data": {"secret": "eA=="}})


def test_a_worker_is_told_who_it_is_and_where_its_scheduler_is():
    parsed = read_job(workers=3, servers=2, port=6667)
    assert variables(pod_of(parsed, index=2, attempt=4)) == {
        "MS_ROLE": "MS_WORKER", "MS_SCHED_HOST": "a-scheduler.default.svc", "MS_SCHED_PORT": "6667", "MS_WORKER_NUM": "3", "MS_SERVER_NUM": "2",
        "MS_NODE_ID": "worker_2", "TESSERA_SCHEDULER": "a-scheduler.default.svc:6667", "TESSERA_NODE_ID": "worker_2", "TESSERA_NUM_WORKERS": "5",
        "TESSERA_ROLE": "worker", "TESSERA_ATTEMPT": "4", "MS_TOPO_TIMEOUT": "86400", "TESSERA_JOIN_TIMEOUT_MS": "86400000",
        "TESSERA_SECRET_FILE": "/var/run/tessera/secret/secret"}
    server = variables(pod_of(parsed, "PS"))
    assert (server["MS_ROLE"], server["TESSERA_ROLE"], server["MS_NODE_ID"]) == ("MS_PSERVER", "server", "server_0")


def test_a_scheduler_listens_at_its_pods_own_address():
    told = variables(pod_of(read_job(), "Scheduler"))
    assert told["MS_ROLE"] == "MS_SCHED" and told["MS_SCHED_HOST"] == {"fieldRef": {"fieldPath": "status.podIP"}}
    assert not {"TESSERA_SCHEDULER", "TESSERA_NODE_ID", "TESSERA_ROLE"} & set(told)


def test_what_a_template_says_of_the_job_itself_gives_way_and_the_rest_stays():
    body = job("a")
    body["metadata"]["uid"] = "1"
    body["spec"]["msReplicaSpecs"]["Worker"] = role(trainee(), 2, env=[{"name": "MS_ROLE", "value": "MS_SCHED"}, {"name": "DATA", "value": "/data"}],
                                                   nodeSelector={"gpu": "h100"}, restartPolicy="Always")
    pod = pod_of(read(body))
    assert variables(pod)["MS_ROLE"] == "MS_WORKER" and variables(pod)["DATA"] == "/data"
    assert pod["spec"]["nodeSelector"] == {"gpu": "h100"} and pod["spec"]["restartPolicy"] == "Never"
    assert [entry["name"] for entry in pod["spec"]["containers"][0]["env"]].count("MS_ROLE") == 1


def test_members_wait_for_one_another_as_long_as_the_template_says_or_a_day():
    body = job("a")
    body["metadata"]["uid"] = "1"
    body["spec"]["msReplicaSpecs"]["Worker"] = role(trainee(), 2, env=[{"name": "MS_TOPO_TIMEOUT", "value": "60"}])
    assert variables(pod_of(read(body)))["MS_TOPO_TIMEOUT"] == "60"
    assert variables(pod_of(read(body), "Scheduler"))["MS_TOPO_TIMEOUT"] == "86400"


def test_a_pod_belongs_to_its_job_and_says_which_start_it_is():
    metadata = pod_of(read_job(), index=1, attempt=3)["metadata"]
    assert metadata["name"] == "a-worker-1" and metadata["ownerReferences"][0]["uid"] == "1234" and metadata["ownerReferences"][0]["controller"]
    assert metadata["labels"][names.ATTEMPT_LABEL] == "3" and metadata["labels"][names.ROLE_LABEL] == "worker"


def test_the_service_selects_the_scheduler_alone_before_it_is_ready():
    service = pods.make_service(read_job(port=6667))
    assert service["spec"]["clusterIP"] == "None" and service["spec"]["publishNotReadyAddresses"]
    labels = pod_of(read_job(), "Scheduler")["metadata"]["labels"]
    assert service["spec"]["selector"].items() <= labels.items()
    assert not service["spec"]["selector"].items() <= pod_of(read_job())["metadata"]["labels"].items()
    assert service["spec"]["ports"][0]["port"] == 6667


def test_the_port_is_2222_or_that_of_the_schedulers_template():
    for given, wanted in ((None, 2222), (6667, 6667)):
        ports = pod_of(read_job(port=given), "Scheduler")["spec"]["containers"][0]["ports"]
        assert [port for port in ports if port["name"] == names.PORT_NAME][0]["containerPort"] == wanted and len(ports) == 1


def test_a_secret_is_a_file_that_only_its_owner_reads_and_never_an_argument():
    pod = pod_of(read_job())
    volume = next(volume for volume in pod["spec"]["volumes"] if volume["name"] == "tessera-secret")
    assert volume["secret"] == {"secretName": "a-secret", "defaultMode": 0o400, "items": [{"key": "secret", "path": "secret"}]}
    assert {"name": "tessera-secret", "mountPath": "/var/run/tessera/secret", "readOnly": True} in pod["spec"]["containers"][0]["volumeMounts"]
    assert "secretKeyRef" not in json.dumps(pod) and "initContainers" not in pod["spec"]


@pytest.mark.parametrize("context", [{"runAsUser": 1000}, {"runAsNonRoot": True}, {"fsGroup": 5}])
def test_for_another_user_than_root_the_secret_is_copied_beside_the_program(context):
    body = job("a", workers=1)
    body["metadata"]["uid"] = "1"
    body["spec"]["msReplicaSpecs"]["Worker"] = role(trainee(), 1, **{"securityContext": context} if "fsGroup" not in context else {})
    body["spec"]["msReplicaSpecs"]["Worker"]["template"]["spec"]["securityContext"] = context
    spec = pod_of(read(body))["spec"]
    sidecar = spec["initContainers"][0]
    assert sidecar["restartPolicy"] == "Always" and sidecar["image"] == "example/train:1" and "startupProbe" in sidecar
    assert sidecar["securityContext"]["readOnlyRootFilesystem"] and sidecar["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert spec["securityContext"]["fsGroup"] in (1000, 5, 65532)
    assert next(volume for volume in spec["volumes"] if volume["name"] == "tessera-secret")["emptyDir"]["medium"] == "Memory"
    mounts = [mount["name"] for mount in spec["containers"][0]["volumeMounts"]]
    assert mounts == ["tessera-secret"]  # the program does not see what the copy is made of


def test_a_pod_gets_only_the_certificates_of_its_side():
    parsed = read_job(kind="TesseraJob", tls={"secretName": "certificates", "perNode": True, "revocationList": True})
    paths = {}
    for role_name in ("Scheduler", "Worker"):
        pod = pod_of(parsed, role_name, 0)
        volume = next(volume for volume in pod["spec"]["volumes"] if volume["name"] == "tessera-tls")["projected"]
        assert volume["defaultMode"] == 0o400
        paths[role_name] = {item["path"]: item["key"] for source in volume["sources"] if "secret" in source for item in source["secret"]["items"]}
        assert variables(pod)["TESSERA_TLS_CONFIG"] == "/var/run/tessera/tls/config.json" and "TESSERA_SECRET_FILE" not in variables(pod)
    assert "client.p12" not in paths["Scheduler"] and "server.p12" not in paths["Worker"]
    assert paths["Worker"]["client.p12"] == "worker_0.p12" and "crl.pem" in paths["Worker"]


@pytest.mark.parametrize("revocation", [False, True])
def test_where_certificates_are_is_said_beside_them(revocation):
    parsed = read_job(kind="TesseraJob", tls={"secretName": "certificates", "revocationList": revocation, "cipherList": "TLS_AES_256_GCM_SHA384"})
    pod = pod_of(parsed)
    config = json.loads(pod["metadata"]["annotations"][names.TLS_ANNOTATION])
    assert config["client_cert_path"] == "client.p12" and config["cipher_list"] == "TLS_AES_256_GCM_SHA384"
    assert ("crl_path" in config) == revocation
    volume = next(volume for volume in pod["spec"]["volumes"] if volume["name"] == "tessera-tls")["projected"]
    assert volume["sources"][1]["downwardAPI"]["items"][0] == {
        "path": "config.json", "fieldRef": {"fieldPath": "metadata.annotations['tessera.dev/tls-config']"}}


def test_a_pod_is_given_no_rights_and_no_variables_of_other_services():
    spec = pod_of(read_job())["spec"]
    assert spec["automountServiceAccountToken"] is False and spec["enableServiceLinks"] is False


def test_recovery_has_a_folder_of_this_job_and_formation_on_the_claim():
    parsed = read_job(kind="TesseraJob", recovery={"claimName": "state"}, generation=3)
    told = variables(pod_of(parsed))
    assert told["MS_ENABLE_RECOVERY"] == "1" and told["MS_RECOVERY_PATH"] == "/var/run/tessera/recovery/1234.3.2.0"


@pytest.mark.parametrize("given, expected", [({}, None), ({"fsGroup": 5}, "OnRootMismatch"),
                                             ({"fsGroup": 5, "fsGroupChangePolicy": "Always"}, "Always")])
def test_the_state_on_the_claim_stays_its_owners_when_it_is_mounted_again(given, expected):
    body = job("a", kind="TesseraJob", recovery={"claimName": "state"}, secretDelivery="Mount")
    body["metadata"]["uid"] = "1"
    body["spec"]["msReplicaSpecs"]["Scheduler"]["template"]["spec"]["securityContext"] = given
    context = pod_of(read(body), "Scheduler", 0)["spec"].get("securityContext") or {}
    assert context.get("fsGroupChangePolicy") == expected


def test_several_ranks_of_a_worker_count_in_the_jobs_size():
    told = variables(pod_of(read_job(kind="TesseraJob", workers=2, servers=1, ranksPerWorker=4)))
    assert told["MS_WORKER_NUM"] == "8" and told["TESSERA_NUM_WORKERS"] == "9"


def test_a_gang_is_said_in_the_words_of_its_scheduler():
    pod = pod_of(read_job(kind="TesseraJob", gang={"scheduler": "volcano", "podGroup": "all"}))
    assert pod["metadata"]["annotations"]["scheduling.k8s.io/group-name"] == "all" and pod["spec"]["schedulerName"] == "volcano"
    pod = pod_of(read_job(kind="TesseraJob", gang={"scheduler": "coscheduling", "podGroup": "all", "schedulerName": "second"}))
    assert pod["metadata"]["labels"]["scheduling.x-k8s.io/pod-group"] == "all" and pod["spec"]["schedulerName"] == "second"


def test_a_scheduler_that_a_tesserajob_does_not_name_is_of_the_workers_image():
    body = job("a", kind="TesseraJob", workers=2)
    body["metadata"]["uid"] = "1"
    del body["spec"]["msReplicaSpecs"]["Scheduler"]
    body["spec"]["msReplicaSpecs"]["Worker"] = role(trainee(), 2, ports=port_named(6667), imagePullSecrets=[{"name": "pull"}])
    spec = pod_of(read(body), "Scheduler")["spec"]
    assert spec["containers"][0]["image"] == "example/train:1" and spec["imagePullSecrets"] == [{"name": "pull"}]
    assert spec["containers"][0]["command"][:6] == ["tessera", "scheduler", "--workers", "2", "--port", "6667"]


def faults(change, **options):
    body = job("a", **options)
    body["metadata"]["uid"] = "1"
    change(body)
    with pytest.raises(InvalidJob) as fault:
        read(body)
    return str(fault.value)


def specs(body):
    return body["spec"]["msReplicaSpecs"]


@pytest.mark.parametrize("change, words", [
    (lambda body: body["metadata"].update(name="my_job"), "metadata.name: 'my_job' must have"),
    (lambda body: body["metadata"].update(name="x" * 49), "at most 48 characters"),
    (lambda body: specs(body)["Worker"].update(replicas=0), "spec.msReplicaSpecs.Worker.replicas: it is 0, but must be a number from 1 to 4096"),
    (lambda body: specs(body)["Scheduler"].update(replicas=2), "spec.msReplicaSpecs.Scheduler.replicas: it is 2, but must be a number from 1 to 1"),
    (lambda body: specs(body).update(Wroker=specs(body)["Worker"]), "spec.msReplicaSpecs.Wroker: there is no such role"),
    (lambda body: specs(body).pop("Worker"), "spec.msReplicaSpecs.Worker: a job has at least one worker"),
    (lambda body: specs(body).pop("Scheduler"), "spec.msReplicaSpecs.Scheduler: a job of several workers"),
    (lambda body: specs(body)["Worker"].update(restartPolicy="Sometimes"), "spec.msReplicaSpecs.Worker.restartPolicy: it is 'Sometimes'"),
    (lambda body: specs(body)["Worker"]["template"]["spec"]["containers"][0].update(name="train"),
     "spec.msReplicaSpecs.Worker.template.spec.containers: exactly one container must have the name 'mindspore', 0 of 1 have it"),
    (lambda body: body["spec"].update(successPolicy="Most"), "spec.successPolicy: it is 'Most'"),
    (lambda body: body["spec"].update(runPolicy={"cleanPodPolicy": "Some"}), "spec.runPolicy.cleanPodPolicy: it is 'Some'"),
])
def test_a_fault_is_named_with_its_field(change, words):
    assert words in faults(change)


def test_faults_of_a_tesserajob_are_named_with_their_field():
    assert "spec.msReplicaSpecs.Worker.replicas: it is 2, but must be at least minWorkers (3)" in faults(lambda _: None, kind="TesseraJob", minWorkers=3)
    both = {"tls": {"secretName": "x"}, "secretName": "y"}
    assert "spec.secretName" in faults(lambda _: None, kind="TesseraJob", **both)
    assert "spec.maxRestarts: it is -1" in faults(lambda _: None, kind="TesseraJob", maxRestarts=-1)
