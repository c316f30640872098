"""An operator for Kubernetes that runs Tessera's training jobs, the kinds MSJob and TesseraJob.

plan.plan() decides, without asking anybody, what is to be done for a job as it was observed. cluster.Cluster observes and does it,
by the official client; handlers tells it, by kopf, when to look.
"""
