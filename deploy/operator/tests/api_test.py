"""Claims about the API server that the other tests stand on, by the official client; and what it refuses of the CRDs."""

import collections
import copy
import json
import threading

import api_store
import kubernetes.client
import kubernetes.watch
import pytest
from harness import View, job, names, new_server, role, trainee
from kubernetes.client.exceptions import ApiException


@pytest.fixture(scope="module")
def server():
    with new_server() as found:
        yield found


@pytest.fixture
def jobs(server):
    return kubernetes.client.CustomObjectsApi(server.client())


@pytest.fixture
def core(server):
    return kubernetes.client.CoreV1Api(server.client())


def place(kind="MSJob"):
    group, version, plural = names.KINDS[kind]
    return group, version, "default", plural


def refused(jobs, body, **options):
    with pytest.raises(ApiException) as failure:
        jobs.create_namespaced_custom_object(*place(body["kind"]), body, **options)
    return failure.value


def bad(name, change, kind="MSJob", **options):
    body = job(name, kind=kind, **options)
    change(body["spec"])
    return body


REPLICAS = "spec.msReplicaSpecs"


@pytest.mark.parametrize("name, change, field, words", [
    ("no-workers", lambda spec: spec["msReplicaSpecs"]["Worker"].update(replicas=0), f"{REPLICAS}.Worker.replicas", "greater than or equal to 1"),
    ("two-schedulers", lambda spec: spec["msReplicaSpecs"]["Scheduler"].update(replicas=2), REPLICAS, "msReplicaSpecs.Scheduler.replicas must be 1"),
    ("unknown-role", lambda spec: spec["msReplicaSpecs"].update(Wroker=role(trainee())), REPLICAS, "there is no such role"),
    ("no-worker", lambda spec: spec["msReplicaSpecs"].pop("Worker"), REPLICAS, "at least one worker"),
    ("no-scheduler", lambda spec: spec["msReplicaSpecs"].pop("Scheduler"), REPLICAS, "needs msReplicaSpecs.Scheduler"),
    ("policy", lambda spec: spec["msReplicaSpecs"]["Worker"].update(restartPolicy="Sometimes"), f"{REPLICAS}.Worker.restartPolicy", "Always"),
    ("clean", lambda spec: spec.update(runPolicy={"cleanPodPolicy": "Some"}), "spec.runPolicy.cleanPodPolicy", "Running"),
    ("success", lambda spec: spec.update(successPolicy="Most"), "spec.successPolicy", "AllWorkers"),
    ("container", lambda spec: spec["msReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0].update(name="train"),
     f"{REPLICAS}.Worker.template.spec.containers", "exactly one container"),
    ("image", lambda spec: spec["msReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0].pop("image"),
     f"{REPLICAS}.Worker.template.spec.containers[0].image", "Required value"),
    ("type", lambda spec: spec["msReplicaSpecs"]["Worker"]["template"]["spec"].update(terminationGracePeriodSeconds="long"),
     f"{REPLICAS}.Worker.template.spec.terminationGracePeriodSeconds", "long"),
    ("my_job", lambda spec: None, "metadata.name", "does not match"), ("1st", lambda spec: None, "metadata.name", "does not match"),
    ("x" * 49, lambda spec: None, "metadata.name", "too long"),
])
def test_f77_a_job_that_cannot_be_is_refused_with_the_path_of_its_field(jobs, name, change, field, words):
    failure = refused(jobs, bad(name, change))
    causes = json.loads(failure.body)["details"]["causes"]
    assert failure.status == 422
    assert any(cause["field"] == field and words in cause["message"] for cause in causes), causes


@pytest.mark.parametrize("change, words", [
    (lambda spec: spec.update(minWorkers=3), "at least minWorkers"), (lambda spec: spec.update(maxWorkers=1), "at most maxWorkers"),
    (lambda spec: spec.update(minWorkers=2, maxWorkers=1), "minWorkers must be at most maxWorkers"),
    (lambda spec: spec.update(tls={"secretName": "a"}, secretName="b"), "take the secret's place"),
    (lambda spec: spec.update(tls={}), "spec.tls.secretName"), (lambda spec: spec.update(maxRestarts=-1), "spec.maxRestarts"),
    (lambda spec: spec.update(gang={"scheduler": "mine", "podGroup": "x"}), "spec.gang.scheduler"),
])
def test_f77_a_tesserajob_that_cannot_be_is_refused(jobs, change, words):
    assert words in refused(jobs, bad("t", change, kind="TesseraJob")).body


def test_f77_a_field_that_there_is_not_is_refused_where_the_client_is_strict(jobs):
    failure = refused(jobs, bad("unknown", lambda spec: spec.update(maxRestart=3), kind="TesseraJob"), field_validation="Strict")
    assert 'unknown field "spec.maxRestart"' in json.loads(failure.body)["message"]


def test_a_generation_is_never_lowered(jobs):
    jobs.create_namespaced_custom_object(*place("TesseraJob"), job("lowered", kind="TesseraJob", generation=3))
    with pytest.raises(ApiException, match="never lowered"):
        jobs.patch_namespaced_custom_object(*place("TesseraJob"), "lowered", {"spec": {"generation": 2}}, _content_type="application/merge-patch+json")


def test_defaults_are_filled_in(jobs):
    made = jobs.create_namespaced_custom_object(*place("TesseraJob"), job("defaults", kind="TesseraJob"))
    assert made["spec"]["maxRestarts"] == 10 and made["spec"]["runPolicy"] == {"cleanPodPolicy": "Running"}


def test_quantities_may_be_numbers(jobs):
    body = job("quantities")
    body["spec"]["msReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]["resources"] = {"limits": {"cpu": 4, "memory": "1Gi"}}
    jobs.create_namespaced_custom_object(*place(), body)


def test_who_writes_what_has_changed_meanwhile_is_refused(jobs):
    made = jobs.create_namespaced_custom_object(*place(), job("conflict"))
    jobs.patch_namespaced_custom_object(*place(), "conflict", {"metadata": {"labels": {"a": "b"}}}, _content_type="application/merge-patch+json")
    for replace in (jobs.replace_namespaced_custom_object, jobs.replace_namespaced_custom_object_status):
        with pytest.raises(ApiException) as failure:
            replace(*place(), "conflict", made)
        assert failure.value.status == 409


def test_the_status_is_written_by_its_subresource_alone_and_makes_no_new_generation(jobs):
    made = jobs.create_namespaced_custom_object(*place(), job("status") | {"status": {"state": "Succeeded"}})
    assert "status" not in made
    changed = copy.deepcopy(made)
    changed["spec"]["msReplicaSpecs"]["Worker"]["replicas"] = 9
    changed["status"] = {"state": "Running"}
    stored = jobs.replace_namespaced_custom_object_status(*place(), "status", changed)
    assert stored["status"] == {"state": "Running"} and stored["spec"]["msReplicaSpecs"]["Worker"]["replicas"] == 2
    assert stored["metadata"]["generation"] == 1
    stored["spec"]["msReplicaSpecs"]["Worker"]["replicas"] = 9
    stored.pop("status")
    stored = jobs.replace_namespaced_custom_object(*place(), "status", stored)
    assert stored["status"] == {"state": "Running"} and stored["metadata"]["generation"] == 2


def test_a_finalizer_holds_an_object_until_it_is_taken_off(jobs, server):
    body = job("held")
    body["metadata"]["finalizers"] = ["example.org/mine"]
    jobs.create_namespaced_custom_object(*place(), body)
    jobs.delete_namespaced_custom_object(*place(), "held")
    assert "deletionTimestamp" in jobs.get_namespaced_custom_object(*place(), "held")["metadata"]
    jobs.patch_namespaced_custom_object(*place(), "held", {"metadata": {"finalizers": []}}, _content_type="application/merge-patch+json")
    assert View(server.store).find("msjobs", "held") is None


def test_a_deletion_is_of_the_object_that_was_meant(jobs):
    jobs.create_namespaced_custom_object(*place(), job("meant"))
    with pytest.raises(ApiException) as failure:
        jobs.delete_namespaced_custom_object(*place(), "meant", body={"preconditions": {"uid": "another"}})
    assert failure.value.status == 409


def test_a_pod_with_a_kubelet_is_gone_when_its_kubelet_says_so(core, server):
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "placed"}, "spec": {"containers": [{"name": "a", "image": "x"}]}}
    core.create_namespaced_pod("default", body)
    core.patch_namespaced_pod("placed", "default", {"spec": {"nodeName": "here"}})
    core.delete_namespaced_pod("placed", "default", grace_period_seconds=20)
    assert core.read_namespaced_pod("placed", "default").metadata.deletion_grace_period_seconds == 20
    core.delete_namespaced_pod("placed", "default", grace_period_seconds=0)
    assert View(server.store).find("pods", "placed") is None


def test_what_an_object_owns_goes_with_it_and_nothing_is_left_of_an_owner_that_is_gone(core):
    owner = core.create_namespaced_config_map("default", {"metadata": {"name": "owner"}})
    reference = [{"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner.metadata.uid}]
    owned = {"metadata": {"name": "owned", "ownerReferences": reference}}
    core.create_namespaced_config_map("default", owned)
    core.delete_namespaced_config_map("owner", "default")
    for late in (False, True):
        if late:
            core.create_namespaced_config_map("default", owned)
        with pytest.raises(ApiException) as failure:
            core.read_namespaced_config_map("owned", "default")
        assert failure.value.status == 404


@pytest.mark.parametrize("content_type, patch, containers", [
    ("application/strategic-merge-patch+json", {"spec": {"containers": [{"name": "b", "image": "new"}]}}, [("a", "x"), ("b", "new")]),
    ("application/merge-patch+json", {"spec": {"template": None, "containers": [{"name": "b", "image": "new"}]}}, [("b", "new")]),
    ("application/json-patch+json", [{"op": "replace", "path": "/spec/containers/1/image", "value": "new"}], [("a", "x"), ("b", "new")])])
def test_patches_are_of_three_kinds(server, content_type, patch, containers):
    store = api_store.Store()
    deployments = next(resource for resource in store.kinds() if resource.plural == "deployments")
    store.create(deployments, "default", {"metadata": {"name": "d"}, "spec": {"containers": [{"name": "a", "image": "x"}, {"name": "b", "image": "x"}]}})
    changed = store.patch(deployments, "default", "d", patch, content_type)
    assert [(container["name"], container["image"]) for container in changed["spec"]["containers"]] == containers


def test_a_custom_object_takes_no_strategic_patch(jobs):
    jobs.create_namespaced_custom_object(*place(), job("strategic"))
    with pytest.raises(ApiException) as failure:
        jobs.patch_namespaced_custom_object(*place(), "strategic", {"spec": {}}, _content_type="application/strategic-merge-patch+json")
    assert failure.value.status == 415


def test_a_watch_goes_on_after_the_list_and_knows_its_selection(core, server):
    listed = core.list_namespaced_config_map("default", label_selector="watched=yes")
    seen = []

    def watch():
        for event in kubernetes.watch.Watch().stream(core.list_namespaced_config_map, "default", label_selector="watched=yes",
                                                     resource_version=listed.metadata.resource_version, timeout_seconds=20):
            seen.append((event["type"], event["object"].metadata.name))
            if len(seen) == 3:
                return

    watcher = threading.Thread(target=watch)
    watcher.start()
    core.create_namespaced_config_map("default", {"metadata": {"name": "other"}})
    core.create_namespaced_config_map("default", {"metadata": {"name": "w", "labels": {"watched": "yes"}}})
    core.patch_namespaced_config_map("w", "default", {"data": {"a": "b"}})
    core.patch_namespaced_config_map("w", "default", {"metadata": {"labels": {"watched": "no"}}})
    watcher.join(20)
    assert seen == [("ADDED", "w"), ("MODIFIED", "w"), ("DELETED", "w")]


def test_a_watch_of_what_is_forgotten_is_told_so(server):
    store = api_store.Store()
    maps = next(resource for resource in store.kinds() if resource.plural == "configmaps")
    store._history = collections.deque(maxlen=2)
    for index in range(4):
        store.create(maps, "default", {"metadata": {"name": f"c{index}"}})
    assert [kind for kind, _ in store.since(3, maps)] == ["ADDED"]
    with pytest.raises(api_store.ApiError, match="too old resource version"):
        store.since(1, maps)


def test_who_has_no_right_is_refused(server):
    with pytest.raises(ApiException) as failure:
        kubernetes.client.CoreV1Api(server.client("nobody")).list_namespaced_pod("default")
    assert failure.value.status == 403
