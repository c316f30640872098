"""Claims about what is installed: CRDs, roles, the Kustomize base, the chart, the samples, and the manifests of docs/kubernetes.md."""

import json
import re
import subprocess
import sys
import tomllib

import api_store
import crd_rules
import kubernetes.client
import pytest
import yaml
from harness import OPERATOR, ROOT, View, manifests, names, new_server, operator_rules
from helm import Chart
from tessera_operator import needs
from tessera_operator.job import read
from world import World

CONFIG = OPERATOR / "config"
PAGE = ROOT / "docs/kubernetes.md"


def base():
    """What the Kustomize base installs, with its namespace, as kustomize would."""
    found = []
    for path in yaml.safe_load((CONFIG / "kustomization.yaml").read_text())["resources"]:
        found += manifests(CONFIG / path)
    return found


def by_name(items):
    return {(item["kind"], item["metadata"].get("namespace"), item["metadata"]["name"]): item for item in items}


def crds():
    return [item for path in sorted((CONFIG / "crd").glob("*.yaml")) for item in manifests(path)]


def test_the_crds_are_those_of_the_schema():
    done = subprocess.run([sys.executable, "-B", str(OPERATOR / "make_manifests.py"), "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_the_crds_are_structural_and_small_enough_to_be_applied():
    for crd in crds():
        for version in crd["spec"]["versions"]:
            assert crd_rules.structural_faults(version["schema"]["openAPIV3Schema"]) == []
        # kubectl apply keeps the whole text in an annotation, which has 256 KiB.
        assert len(json.dumps(crd)) < 256 * 1024 * 0.9


def test_a_structural_fault_is_noticed():
    faults = crd_rules.structural_faults({"type": "object", "properties": {"a": {}}, "additionalProperties": False})
    assert len(faults) == 3
    unbounded = {"type": "array", "items": {"type": "object", "x-kubernetes-validations": [{"rule": "true", "message": "m"}]}}
    assert "maxItems" in crd_rules.structural_faults(unbounded)[0]
    above = {"type": "object", "properties": {"a": {"type": "array", "items": {"type": "string"}}},
             "x-kubernetes-validations": [{"rule": "self.a.all(x, x != '')", "message": "m"}]}
    assert "openAPIV3Schema.a" in crd_rules.structural_faults(above)[0]


def test_every_field_of_ours_says_what_it_is():
    """But numbers of the status and what the template's own text says."""
    for crd in crds():
        spec = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
        for name, field in spec["properties"].items():
            assert field.get("description"), f"{crd['metadata']['name']}: spec.{name}"
            for below, part in (field.get("properties") or {}).items():
                assert part.get("description") or "enum" in part, f"{crd['metadata']['name']}: spec.{name}.{below}"


def test_columns_and_scale_name_fields_that_there_are():
    for crd in crds():
        version = crd["spec"]["versions"][0]
        schema = version["schema"]["openAPIV3Schema"]["properties"]
        paths = [column["jsonPath"] for column in version["additionalPrinterColumns"]] + [
            path for path in version["subresources"]["scale"].values()]
        for path in paths:
            if path.startswith(".metadata") or "[" in path:
                continue
            at = {"properties": schema}
            for part in path.strip(".").split("."):
                at = at.get("properties", {}).get(part) or at["additionalProperties"]


def test_everything_that_is_installed_is_an_object_of_its_kind():
    store = api_store.Store()
    for item in base():
        api_store.apply(store, item)


TYPES = {"Namespace": "V1Namespace", "ServiceAccount": "V1ServiceAccount", "ClusterRole": "V1ClusterRole", "ClusterRoleBinding": "V1ClusterRoleBinding",
         "Role": "V1Role", "RoleBinding": "V1RoleBinding", "Deployment": "V1Deployment", "NetworkPolicy": "V1NetworkPolicy",
         "CustomResourceDefinition": "V1CustomResourceDefinition"}


def test_every_object_has_fields_of_the_official_clients_types_only():
    chart = Chart(OPERATOR / "chart")
    for item in base() + chart.objects() + chart.objects(namespaces=["a"], imagePullSecrets=[{"name": "pull"}], tolerations=[{"operator": "Exists"}]):
        getattr(kubernetes.client, TYPES[item["kind"]]).model_validate(item)
    wrong = base()[-1]
    wrong["spec"]["podSelectors"] = {}
    with pytest.raises(ValueError, match="podSelectors"):
        kubernetes.client.V1NetworkPolicy.model_validate(wrong)


def test_the_operator_runs_with_no_more_than_it_needs():
    pod = by_name(base())["Deployment", "tessera-system", "tessera-operator"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert pod["securityContext"]["runAsNonRoot"] and pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}
    assert "hostPath" not in json.dumps(pod) and "hostNetwork" not in pod


def test_no_rule_is_of_everything_and_secrets_are_neither_listed_nor_changed():
    for rule in operator_rules():
        assert not {"*"} & {*rule["apiGroups"], *rule["resources"], *rule["verbs"]}
        if "secrets" in rule["resources"]:
            assert set(rule["verbs"]) == {"get", "create"}


def rendered(**values):
    return by_name(Chart(OPERATOR / "chart").objects(**values))


def test_the_chart_installs_what_the_base_does():
    chart = rendered()
    ours = by_name(item for item in base() if item["kind"] not in ("CustomResourceDefinition", "Namespace"))
    assert set(chart) == set(ours)
    for key, item in ours.items():
        if item["kind"] == "Deployment":
            container, other = (found["spec"]["template"]["spec"]["containers"][0] for found in (item, chart[key]))
            assert other.pop("imagePullPolicy") == "IfNotPresent"
            assert other["args"][:2] == container["args"] and other["args"][2:] == ["--threads", "4"]
            other["args"] = container["args"]
        assert chart[key] == item, key


def test_the_charts_crds_are_the_bases():
    assert (OPERATOR / "chart/crds").resolve() == (CONFIG / "crd").resolve()
    assert all(item["kind"] == "CustomResourceDefinition" for item in crds())


def test_a_chart_of_some_namespaces_gives_rights_there_alone():
    found = rendered(namespaces=["a", "b"])
    kinds = {kind for kind, _, name in found if name == "tessera-operator"}
    assert "ClusterRole" not in kinds and "ClusterRoleBinding" not in kinds
    for namespace in ("a", "b"):
        assert found["Role", namespace, "tessera-operator"]["rules"] == operator_rules()
        assert found["RoleBinding", namespace, "tessera-operator"]["subjects"][0]["namespace"] == "tessera-system"
    container = found["Deployment", "tessera-system", "tessera-operator"]["spec"]["template"]["spec"]["containers"][0]
    assert container["args"][-4:] == ["--namespace", "a", "--namespace", "b"]


def test_each_value_of_the_chart_has_an_effect():
    plain = Chart(OPERATOR / "chart").render()
    values = [{"image": {"repository": "mine", "tag": "2"}}, {"image": {"pullPolicy": "Always"}}, {"imagePullSecrets": [{"name": "pull"}]},
              {"namespaces": ["a"]}, {"threads": 8}, {"verbose": True}, {"serviceAccount": {"name": "other"}},
              {"serviceAccount": {"annotations": {"a": "b"}}}, {"userRoles": False}, {"networkPolicy": False}, {"resources": {"limits": {"cpu": "1"}}},
              {"nodeSelector": {"disk": "ssd"}}, {"tolerations": [{"key": "a", "operator": "Exists"}]}]
    assert {name for value in values for name in value} == set(Chart(OPERATOR / "chart").defaults)
    for value in values:
        changed = Chart(OPERATOR / "chart").render(**value)
        assert changed != plain, value
        for name, text in changed.items():
            if name.endswith(".yaml"):
                list(yaml.safe_load_all(text))


def test_versions_are_one():
    version = tomllib.loads((OPERATOR / "pyproject.toml").read_text())["project"]["version"]
    chart = Chart(OPERATOR / "chart").about
    assert {version} == {str(chart["version"]), str(chart["appVersion"]), yaml.safe_load((CONFIG / "kustomization.yaml").read_text())["images"][0]["newTag"]}
    for path in (CONFIG / "manager/deployment.yaml", OPERATOR / "Containerfile", PAGE):
        assert set(re.findall(r"tessera-operator:([\d.]+)", path.read_text())) == {version}, path


def test_the_package_wants_what_the_tests_run_with():
    wanted = tomllib.loads((OPERATOR / "pyproject.toml").read_text())["project"]["dependencies"]
    script = (ROOT / "scripts/operator_env.py").read_text()
    assert all(f'"{package}"' in script for package in wanted)
    assert wanted == list(needs.PACKAGES.values()) == tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]["operator"]
    import importlib.metadata
    for package in wanted:
        name, version = package.split("==")
        assert importlib.metadata.version(name) == version


SAMPLES = sorted((CONFIG / "samples").glob("*.yaml"))


def documented():
    """The manifests that the page shows, each a block of lines that begins with apiVersion."""
    blocks = re.findall(r"(?:^    .*\n|^\n(?=    ))+", PAGE.read_text(), re.M)
    found = []
    for block in blocks:
        text = re.sub(r"^    ", "", block, flags=re.M).strip("\n")
        if re.match(r"(#.*\n)*apiVersion:", text):
            found += [item for item in yaml.safe_load_all(text) if item]
    return found


def try_manifests(items):
    """Applied to an API server that is strict; jobs then become pods that it takes, too."""
    with new_server() as server:
        view = View(server.store)
        jobs = 0
        for item in items:
            if item["kind"] == "PodGroup":
                continue  # of a scheduler of pods, which has a CRD of its own
            made = view.apply(item)
            if item["kind"] in names.KINDS:
                jobs += 1
                read(made)
                world = World(made)
                secret = (made["spec"].get("tls") or {}).get("secretName") or made["spec"].get("secretName")
                if secret:
                    keys = ["ca.crt", "crl.pem", "server.p12", "client.p12", "password", "secret"] + [f"worker_{index}.p12" for index in range(99)]
                    world.secrets[secret] = {"data": dict.fromkeys(keys, "eA==")}
                world.body["spec"]["suspend"] = False
                world.settle()
                assert world.pods, world.status()
                for pod in world.pods.values():
                    pod = {key: pod[key] for key in ("apiVersion", "kind", "spec")} | {
                        "metadata": {key: pod["metadata"][key] for key in ("name", "labels", "annotations")}}
                    api_store.apply(server.store, pod)
        return jobs


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.name)
def test_a_sample_is_applied_and_becomes_pods(path):
    assert try_manifests(manifests(path)) == (0 if path.name == "network_policy.yaml" else 1)


def test_the_manifests_of_the_page_are_applied_and_become_pods():
    found = documented()
    assert len([item for item in found if item["kind"] in names.KINDS]) >= 4
    try_manifests(found)


def test_a_network_policy_of_a_job_selects_its_pods():
    policy = manifests(CONFIG / "samples/network_policy.yaml")[0]
    job = manifests(CONFIG / "samples/tesserajob.yaml")[0]
    wanted = policy["spec"]["podSelector"]["matchLabels"]
    assert wanted == {names.JOB_LABEL: job["metadata"]["name"], names.KIND_LABEL: job["kind"]}


def test_the_page_names_every_sample_field_condition_and_reason():
    page = PAGE.read_text()
    for path in SAMPLES:
        assert path.name in page, path.name
    for crd in crds():
        for field in crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]:
            assert f"`{field}" in page or f".{field}" in page, field
    source = "".join(path.read_text() for path in (OPERATOR / "tessera_operator").glob("*.py"))
    reasons = set(re.findall(r'(?:_end\((?:True|False), |_wait_for\()"(\w+)"', source)) | {"PodFailed", "PodLost", "MaxRestartsExceeded", "InvalidSpec"}
    assert len(reasons) > 8
    for reason in reasons:
        assert f"`{reason}`" in page, reason
