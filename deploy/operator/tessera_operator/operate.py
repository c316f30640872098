"""The command tessera-operator: runs until SIGTERM. Its access is that of its pod's service account, or of the kubeconfig that KUBECONFIG names."""

import argparse
import asyncio
import logging
import sys

import kopf
import kubernetes.config
import urllib3.exceptions
from kubernetes.client.exceptions import ApiException

from tessera_operator.cluster import Cluster
from tessera_operator.handlers import load_access, register


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="tessera-operator", description="Runs the MSJobs and TesseraJobs of a Kubernetes cluster.")
    parser.add_argument("--namespace", action="append", metavar="NAME", help="serve this namespace; may be given again (default: all)")
    parser.add_argument("--liveness", metavar="URL", help="answer the kubelet's probe there, as http://0.0.0.0:8080/healthz")
    parser.add_argument("--threads", type=int, default=4, metavar="N", help="look at so many jobs at once (default: 4)")
    parser.add_argument("--verbose", action="store_true", help="log what kopf sees")
    options = parser.parse_args(arguments)
    if options.threads < 1:
        parser.error(f"--threads is {options.threads}, but must be at least 1")
    logging.basicConfig(level=logging.DEBUG if options.verbose else logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(message)s")
    for noisy in ("kopf.objects", "kubernetes.client.rest", "urllib3"):
        logging.getLogger(noisy).setLevel(logging.DEBUG if options.verbose else logging.WARNING)
    try:
        load_access()
        missing = Cluster().missing_kinds()
    except (kubernetes.config.ConfigException, ApiException, urllib3.exceptions.HTTPError) as failure:
        print(f"tessera-operator: {failure}", file=sys.stderr)
        return 1
    if missing:
        print(f"tessera-operator: the API server has no {' and no '.join(missing)}: kubectl apply --server-side -f config/crd, in the operator's folder, "
              "which `tessera job manifests --to FOLDER` writes", file=sys.stderr)
        return 1
    registry = register(kopf.OperatorRegistry(), options.threads)
    asyncio.run(kopf.operator(registry=registry, standalone=True, clusterwide=not options.namespace, namespaces=options.namespace or [],
                              liveness_endpoint=options.liveness))
    return 0
