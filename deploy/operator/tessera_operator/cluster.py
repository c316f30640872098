"""The API server, by the official client: observe() and apply() are what a plan is made of and what becomes of it."""

import base64
import json
import os

import kubernetes.client
from kubernetes.client.exceptions import ApiException

from tessera_operator import actions, names
from tessera_operator.plan import Observed, Refusal, owner_uid
from tessera_operator.pods import needed_keys

CONFLICT, NOT_FOUND, GONE = 409, 404, 410
SECRET_BYTES = 32


class Conflict(Exception):
    """The job has changed since it was observed: look again."""


def _message(failure):
    try:
        return json.loads(failure.body)["message"]
    except (TypeError, ValueError, KeyError):
        return str(failure.reason)


def _json(response):
    return json.loads(response.data)


class Cluster:
    """Of one API server. Objects are as its JSON has them. Not tied to a thread."""

    def __init__(self, api_client=None):
        self._core = kubernetes.client.CoreV1Api(api_client)
        self._jobs = kubernetes.client.CustomObjectsApi(api_client)

    def job(self, kind, namespace, name):
        """The object, or None where there is none."""
        group, version, plural = names.KINDS[kind]
        return self._or_none(lambda: self._jobs.get_namespaced_custom_object(group, version, namespace, plural, name))

    def observe(self, body, job, refusals=()):
        """`job`: what body was read as, or None where it cannot be read."""
        metadata = body["metadata"]
        namespace, name = metadata["namespace"], metadata["name"]
        selector = f"{names.JOB_LABEL}={name},{names.KIND_LABEL}={body['kind']}"
        observed = Observed(refusals=list(refusals))
        observed.pods = _json(self._core.list_namespaced_pod(namespace, label_selector=selector, _preload_content=False))["items"]
        if job is None or not job.has_scheduler or "completionTime" in (body.get("status") or {}):
            return observed
        observed.service = self._or_none(lambda: _json(self._core.read_namespaced_service(names.service_name(name), namespace, _preload_content=False)))
        if job.owns_secret:
            observed.secret = self._secret(namespace, job.secret_name)
            if observed.secret:
                observed.secret.pop("data", None)
        for other in needed_keys(job):
            found = self._secret(namespace, other)
            observed.keys[other] = None if found is None else sorted(found.get("data") or {})
        return observed

    def _secret(self, namespace, name):
        return self._or_none(lambda: _json(self._core.read_namespaced_secret(name, namespace, _preload_content=False)))

    @staticmethod
    def _or_none(ask):
        try:
            return ask()
        except ApiException as failure:
            if failure.status == NOT_FOUND:
                return None
            raise

    def apply(self, body, plan):
        """Takes the steps of a plan for the job `body`. Returns (refusals, seconds until one must look again or None). Throws
        Conflict where the job has changed meanwhile; what was done until then stays, and the next plan takes it as it is."""
        refusals, after_s = [], None
        for action in plan:
            if isinstance(action, actions.Create):
                if refusals and action.resource == "pods":
                    continue  # it would be refused, too, and the next plan knows why
                refusal = self._create(body, action)
                refusals += [refusal] if refusal else []
            elif isinstance(action, actions.DeletePod):
                self._delete_pod(body, action)
            elif isinstance(action, actions.WriteStatus):
                self._write(body, action)
            elif isinstance(action, actions.SetFinalizers):
                self._write(body, action)
            elif isinstance(action, actions.DeleteJob):
                self._delete_job(body, action)
            elif isinstance(action, actions.LookAgain):
                after_s = action.after_s
        return refusals, after_s

    def _create(self, body, action):
        namespace = body["metadata"]["namespace"]
        make = {"pods": self._core.create_namespaced_pod, "services": self._core.create_namespaced_service,
                "secrets": self._core.create_namespaced_secret, "events": self._core.create_namespaced_event}[action.resource]
        content = action.body
        if action.resource == "secrets":
            drawn = base64.b64encode(os.urandom(SECRET_BYTES)).decode()
            content = content | {"data": {key: drawn if value is None else value for key, value in content["data"].items()}}
        options = {"_preload_content": False}
        if action.resource == "pods":
            options["field_validation"] = "Strict"  # a field that is no field of a pod's is an error, not forgotten
        try:
            make(namespace, content, **options)
        except ApiException as failure:
            if action.resource == "events":
                return None  # what could not be told stops no job
            if failure.status == CONFLICT:
                return self._whose(body, action)
            if action.resource == "pods" and failure.status in (400, 403, 422):
                return Refusal(action.name, failure.status, _message(failure))
            raise
        return None

    def _whose(self, body, action):
        """An object of that name is there: the job's own from a plan that was cut off, or of an earlier job, which the next look sees; or
        a pod without the job's labels, which it would not see."""
        if action.resource != "pods":
            return None
        found = self._or_none(lambda: _json(self._core.read_namespaced_pod(action.name, body["metadata"]["namespace"], _preload_content=False)))
        if found is None or owner_uid(found) == body["metadata"]["uid"] or names.JOB_LABEL in (found["metadata"].get("labels") or {}):
            return None
        return Refusal(action.name, CONFLICT, "a pod of that name is there that is not the job's: delete it, or give the job another name")

    def _delete_pod(self, body, action):
        options = {"preconditions": {"uid": action.uid}}
        try:
            self._core.delete_namespaced_pod(action.name, body["metadata"]["namespace"], body=options, _preload_content=False)
        except ApiException as failure:
            if failure.status not in (NOT_FOUND, CONFLICT):  # gone, or another pod of that name
                raise

    def _write(self, body, action):
        metadata = body["metadata"]
        group, version, plural = names.KINDS[body["kind"]]
        try:
            if isinstance(action, actions.WriteStatus):
                self._jobs.replace_namespaced_custom_object_status(group, version, metadata["namespace"], plural, metadata["name"],
                                                                   body | {"status": action.status})
            else:
                change = {"metadata": {"finalizers": action.finalizers, "resourceVersion": metadata["resourceVersion"]}}
                self._jobs.patch_namespaced_custom_object(group, version, metadata["namespace"], plural, metadata["name"], change,
                                                          _content_type="application/merge-patch+json")
        except ApiException as failure:
            if failure.status in (CONFLICT, NOT_FOUND):
                raise Conflict(_message(failure)) from failure
            raise

    def _delete_job(self, body, action):
        metadata = body["metadata"]
        group, version, plural = names.KINDS[body["kind"]]
        try:
            self._jobs.delete_namespaced_custom_object(group, version, metadata["namespace"], plural, metadata["name"],
                                                       body={"preconditions": {"uid": action.uid}})
        except ApiException as failure:
            if failure.status not in (NOT_FOUND, CONFLICT):
                raise
