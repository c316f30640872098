"""Claims about plan(), the operator's decisions, without an API server: what it asks for, whatever has happened before."""

import copy
import random

import pytest
from harness import FULL, job, names, role
from tessera_operator import actions
from tessera_operator.plan import Observed, plan
from tessera_operator.status import text_of
from world import Killed, World, refusing

WORKERS = ["a-worker-0", "a-worker-1"]
ALL = ["a-scheduler-0", *WORKERS]


def world(**options):
    return World(job("a", **options))


def running(**options):
    found = world(**options).go_on()
    assert found.is_true("Running")
    return found


def tessera_job(**options):
    return running(kind="TesseraJob", **options)


class TestBegin:
    def test_a_job_becomes_a_pod_for_each_member_a_service_and_a_secret(self):
        w = world(workers=3, servers=2).settle()
        assert sorted(w.pods) == ["a-scheduler-0", "a-server-0", "a-server-1", "a-worker-0", "a-worker-1", "a-worker-2"]
        assert list(w.services) == ["a-scheduler"] and list(w.secrets) == ["a-secret"]
        assert w.is_true("Created") and not w.is_true("Running")

    def test_the_finalizer_comes_before_anything_else(self):
        w = world()
        assert plan(w.body, Observed(), w.now) == [actions.SetFinalizers([names.FINALIZER])]

    def test_it_says_which_pod_is_waited_for_and_why(self):
        w = world().settle()
        w.set("a-worker-1", "Pending", conditions=[{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes"}])
        w.set("a-scheduler-0", "Running")
        w.set("a-worker-0", "Running")
        assert w.settle().condition("Running") is None
        w.set("a-worker-1", "Running")
        w.settle()
        waits = {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}
        w.set("a-worker-1", "Pending", containerStatuses=[{"name": "mindspore", "state": waits}])
        assert "1 of 3 pods do not run: a-worker-1: ImagePullBackOff: no such image" in w.settle().condition("Running")["message"]

    def test_it_counts_the_pods_that_are_ready(self):
        w = running()
        assert w.status()["ready"] == 3
        w.set("a-worker-1", "Running", conditions=[{"type": "Ready", "status": "False"}])
        assert w.settle().status()["ready"] == 2
        w.set("a-worker-1", "Running", conditions=[{"type": "Ready", "status": "True"}])
        w.delete("a-worker-0")
        assert w.settle().status()["ready"] == 2
        w.go_on()
        for name in ("a-worker-0", "a-worker-1"):
            w.succeed(name)
        assert w.go_on().status()["ready"] == 0

    def test_one_worker_alone_has_no_scheduler_service_or_secret(self):
        body = job("a", workers=1)
        del body["spec"]["msReplicaSpecs"]["Scheduler"]
        w = World(body).go_on()
        assert list(w.pods) == ["a-worker-0"] and not w.services and not w.secrets
        variables = {entry["name"] for entry in w.pods["a-worker-0"]["spec"]["containers"][0]["env"]}
        assert not {"MS_ROLE", "MS_SCHED_HOST", "TESSERA_SECRET_FILE"} & variables

    def test_a_job_at_rest_asks_for_nothing(self):
        w = running()
        for _ in range(3):
            assert not w.wait(100).look()

    def test_a_text_that_no_rule_has_refused_is_refused_by_its_field_and_mended_later(self):
        w = world()
        w.body["spec"]["msReplicaSpecs"]["Worker"]["replicas"] = 0
        w.settle()
        assert not w.pods and "spec.msReplicaSpecs.Worker.replicas: it is 0" in w.condition("Failed")["message"]
        w.edit(lambda spec: spec["msReplicaSpecs"]["Worker"].update(replicas=1))
        assert w.go_on().is_true("Running") and not w.is_true("Failed")

    def test_a_pod_that_the_api_server_calls_invalid_fails_the_job_with_its_words(self):
        w = world()
        w.refuse = refusing(400, 'strict decoding error: unknown field "spec.containers.0.comand"')
        w.settle()
        assert w.condition("Failed")["reason"] == "PodRefused" and "comand" in w.condition("Failed")["message"]

    @pytest.mark.parametrize("kind, resource, reason", [("Pod", "pods", "PodsAreMade"), ("Service", "services", "ServiceRefused"),
                                                        ("Secret", "secrets", "SecretRefused")])
    def test_a_quota_is_waited_for_and_said_until_it_has_room(self, kind, resource, reason):
        w = world()
        w.refuse = refusing(403, "exceeded quota: q", kind)
        w.settle()
        said, effects = copy.deepcopy(w.status()), w.effects

        def tries():
            return [of for of, _ in w.tried].count(resource)

        assert tries() == 1 and not w.pods and w.reasons() == [reason.replace("PodsAreMade", "PodRefused")]
        condition = w.condition("Created")
        assert condition["reason"] == reason and "now (403): exceeded quota: q" in condition["message"] and not w.is_true("Failed")
        for later in (3, 3, 3):  # whatever asks for a look
            assert not w.wait(later).look() and w.effects == effects
        assert w.look_again == 1 and tries() == 1
        w.wait(1).settle()
        assert tries() == 2 and w.status() == said and "startTime" not in said
        w.refuse = refusing(403, "exceeded quota: another", kind)
        w.wait(10).settle()
        assert tries() == 3 and "(403): exceeded quota: another" in w.condition("Created")["message"] and len(w.events) == 2
        w.refuse = None
        w.wait(10).look()
        assert w.condition("Created")["reason"] == reason
        assert w.go_on().is_true("Running") and w.status()["startTime"] == text_of(w.now)

    def test_a_pod_that_is_to_come_again_and_is_refused_is_said_likewise(self):
        w = running()
        w.refuse = refusing(403, "exceeded quota: q")
        w.fail("a-worker-1")
        w.settle()
        said = copy.deepcopy(w.status())
        assert "the API server takes no pod a-worker-1 now (403): exceeded quota: q" in w.condition("Restarting")["message"]
        w.wait(10).settle()
        assert w.status() == said and w.reasons().count("PodRefused") == 1
        w.refuse = None
        assert w.wait(10).go_on().is_true("Running")

    def test_where_the_clock_is_set_back_a_refusal_does_not_last_the_longer(self):
        w = world()
        w.refuse = refusing(403, "exceeded quota: q")
        w.settle()
        w.refuse = None
        assert w.wait(-3600).go_on().is_true("Running")

    def test_a_new_generation_is_not_held_to_what_was_refused_of_the_one_before(self):
        w = world(kind="TesseraJob")
        w.refuse = refusing(400, 'unknown field "comand"')
        assert w.settle().condition("Failed")["reason"] == "PodRefused"
        w.refuse = None
        w.edit(lambda spec: spec.update(generation=2))
        assert w.go_on().is_true("Running") and not w.is_true("Failed")


class TestLosses:
    @pytest.mark.parametrize("name", ALL)
    def test_who_is_deleted_is_made_anew_with_the_same_name_and_the_others_stay(self, name):
        w = running()
        before = {other: w.uid_of(other) for other in ALL}
        w.delete(name)
        w.go_on()
        assert w.attempt(name) == 1 and w.uid_of(name) != before[name] and w.is_true("Running")
        assert {other: w.uid_of(other) for other in ALL if other != name} == {other: uid for other, uid in before.items() if other != name}
        assert w.status()["restarts"] == 0  # who deletes a pod does not use up the job's restarts

    @pytest.mark.parametrize("name", ALL)
    def test_who_fails_is_made_anew_and_counted(self, name):
        w = running()
        w.fail(name, 7)
        w.settle()
        assert "has failed: exit code 7" in w.condition("Restarting")["message"] or w.attempt(name) == 1
        w.go_on()
        assert w.attempt(name) == 1 and w.status()["restarts"] == 1 and w.is_true("Running") and not w.is_true("Restarting")

    def test_an_eviction_does_not_count_unless_the_job_asks_for_it(self):
        for counts, restarts in ((False, 0), (True, 1)):
            w = tessera_job(countDisruptions=counts)
            w.evict("a-worker-0")
            assert w.go_on().status()["restarts"] == restarts and w.attempt("a-worker-0") == 1

    def test_a_pod_that_is_disrupted_says_so_by_its_condition_too(self):
        w = running()
        w.set("a-worker-0", "Failed", 137, conditions=[{"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}])
        assert w.go_on().status()["restarts"] == 0

    def test_never_means_that_a_loss_ends_the_job(self):
        for lose, reason in ((World.fail, "PodFailed"), (World.delete, "PodLost"), (World.evict, "PodLost")):
            w = running(policy="Never")
            lose(w, "a-worker-1")
            w.run_pods().go_on()
            assert w.condition("Failed")["reason"] == reason and "a-worker-1" in w.condition("Failed")["message"]

    def test_policies_are_those_of_the_role(self):
        w = running(policy="OnFailure", scheduler_policy="Never")
        w.fail("a-worker-0")
        assert not w.go_on().is_true("Failed")
        w.fail("a-scheduler-0")
        assert w.go_on().is_true("Failed")

    def test_one_failure_more_than_max_restarts_ends_the_job_with_the_reason(self):
        w = tessera_job(maxRestarts=2)
        for _ in range(2):
            w.wait(200)
            w.fail("a-worker-0", 5)
            w.go_on().wait(200).go_on()
            assert w.is_true("Running")
        w.wait(200)
        w.fail("a-worker-0", 5)
        w.go_on()
        assert w.condition("Failed")["reason"] == "MaxRestartsExceeded"
        assert "a-worker-0, attempt 2, has failed: exit code 5, and all 2 restarts are used up" in w.condition("Failed")["message"]

    def test_what_fails_with_another_pod_counts_once(self):
        w = tessera_job(workers=5, maxRestarts=3)
        w.wait(100)
        for name in list(w.pods):
            w.fail(name)
            w.settle()
            w.wait(1)
        assert w.go_on().status()["restarts"] == 1
        assert all(w.attempt(name) == 1 for name in w.pods)

    def test_a_pod_that_fails_at_once_each_time_counts_each_time_and_waits_longer(self):
        w = tessera_job(maxRestarts=100)
        waits = []
        for _ in range(5):
            w.wait(1)
            w.fail("a-worker-0")
            w.settle()
            waits.append(w.look_again or 0)
            w.wait(waits[-1]).go_on()
        assert w.status()["restarts"] == 5
        assert waits == [0, 1, 2, 4, 8]

    def test_a_pod_of_an_older_attempt_is_no_member(self):
        """As where the operator was killed between its decision and the deletion."""
        w = running()
        w.fail("a-worker-0")
        steps = plan(w.body, w.observe(), w.now)
        kinds = [type(step).__name__ for step in steps]
        assert kinds.index("WriteStatus") < kinds.index("DeletePod")
        with pytest.raises(Killed):
            w.look(until=kinds.index("DeletePod"))
        assert w.status()["restarts"] == 1 and w.pods["a-worker-0"]["status"]["phase"] == "Failed"
        w.go_on()
        assert w.status()["restarts"] == 1 and w.attempt("a-worker-0") == 1

    def test_who_has_ended_well_is_not_made_anew_when_its_pod_is_collected(self):
        w = running()
        w.succeed("a-worker-0")
        w.settle()
        w.vanish("a-worker-0")
        w.go_on()
        assert "a-worker-0" not in w.pods and w.is_true("Running")
        w.succeed("a-worker-1")
        assert w.go_on().is_true("Succeeded")

    def test_a_scheduler_that_ends_before_its_job_comes_again_only_with_always_and_not_at_once(self):
        for policy, attempt in (("OnFailure", 0), ("Always", 1)):
            w = running(scheduler_policy=policy)
            w.succeed("a-scheduler-0")
            w.go_on()
            assert w.attempt("a-scheduler-0") == 0  # the job's end may just be on its way
            w.wait(31).go_on()
            assert w.attempt("a-scheduler-0") == attempt

    def test_a_pod_that_is_going_keeps_its_name_until_it_is_gone(self):
        w = running()
        w.delete("a-worker-0")
        w.settle()
        assert w.attempt("a-worker-0") == 0 and "being deleted" in w.condition("Running")["message"]
        w.run_pods().settle()
        assert w.attempt("a-worker-0") == 1

    def test_a_service_that_was_deleted_is_made_again(self):
        w = running()
        w.services.clear()
        assert list(w.go_on().services) == ["a-scheduler"]


class TestEnd:
    def test_success_is_of_one_worker_or_of_all(self):
        for policy, is_over in (("", True), ("AllWorkers", False)):
            w = running(successPolicy=policy)
            w.succeed("a-worker-1")
            w.settle()
            assert w.is_true("Succeeded") == is_over
            w.succeed("a-worker-0")
            w.settle()
            assert w.is_true("Succeeded") and not w.is_true("Running") and "completionTime" in w.status()

    def test_a_worker_that_has_ended_well_counts_before_one_that_has_failed(self):
        w = running(successPolicy="", policy="Never")
        w.succeed("a-worker-0")
        w.fail("a-worker-1")
        assert w.settle().is_true("Succeeded") and not w.is_true("Failed")

    @pytest.mark.parametrize("policy, left", [("All", []), ("Running", WORKERS), ("None", ALL)])
    def test_pods_are_cleaned_up_as_the_policy_says(self, policy, left):
        w = running(run_policy={"cleanPodPolicy": policy})
        for name in WORKERS:
            w.succeed(name)
        w.go_on()
        assert sorted(w.pods) == left
        assert w.status()["replicaStatuses"]["Worker"]["succeeded"] == 2

    def test_after_the_end_nothing_is_made_anew(self):
        w = running(run_policy={"cleanPodPolicy": "None"})
        for name in WORKERS:
            w.succeed(name)
        w.go_on()
        made = list(w.made)
        for name in ALL:
            w.vanish(name)
            w.go_on()
        assert w.made == made and w.is_true("Succeeded")

    def test_a_job_is_deleted_when_its_time_is_over(self):
        w = running(run_policy={"ttlSecondsAfterFinished": 100})
        for name in WORKERS:
            w.succeed(name)
        w.go_on()
        assert w.look_again == 100
        w.wait(99).go_on()
        assert not w.is_gone
        w.wait(1).go_on()
        assert w.is_gone and not w.pods

    def test_a_deadline_ends_the_job(self):
        w = running(run_policy={"activeDeadlineSeconds": 60})
        w.wait(59).go_on()
        assert not w.is_true("Failed")
        w.wait(1).go_on()
        assert w.condition("Failed")["reason"] == "DeadlineExceeded" and not w.pods

    def test_a_deleted_job_ends_its_workers_before_its_scheduler(self):
        w = running(servers=1)
        w.body["metadata"]["deletionTimestamp"] = text_of(w.now)
        w.settle()
        assert {name for name, pod in w.pods.items() if "deletionTimestamp" in pod["metadata"]} == {*WORKERS, "a-server-0"}
        w.run_pods().settle()
        assert "deletionTimestamp" in w.pods["a-scheduler-0"]["metadata"] and not w.is_gone
        w.run_pods().settle()
        assert w.is_gone

    def test_other_finalizers_stay(self):
        w = running()
        w.body["metadata"]["finalizers"].append("example.org/mine")
        w.body["metadata"]["deletionTimestamp"] = text_of(w.now)
        w.go_on()
        assert w.body["metadata"]["finalizers"] == ["example.org/mine"] and not w.pods
        assert not w.look()


class TestSuspension:
    def test_a_suspended_job_has_no_pods_until_it_is_resumed(self):
        w = World(job("a", kind="TesseraJob", suspend=True)).go_on()
        assert not w.pods and w.is_true("Suspended") and "startTime" not in w.status()
        w.edit(lambda spec: spec.update(suspend=False))
        assert w.go_on().is_true("Running") and not w.is_true("Suspended") and w.attempt("a-worker-0") == 0

    def test_a_job_that_is_suspended_gives_its_place_away_and_goes_on_as_new_attempts(self):
        w = tessera_job()
        w.edit(lambda spec: spec.update(suspend=True))
        w.go_on()
        assert not w.pods and w.status()["state"] == "Suspended" and w.status()["restarts"] == 0
        w.edit(lambda spec: spec.update(suspend=False))
        w.go_on()
        assert {w.attempt(name) for name in ALL} == {1} and w.status()["restarts"] == 0

    @pytest.mark.parametrize("policy", ["Never", "OnFailure"])
    def test_who_changes_his_mind_loses_no_pod_by_it(self, policy):
        """What the operator itself has deleted is no loss, also where its reason is gone before the pod is."""
        def workers(number):
            return lambda spec: spec["msReplicaSpecs"]["Worker"].update(replicas=number)

        for there, back in ((lambda spec: spec.update(suspend=True), lambda spec: spec.update(suspend=False)), (workers(3), workers(2))):
            w = tessera_job(policy=policy, countDisruptions=True, maxRestarts=0)
            w.edit(there)
            w.look()
            assert "deletionTimestamp" in w.pods["a-worker-0"]["metadata"]
            w.edit(back)
            w.go_on()
            assert w.is_true("Running") and not w.is_true("Failed") and w.status()["restarts"] == 0
            assert w.attempt("a-worker-0") == 1

    def test_a_deadline_does_not_count_what_was_suspended(self):
        w = tessera_job(run_policy={"activeDeadlineSeconds": 60})
        w.wait(50)
        w.edit(lambda spec: spec.update(suspend=True))
        w.go_on().wait(1000).go_on()
        w.edit(lambda spec: spec.update(suspend=False))
        assert w.go_on().wait(59).go_on().is_true("Running")

    def test_msjobs_are_suspended_by_their_run_policy(self):
        w = running(run_policy={"suspend": False})
        w.edit(lambda spec: spec["runPolicy"].update(suspend=True))
        assert not w.go_on().pods


class TestFormations:
    def test_another_number_of_workers_lets_all_begin_anew_when_the_old_ones_are_gone(self):
        w = tessera_job()
        w.edit(lambda spec: spec["msReplicaSpecs"]["Worker"].update(replicas=4))
        w.settle()
        assert len(w.pods) == 3 and w.condition("Restarting")["reason"] == "NewFormation"  # none of the new ones meets an old one
        w.go_on()
        assert len(w.pods) == 5 and w.status()["restarts"] == 0 and w.status()["replicas"] == 4
        numbers = {next(entry["value"] for entry in pod["spec"]["containers"][0]["env"] if entry["name"] == "MS_WORKER_NUM") for pod in w.pods.values()}
        assert numbers == {"4"}
        w.edit(lambda spec: spec["msReplicaSpecs"]["Worker"].update(replicas=1))
        assert sorted(w.go_on().pods) == ["a-scheduler-0", "a-worker-0"]
        w.edit(lambda spec: spec["msReplicaSpecs"]["Worker"].update(replicas=2))
        assert w.go_on().attempt("a-worker-1") == 2  # attempts of a name are never counted twice

    def test_a_later_generation_begins_anew_also_after_the_end(self):
        w = tessera_job(maxRestarts=0)
        w.fail("a-worker-0")
        assert w.go_on().is_true("Failed")
        w.edit(lambda spec: (spec.update(generation=2), spec["msReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0].update(image="example/train:2")))
        w.go_on()
        assert w.is_true("Running") and not w.is_true("Failed") and "completionTime" not in w.status()
        assert w.pods["a-worker-0"]["spec"]["containers"][0]["image"] == "example/train:2"

    def test_an_object_of_an_earlier_job_is_waited_for(self):
        w = world()
        old = {"apiVersion": "mindspore.gitee.com/v1", "kind": "MSJob", "name": "a", "uid": "job-0", "controller": True}
        w.services["a-scheduler"] = {"metadata": {"name": "a-scheduler", "uid": "old", "ownerReferences": [old]}}
        w.settle()
        assert not w.pods and w.condition("Created")["reason"] == "OlderObject" and w.look_again
        w.services.clear()
        assert w.go_on().is_true("Running")

    def test_an_object_of_somebody_else_is_not_taken(self):
        w = world()
        w.secrets["a-secret"] = {"metadata": {"name": "a-secret", "uid": "theirs"}, "data": {"secret": "eA=="}}
        w.settle()
        assert not w.pods and w.condition("Created")["reason"] == "NameTaken"

    def test_a_pod_of_an_earlier_job_keeps_its_name_until_it_is_gone(self):
        w = world().settle()
        theirs = copy.deepcopy(w.pods["a-worker-0"])
        w = world()
        theirs["metadata"]["ownerReferences"][0]["uid"] = "job-0"
        w.pods["a-worker-0"] = theirs
        w.settle()
        assert w.uid_of("a-worker-0") == theirs["metadata"]["uid"] and "earlier job" in w.condition("Created")["message"]
        w.vanish("a-worker-0")
        assert w.go_on().is_true("Running") and w.attempt("a-worker-0") == 0


class TestSecrets:
    def with_tls(self, **tls):
        return World(job("a", kind="TesseraJob", tls={"secretName": "certificates"} | tls))

    def test_a_secret_that_is_missing_is_named_with_its_field_and_its_keys(self):
        w = self.with_tls().settle()
        assert not w.pods and w.condition("Created")["status"] == "False"
        assert w.condition("Created")["message"].startswith('spec.tls.secretName: there is no Secret "certificates" in namespace default')
        w.wait(10).look()
        assert [type(step) for step in w.last_plan] == [actions.LookAgain]  # it was said, and is not said again
        w.secrets["certificates"] = {"data": dict.fromkeys(("ca.crt", "server.p12", "password"), "eA==")}
        w.settle()
        assert w.condition("Created")["message"] == 'spec.tls.secretName: the Secret "certificates" has no key client.p12'
        w.secrets["certificates"]["data"]["client.p12"] = "eA=="
        assert w.go_on().is_true("Running") and w.is_true("Created") and list(w.secrets) == ["certificates"]

    def test_certificates_of_nodes_are_asked_for_by_their_names(self):
        assert "worker_0.p12, worker_1.p12" in self.with_tls(perNode=True).settle().condition("Created")["message"]

    def test_a_list_of_revoked_certificates_is_asked_for_where_it_is_to_be_used(self):
        assert "ca.crt, client.p12, crl.pem, password, server.p12" in self.with_tls(revocationList=True).settle().condition("Created")["message"]

    def test_another_content_of_a_secret_changes_nothing(self):
        w = self.with_tls()
        w.secrets["certificates"] = {"data": dict.fromkeys(("ca.crt", "server.p12", "client.p12", "password"), "eA==")}
        w.go_on()
        w.secrets["certificates"]["data"]["client.p12"] = "eQ=="
        assert not w.look()


# What may happen at any time, by name.
def _events(w, draw):
    runs = [name for name, pod in w.pods.items() if pod["status"]["phase"] == "Running" and "deletionTimestamp" not in pod["metadata"]]
    found = [("pods run", w.run_pods), ("time", lambda: w.wait(draw.choice((0.5, 3, 40))))]
    if runs:
        name = draw.choice(sorted(runs))
        found += [(f"fail {name}", lambda: w.fail(name)), (f"evict {name}", lambda: w.evict(name)), (f"delete {name}", lambda: w.delete(name)),
                  (f"vanish {name}", lambda: w.vanish(name))]
        if "worker" not in name or draw.random() < 0.2:
            found.append((f"succeed {name}", lambda: w.succeed(name)))
    if draw.random() < 0.15:
        suspended, workers = w.body["spec"].get("suspend", False), draw.randint(1, 4)
        found += [("suspend", lambda: w.edit(lambda spec: spec.update(suspend=not suspended))),
                  ("scale", lambda: w.edit(lambda spec: spec["msReplicaSpecs"]["Worker"].update(replicas=workers)))]
    if draw.random() < 0.03:
        generation = w.body["spec"].get("generation", 1) + 1
        found.append(("generation", lambda: w.edit(lambda spec: spec.update(generation=generation))))
    return found


@pytest.mark.parametrize("block", range(10))
def test_whatever_happens_and_wherever_the_operator_is_killed_the_job_keeps_its_laws(block):
    size = 200 if FULL else 20
    for seed in range(block * size, (block + 1) * size):
        print("seed", seed)
        _live_through(seed)


def _live_through(seed):
    draw = random.Random(seed)
    w = World(job("a", kind="TesseraJob", workers=draw.randint(1, 3), servers=draw.choice((0, 0, 1)), maxRestarts=draw.choice((0, 2, 50)),
                  policy=draw.choice(("OnFailure", "OnFailure", "Always", "Never")), successPolicy=draw.choice(("", "AllWorkers")),
                  run_policy={"cleanPodPolicy": draw.choice(("All", "Running", "None"))}))
    story, attempts, generation = [], {}, None
    for _ in range(60):
        event, happen = draw.choice(_events(w, draw))
        story.append(event)
        happen()
        try:
            w.look(until=draw.choice((None, None, 0, 1, 2, 3)))
        except Killed:
            story.append("killed")
        status = w.status()
        if status.get("formation", {}).get("generation") != generation:
            generation, attempts = status.get("formation", {}).get("generation"), {}
        assert status.get("restarts", 0) <= w.body["spec"]["maxRestarts"], story
        for name, member in status.get("members", {}).items():
            assert member["attempt"] >= attempts.get(name, 0), (story, name)
            attempts[name] = member["attempt"]
        assert not (w.is_true("Succeeded") and w.is_true("Failed")), story
        formations = {pod["metadata"]["labels"][names.FORMATION_LABEL] for pod in w.pods.values()}
        assert len(formations) <= 1, (story, "pods of two formations at once")
    # Left alone it comes to rest: what is left is what the job is to have.
    w.edit(lambda spec: spec.update(suspend=False))
    for _ in range(8):
        w.wait(100).go_on()
    assert not w.look(), story
    status = w.status()
    if "completionTime" in status:
        assert w.is_true("Succeeded") != w.is_true("Failed"), story
        may_be_left = {"All": set(), "Running": {"Succeeded", "Failed"}, "None": {"Succeeded", "Failed", "Running"}}
        assert set(w.phases().values()) <= may_be_left[w.body["spec"]["runPolicy"]["cleanPodPolicy"]], story
    else:
        assert w.is_true("Running"), (story, status)
        assert set(w.phases().values()) <= {"Running", "Succeeded"}, story


def test_killed_at_each_point_of_each_plan_it_ends_in_the_same_objects():
    """A job's whole life, cut off once after each number of effects of each look."""
    def life(kill_at):
        w, count, killed = World(job("a", kind="TesseraJob", workers=2)), 0, 0

        def look():
            nonlocal count, killed
            steps = sum(not isinstance(step, actions.LookAgain) for step in plan(copy.deepcopy(w.body), w.observe(), w.now))
            if kill_at is not None and not killed and count <= kill_at < count + steps:
                killed = 1
                with pytest.raises(Killed):
                    w.look(until=kill_at - count)
                count += steps
                return True
            count += steps
            return w.look()

        def settle():
            for _ in range(40):
                if not look():
                    return
            raise AssertionError("no rest")

        settle()
        w.run_pods(), settle()
        w.fail("a-worker-0"), settle()
        w.run_pods(), settle()
        w.delete("a-scheduler-0"), w.run_pods(), settle()
        w.run_pods(), settle()
        w.edit(lambda spec: spec["msReplicaSpecs"]["Worker"].update(replicas=3)), settle()
        w.run_pods(), settle(), w.run_pods(), settle(), w.run_pods(), settle()
        for name in sorted(name for name in w.pods if "worker" in name):
            w.succeed(name)
        settle(), w.run_pods(), settle()
        return w, count

    whole, count = life(None)

    def shown(w):
        status = copy.deepcopy(w.status())
        for member in status["members"].values():
            member.pop("uid", None)
        return status, {name: w.attempt(name) for name in w.pods}, w.phases(), sorted(w.services), sorted(w.secrets), w.made, w.reasons()

    assert whole.is_true("Succeeded") and count > 30
    for kill_at in range(count):
        assert shown(life(kill_at)[0]) == shown(whole), f"killed after {kill_at} effects"


def test_a_large_job_takes_an_effect_for_each_pod_and_a_few_more():
    w = World(job("a", workers=1000)).settle()
    w.run_pods().settle()
    assert len(w.pods) == 1001 and w.is_true("Running") and w.effects < 1001 + 12


def test_a_scheduler_of_ones_own_template_without_a_command_is_that_of_tessera():
    body = job("a", kind="TesseraJob", workers=2, servers=1)
    body["spec"]["msReplicaSpecs"]["Scheduler"] = role([], policy="OnFailure")
    del body["spec"]["msReplicaSpecs"]["Scheduler"]["template"]["spec"]["containers"][0]["command"]
    command = World(body).settle().pods["a-scheduler-0"]["spec"]["containers"][0]["command"]
    assert command == ["tessera", "scheduler", "--workers", "3", "--port", "2222", "--host", "$(MS_SCHED_HOST)", "--timeout", "86400",
                       "--max_restarts", "1000000"]
