"""Checks the chart: every variant of deploy/helm/variants rendered for three versions of Kubernetes, by schema, by policy
and by what its parts say of each other; and every file of deploy/helm/refused refused with the sentence it names.

Run by ./test, in the virtual environment that it makes. What the gateway itself has to say is tests/tests/it/deploy/chart.rs.
"""

import copy
import functools
import json
import pathlib
import re
import subprocess
import sys

import jsonschema
import kubernetes_validate
import yaml

import renderer
import restricted

HERE = pathlib.Path(__file__).resolve().parent
HELM = HERE.parent / "helm"
CHART = HELM / "hookgate"
# The oldest that the chart takes, one in between, the newest that kubernetes-validate knows.
VERSIONS = ("1.29", "1.33", "1.37")
# Kinds that operators of their own bring; kubernetes-validate has no schema of them.
FOREIGN = {
    "cert-manager.io/v1/Certificate",
    "monitoring.coreos.com/v1/PrometheusRule",
    "monitoring.coreos.com/v1/ServiceMonitor",
}
# A registry's host is not named, and the version is: a tag that isn't `latest`, or a digest.
IMAGE = re.compile(r"[a-z0-9-]+(/[a-z0-9._-]+)*(:(?!latest$)[\w.-]+|@sha256:[0-9a-f]{64})")

# Ports that no other Service shows.
OWN_SERVICE = {"admin", "host"}

# It reads megabytes of definitions for each object otherwise.
kubernetes_validate.utils.schema_contents = functools.cache(kubernetes_validate.utils.schema_contents)


def render(values, version=VERSIONS[-1], *more):
    release = "123" if values.name == "odd-names.yaml" else "hookgate"
    command = [HERE / "render.sh", "-name", release, "-kube-version", f"{version}.0", "-f", values, *more, CHART]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def rendered(values, version):
    done = render(values, version)
    if done.returncode != 0:
        raise SystemExit(f"{values.name}: {done.stderr}")
    return done.stdout


def load(text):
    return [document for document in yaml.safe_load_all(text) if document]


@functools.cache
def by_schema(version, text):
    """What Kubernetes' schema says of one object. Many variants have the same."""
    try:
        kubernetes_validate.validate(json.loads(text), version, strict=True)
    except kubernetes_validate.ValidationError as error:
        return f"{'.'.join(map(str, error.path))}: {error.message}"
    except kubernetes_validate.SchemaNotFoundError as error:
        return error.message
    return None


def pods(documents):
    for document in documents:
        if document["kind"] == "Pod":
            yield document["metadata"], document["spec"]
        elif document["kind"] in ("Deployment", "StatefulSet"):
            template = document["spec"]["template"]
            yield template["metadata"], template["spec"]


def containers(spec):
    return [*spec.get("initContainers", []), *spec["containers"]]


def within(labels, selector):
    return selector.items() <= labels.items()


def faults(documents, given_users):
    """What is wrong with the objects of one rendering, beyond their schemas; `given_users`: the cluster says as whom it runs."""
    names = [(d["kind"], d["metadata"].get("namespace"), d["metadata"]["name"]) for d in documents]
    yield from (f"{name} is there twice" for name in set(names) if names.count(name) > 1)
    for document in documents:
        name = document["metadata"]["name"]
        if document["metadata"].get("namespace") != "agents" and not is_for_agents(document):
            yield f"{document['kind']} {name} has no namespace"
        if not re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", name):
            yield f"{document['kind']} {name} is no name"
    for metadata, spec in pods(documents):
        found = restricted.faults(spec)
        if given_users and not any(fault.endswith(restricted.ANY_USER) for fault in found):
            yield "a user is named where the cluster gives one"
        yield from (fault for fault in found if not (given_users and fault.endswith(restricted.ANY_USER)))
        yield from of_pod(spec)
    [workload] = [document for document in documents if document["kind"] in ("Deployment", "StatefulSet")]
    template = workload["spec"]["template"]
    if len(workload["metadata"]["name"]) + len("-0123456789") > 63:
        yield f"{workload['metadata']['name']} is too long for the label controller-revision-hash"
    if not within(template["metadata"]["labels"], workload["spec"]["selector"]["matchLabels"]):
        yield "the workload doesn't select its own pods"
    yield from selections(documents, template)
    yield from of_own_services(documents)
    for document in documents:
        yield from of_files(document)


def of_files(document):
    """Rules and dashboards are in the cluster what they are in the chart, but for where the runbooks are."""
    if document["kind"] == "PrometheusRule":
        spec = copy.deepcopy(document["spec"])
        for annotations in [rule["annotations"] for group in spec["groups"] for rule in group["rules"]]:
            if "runbook_url" in annotations:
                annotations["runbook"] = "docs/operations.md#" + annotations.pop("runbook_url").partition("#")[2]
        if spec != yaml.safe_load((CHART / "rules/hookgate.yaml").read_text()):
            yield "PrometheusRule isn't what rules/hookgate.yaml says"
    if document["kind"] == "ConfigMap" and document["metadata"]["name"].endswith("-dashboards"):
        if document["data"] != {file.name: file.read_text() for file in (CHART / "dashboards").glob("*.json")}:
            yield "the dashboards aren't those of the chart"


def of_pod(spec):
    volumes = [volume["name"] for volume in spec.get("volumes", [])] + ["state"]
    yield from (f"volume {name} is there twice" for name in set(volumes) - {"state"} if volumes.count(name) > 1)
    names = [container["name"] for container in containers(spec)]
    yield from (f"container {name} is there twice" for name in set(names) if names.count(name) > 1)
    for container in containers(spec):
        if not IMAGE.fullmatch(container["image"]):
            yield f"image {container['image']} names a host, or no version"
        paths = [mount["mountPath"] for mount in container.get("volumeMounts", [])]
        yield from (f"{path} is mounted twice" for path in set(paths) if paths.count(path) > 1)
        for mount in container.get("volumeMounts", []):
            if mount["name"] not in volumes:
                yield f"container {container['name']} mounts {mount['name']}, which isn't there"
            if "subPath" in mount:
                yield f"{mount['mountPath']} would never change"


def selections(documents, template):
    """Whom Services, budgets and policies mean, and the ports that they name."""
    ports = {port["name"] for port in template["spec"]["containers"][0]["ports"]}
    [test] = [document for document in documents if document["kind"] == "Pod"]
    for document in documents:
        kind, spec = document["kind"], document.get("spec", {})
        selector = {
            "Service": lambda: spec["selector"],
            "PodDisruptionBudget": lambda: spec["selector"]["matchLabels"],
            "NetworkPolicy": lambda: spec["podSelector"]["matchLabels"],
        }.get(kind)
        if is_for_agents(document):
            yield from of_agents(document, template, test)
            continue
        if not selector:
            continue
        if not within(template["metadata"]["labels"], selector()):
            yield f"{kind} {document['metadata']['name']} selects no gateway"
        if within(test["metadata"]["labels"], selector()):
            yield f"{kind} {document['metadata']['name']} selects the pod of `helm test`"
        named = [port["targetPort"] for port in spec.get("ports", [])]
        for port in OWN_SERVICE & set(named):
            if spec["type"] != "ClusterIP" or len(named) > 1:
                yield f"{kind} {document['metadata']['name']} shows the {port} port to others"
        for rule in spec.get("ingress", []):
            named += [port["port"] for port in rule["ports"]]
            if not rule.get("from"):
                yield f"{kind} {document['metadata']['name']} lets everybody in"
        yield from (f"{kind} {document['metadata']['name']}: no port {port}" for port in named if port not in ports)
        if kind == "NetworkPolicy" and sorted(spec["policyTypes"]) != ["Egress", "Ingress"]:
            yield "NetworkPolicy leaves a way open"


def is_for_agents(document):
    """Whether it is the policy for the pods of agents, in a namespace of theirs."""
    return document["kind"] == "NetworkPolicy" and document["metadata"]["name"].endswith("-agents")


def of_agents(document, template, test):
    """The policy lets agents out to the gateway's data port and to what a rule names, and is about nobody of the release."""
    spec, about = document["spec"], f"NetworkPolicy {document['metadata']['namespace']}/{document['metadata']['name']}"
    if spec["policyTypes"] != ["Egress"]:
        yield f"{about} is about {spec['policyTypes']}"
    labels = spec["podSelector"].get("matchLabels", {})
    if document["metadata"]["namespace"] == "agents" and not spec["podSelector"].get("matchExpressions"):
        yield from (f"{about} selects a pod of the release" for pod in (template, test) if within(pod["metadata"]["labels"], labels))
    yield from (f"{about} leads everywhere" for rule in spec["egress"] if not rule.get("to"))
    [peer], [port] = spec["egress"][0]["to"], spec["egress"][0]["ports"]
    if peer["namespaceSelector"] != {"matchLabels": {"kubernetes.io/metadata.name": "agents"}}:
        yield f"{about} looks for the gateway elsewhere"
    if not within(template["metadata"]["labels"], peer["podSelector"]["matchLabels"]):
        yield f"{about} doesn't lead to the gateway"
    if {"name": "data", "containerPort": port["port"]} not in template["spec"]["containers"][0]["ports"]:
        yield f"{about} leads to the port {port['port']}"


def of_own_services(documents):
    """
    The ports of operators and of plugins are each in a Service of its own, with a certificate for that name, where the pod has
    them, and only there.
    """
    [(_, pod), *_] = [found for found in pods(documents) if found[1]["containers"][0]["name"] == "hookgate"]
    for name in sorted(OWN_SERVICE):
        is_open = name in {port["name"] for port in pod["containers"][0]["ports"]}
        services = [d["metadata"]["name"] for d in documents if d["kind"] == "Service"
                    and name in [port["targetPort"] for port in d["spec"]["ports"]]]
        if len(services) != is_open:
            yield f"the {name} port is open: {is_open}, and in the Services {services}"
    for document in documents:
        if document["kind"] == "Certificate":
            names = set(document["spec"]["dnsNames"])
            wanted = {d["metadata"]["name"] for d in documents if d["kind"] == "Service"}
            yield from (f"the certificate isn't for {name}" for name in sorted(wanted - names))


def of_notes(notes, documents):
    """What is read by a selector is the gateway's, and not what `helm test` left behind."""
    labels = {spec["containers"][0]["name"]: metadata["labels"] for metadata, spec in pods(documents)}
    for text in re.findall(r"--selector (\S+)", notes):
        selector = dict(part.split("=") for part in text.split(","))
        if not within(labels["hookgate"], selector) or within(labels["probe"], selector):
            yield f"the notes select by {text}"
    policies = [d["spec"] for d in documents if d["kind"] == "NetworkPolicy" and not is_for_agents(d)]
    let_in = {port["port"] for policy in policies for rule in policy["ingress"] for port in rule["ports"]}
    if policies and "admin" not in let_in and "Operators call" in notes:
        yield "the notes send operators to a port that lets nobody in"


def check_variants(files):
    wrong, shown, written = [], 0, set()
    for values in files:
        for version in VERSIONS:
            text = rendered(values, version)
            written |= set(re.findall(r"^# Source: hookgate/(.*)$", text, re.MULTILINE))
            documents = load(text)
            shown += len(documents)
            for document in documents:
                about = f"{values.name}, {version}: {document['kind']} {document['metadata']['name']}"
                if f"{document['apiVersion']}/{document['kind']}" in FOREIGN:
                    continue
                fault = by_schema(version, json.dumps(document, sort_keys=True))
                if fault:
                    wrong.append(f"{about}: {fault}")
        wrong += (f"{values.name}: {fault}" for fault in faults(documents, "runAsUser: null" in values.read_text()))
        notes = render(values, VERSIONS[-1], "-notes")
        if notes.returncode != 0 or not notes.stdout.strip():
            wrong.append(f"{values.name}: no notes: {notes.stderr}")
        wrong += (f"{values.name}: {fault}" for fault in of_notes(notes.stdout, documents))
    templates = {str(file.relative_to(CHART)) for file in (CHART / "templates").rglob("*.yaml")}
    wrong += (f"{template}: no variant renders it" for template in sorted(templates - written))
    return wrong, shown


# Kubernetes' own objects: a variant that changes something of one has tried it.
OBJECTS = {"podSecurityContext", "securityContext"}


def paths(values, above=""):
    """Every key that leads to no mapping; one that is empty is the user's own."""
    for key, value in values.items():
        if isinstance(value, dict) and value and key not in OBJECTS:
            yield from paths(value, f"{above}{key}.")
        else:
            yield f"{above}{key}"


def check_values(files, schema):
    """values.yaml and the schema have the same keys, and each is another one in some variant."""
    defaults = yaml.safe_load((CHART / "values.yaml").read_text())
    wrong = []

    def compare(values, schema, above):
        known = schema.get("properties")
        if known is None:
            return
        for key in sorted(set(values) ^ (set(known) - (set() if above else {"enabled", "global"}))):
            wrong.append(f"{above}{key} is in values.yaml or its schema alone")
        for key in set(values) & set(known):
            if isinstance(values[key], dict):
                compare(values[key], known[key], f"{above}{key}.")

    compare(defaults, schema, "")
    tried = set()
    for values in files:
        given = yaml.safe_load(values.read_text())
        for path in paths(defaults):
            here, there = given, defaults
            for key in path.split("."):
                here, there = (here or {}).get(key), (there or {}).get(key)
                if here is None:
                    break
            else:
                if here != there:
                    tried.add(path)
    wrong += (f"values.yaml: no variant sets {path}" for path in paths(defaults) if path not in tried)
    return wrong


def without_null(values):
    """Null takes out what the chart says, before Helm asks the schema."""
    return {key: without_null(value) if isinstance(value, dict) else value
            for key, value in values.items() if value is not None}


def check_refused(schema):
    """The first line of each file says who refuses it, and in which words."""
    wrong, files = [], sorted((HELM / "refused").glob("*.yaml"))
    for values in files:
        kind, _, expected = values.read_text().splitlines()[0].removeprefix("# ").partition(": ")
        given = without_null(yaml.safe_load(values.read_text()))
        errors = [error.message for error in jsonschema.Draft7Validator(schema).iter_errors(given)]
        if kind == "schema":
            if not any(expected in error for error in errors):
                wrong.append(f"{values.name}: the schema says {errors}")
        elif kind == "template":
            done = render(values)
            said = re.sub(r"^Error: execution error at \([^)]*\): ", "", done.stderr).rstrip("\n")
            if errors or done.returncode != 1 or said != expected:
                wrong.append(f"{values.name}: schema {errors}, exit code {done.returncode}: {done.stderr}")
        else:
            wrong.append(f"{values.name}: who refuses it?")
    old = render(sorted((HELM / "variants").glob("*.yaml"))[0], "1.28")
    if old.stderr != "Error: chart requires kubeVersion: >=1.29.0-0 which is incompatible with Kubernetes v1.28.0\n":
        wrong.append(f"Kubernetes 1.28: {old.stderr}")
    return wrong, len(files)


def check_policy(values):
    """A policy that finds nothing proves nothing."""
    [(_, good), *_] = pods(load(rendered(values, VERSIONS[-1])))
    wrong, tried = [f"the good pod: {fault}" for fault in restricted.faults(good)], 0
    for name, change in restricted.mutations():
        tried += 1
        bad = copy.deepcopy(good)
        change(bad)
        if not restricted.faults(bad):
            wrong.append(f"the policy takes a pod with: {name}")
    return wrong, tried


def main():
    files = sorted((HELM / "variants").glob("*.yaml"))
    schema = json.loads((CHART / "values.schema.json").read_text())
    wrong, objects = check_variants(files)
    wrong += check_values(files, schema)
    refused, refusals = check_refused(schema)
    policy, mutations = check_policy(files[0])
    wrong += refused + policy + renderer.faults(HERE / "render.sh")
    for fault in wrong:
        print(fault, file=sys.stderr)
    if wrong:
        raise SystemExit(1)
    print(f"{len(files)} variants, {objects} objects for Kubernetes {', '.join(VERSIONS)}; "
          f"{refusals} files refused; the policy finds {mutations} faults of {mutations}")


if __name__ == "__main__":
    main()
