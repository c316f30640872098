"""The API server, by the official client: observe() and apply() are what a plan is made of and what becomes of it.

Objects go and come as JSON. The client's own types would refuse what they do not know, as fields of a newer cluster, and quantities
that are written as numbers, which a template may have.
"""

import base64
import json
import os
from urllib.parse import quote

import kubernetes.client
from kubernetes.client.exceptions import ApiException

from tessera_operator import actions, names
from tessera_operator.actions import Conflict
from tessera_operator.plan import Observed, Refusal, owner_uid
from tessera_operator.pods import needed_keys

INVALID, FORBIDDEN, NOT_FOUND, CONFLICT, UNPROCESSABLE = 400, 403, 404, 409, 422
TIMEOUT_S = 30
SECRET_BYTES = 32
MERGE = "application/merge-patch+json"


def _message(failure):
    try:
        return json.loads(failure.body)["message"]
    except (TypeError, ValueError, KeyError):
        return str(failure.reason)


def _path_of_job(kind, namespace, name):
    group, version, plural = names.KINDS[kind]
    return f"/apis/{group}/{version}/namespaces/{namespace}/{plural}/{name}"


class Cluster:
    """Of one API server. Not tied to a thread."""

    def __init__(self, api_client=None):
        self._client = api_client or kubernetes.client.ApiClient()

    def _ask(self, method, path, body=None, query=None, content_type="application/json"):
        """The answer as JSON has it. Throws ApiException for all but a success."""
        request = self._client.param_serialize(method, path, query_params=sorted((query or {}).items()), body=body, auth_settings=["BearerToken"],
                                               header_params={"Accept": "application/json", "Content-Type": content_type})
        response = self._client.call_api(*request, _request_timeout=TIMEOUT_S)
        response.read()
        if not 200 <= response.status <= 299:
            raise ApiException.from_response(http_resp=response, body=response.data.decode(errors="replace"), data=None)
        return json.loads(response.data)

    def _get(self, path):
        """None where there is no such object."""
        try:
            return self._ask("GET", path)
        except ApiException as failure:
            if failure.status == NOT_FOUND:
                return None
            raise

    def missing_kinds(self):
        """Names of the CRDs that this API server does not have."""
        found = []
        for group, version, plural in names.KINDS.values():
            listed = self._get(f"/apis/{group}/{version}") or {"resources": []}
            if plural not in [resource["name"] for resource in listed["resources"]]:
                found.append(f"{plural}.{group}")
        return found

    def job(self, kind, namespace, name):
        """The object, or None where there is none."""
        return self._get(_path_of_job(kind, namespace, name))

    def observe(self, body, job, refusals=()):
        """`job`: what body was read as, or None where it cannot be read."""
        metadata = body["metadata"]
        name, core = metadata["name"], f"/api/v1/namespaces/{metadata['namespace']}"
        selector = f"{names.JOB_LABEL}={name},{names.KIND_LABEL}={body['kind']}"
        observed = Observed(refusals=list(refusals))
        observed.pods = self._ask("GET", f"{core}/pods", query={"labelSelector": selector})["items"]
        if job is None or not job.has_scheduler or "completionTime" in (body.get("status") or {}):
            return observed
        observed.service = self._get(f"{core}/services/{names.service_name(name)}")
        if job.owns_secret:
            observed.secret = self._get(f"{core}/secrets/{job.secret_name}")
            if observed.secret:
                observed.secret.pop("data", None)
        for other in needed_keys(job):
            found = self._get(f"{core}/secrets/{quote(other)}")
            observed.keys[other] = None if found is None else sorted(found.get("data") or {})
        return observed

    def apply(self, body, plan):
        """Takes the steps of a plan for the job `body`. Returns (refusals, seconds until one must look again or None). Throws
        Conflict where the job has changed meanwhile; what was done until then stays, and the next plan takes it as it is."""
        refusals, after_s = [], None
        for action in plan:
            if isinstance(action, actions.Create):
                if refusals and action.resource != "events":
                    continue  # it would be refused, too, or needs what was: the next plan knows why
                refusal = self._create(body, action)
                refusals += [refusal] if refusal else []
            elif isinstance(action, actions.DeletePod):
                self._delete(f"/api/v1/namespaces/{body['metadata']['namespace']}/pods/{action.name}", action.uid)
            elif isinstance(action, (actions.WriteStatus, actions.SetFinalizers)):
                self._write(body, action)
            elif isinstance(action, actions.DeleteJob):
                self._delete(_path_of_job(body["kind"], body["metadata"]["namespace"], body["metadata"]["name"]), action.uid)
            elif isinstance(action, actions.LookAgain):
                after_s = action.after_s
        return refusals, after_s

    def _create(self, body, action):
        content = action.body
        if action.resource == "secrets":
            drawn = base64.b64encode(os.urandom(SECRET_BYTES)).decode()
            content = content | {"data": {key: drawn if value is None else value for key, value in content["data"].items()}}
        # A field that is no field of a pod's is an error, not forgotten.
        query = {"fieldValidation": "Strict"} if action.resource == "pods" else None
        try:
            self._ask("POST", f"/api/v1/namespaces/{body['metadata']['namespace']}/{action.resource}", content, query)
        except ApiException as failure:
            if action.resource == "events":
                return None  # what could not be told stops no job
            if failure.status == CONFLICT:
                return self._whose(body, action)
            if failure.status in (INVALID, FORBIDDEN, UNPROCESSABLE):
                return Refusal(action.name, failure.status, _message(failure), action.resource)
            raise
        return None

    def _whose(self, body, action):
        """An object of that name is there: the job's own from a plan that was cut off, or of an earlier job, which the next look sees; or
        a pod without the job's labels, which it would not see."""
        if action.resource != "pods":
            return None
        found = self._get(f"/api/v1/namespaces/{body['metadata']['namespace']}/pods/{action.name}")
        if found is None or owner_uid(found) == body["metadata"]["uid"] or names.JOB_LABEL in (found["metadata"].get("labels") or {}):
            return None
        return Refusal(action.name, CONFLICT, "a pod of that name is there that is not the job's: delete it, or give the job another name")

    def _delete(self, path, uid):
        try:
            self._ask("DELETE", path, {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": uid}})
        except ApiException as failure:
            if failure.status not in (NOT_FOUND, CONFLICT):  # gone, or another one of that name
                raise

    def _write(self, body, action):
        metadata = body["metadata"]
        path = _path_of_job(body["kind"], metadata["namespace"], metadata["name"])
        try:
            if isinstance(action, actions.WriteStatus):
                self._ask("PUT", f"{path}/status", body | {"status": action.status})
            else:
                change = {"metadata": {"finalizers": action.finalizers, "resourceVersion": metadata["resourceVersion"]}}
                self._ask("PATCH", path, change, content_type=MERGE)
        except ApiException as failure:
            if failure.status in (CONFLICT, NOT_FOUND):
                raise Conflict(_message(failure)) from failure
            raise
