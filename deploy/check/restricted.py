"""The pod security standard `restricted`, and what this chart promises beyond it: what is wrong with a pod, as sentences.

https://kubernetes.io/docs/concepts/security/pod-security-standards/#restricted
"""

VOLUMES = {"configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected", "secret"}
SYSCTLS = {
    "kernel.shm_rmid_forced", "net.ipv4.ip_local_port_range", "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.tcp_syncookies", "net.ipv4.ping_group_range", "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.tcp_keepalive_time", "net.ipv4.tcp_fin_timeout", "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
}
# What a pod may do in a cluster that gives users out, and nowhere else.
ANY_USER = "runs as whoever the image says"


def faults(spec):
    """What of a pod's spec the standard, or the chart, forbids."""
    found = []
    for key in ("hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace"):
        if spec.get(key):
            found.append(f"{key} is set")
    for volume in spec.get("volumes", []):
        for kind in set(volume) - {"name"} - VOLUMES:
            found.append(f"volume {volume['name']} is of the kind {kind}")
    pod = spec.get("securityContext", {})
    for sysctl in pod.get("sysctls", []):
        if sysctl["name"] not in SYSCTLS:
            found.append(f"sysctl {sysctl['name']} is set")
    if spec.get("automountServiceAccountToken") is not False:
        found.append("the token of the service account is mounted")
    if spec.get("enableServiceLinks") is not False:
        found.append("variables for Services are set")
    for container in [*spec.get("initContainers", []), *spec["containers"], *spec.get("ephemeralContainers", [])]:
        found += (f"container {container['name']}: {fault}" for fault in of_container(container, pod))
    return found


def of_container(container, pod):
    own = container.get("securityContext", {})

    def holds(key):
        return own.get(key, pod.get(key))

    if own.get("privileged"):
        yield "is privileged"
    if own.get("allowPrivilegeEscalation") is not False:
        yield "may gain privileges"
    capabilities = own.get("capabilities", {})
    if "ALL" not in capabilities.get("drop", []):
        yield "keeps capabilities"
    if set(capabilities.get("add", [])) - {"NET_BIND_SERVICE"}:
        yield "adds capabilities"
    if holds("runAsNonRoot") is not True:
        yield "may run as root"
    if holds("runAsUser") is None:
        yield ANY_USER
    elif holds("runAsUser") == 0:
        yield "runs as root"
    if (holds("seccompProfile") or {}).get("type") not in ("RuntimeDefault", "Localhost"):
        yield "has no seccomp profile"
    if own.get("procMount", "Default") != "Default":
        yield "has another /proc"
    if (holds("appArmorProfile") or {}).get("type", "RuntimeDefault") not in ("RuntimeDefault", "Localhost"):
        yield "has no AppArmor profile"
    selinux = holds("seLinuxOptions") or {}
    if selinux.get("user") or selinux.get("role"):
        yield "has SELinux options"
    if own.get("readOnlyRootFilesystem") is not True:
        yield "may write to its root"
    if any("hostPort" in port for port in container.get("ports", [])):
        yield "has a port of the node"


def mutations():
    """Changes of a good pod, each of which has to be found: name, and what it does to the spec."""
    def container(key, value):
        return lambda spec: spec["containers"][0]["securityContext"].__setitem__(key, value)

    def without(key):
        def change(spec):
            spec["containers"][0]["securityContext"].pop(key, None)
            spec["securityContext"].pop(key, None)
        return change

    yield "host network", lambda spec: spec.__setitem__("hostNetwork", True)
    yield "host path", lambda spec: spec.setdefault("volumes", []).append({"name": "host", "hostPath": {"path": "/"}})
    yield "sysctl", lambda spec: spec["securityContext"].__setitem__("sysctls", [{"name": "kernel.msgmax", "value": "1"}])
    yield "token", lambda spec: spec.pop("automountServiceAccountToken")
    yield "service links", lambda spec: spec.pop("enableServiceLinks")
    yield "privileged", container("privileged", True)
    yield "escalation", container("allowPrivilegeEscalation", True)
    yield "capabilities", container("capabilities", {"drop": ["NET_RAW"]})
    yield "added capabilities", container("capabilities", {"drop": ["ALL"], "add": ["SYS_ADMIN"]})
    yield "root", container("runAsUser", 0)
    yield "any user", without("runAsUser")
    yield "perhaps root", without("runAsNonRoot")
    yield "no seccomp", without("seccompProfile")
    yield "unconfined", container("seccompProfile", {"type": "Unconfined"})
    yield "proc", container("procMount", "Unmasked")
    yield "AppArmor", container("appArmorProfile", {"type": "Unconfined"})
    yield "SELinux", container("seLinuxOptions", {"user": "system_u"})
    yield "writable root", container("readOnlyRootFilesystem", False)
    yield "port of the node", lambda spec: spec["containers"][0].setdefault("ports", []).append({"containerPort": 1, "hostPort": 1})
    yield "an init container", lambda spec: spec.setdefault("initContainers", []).append({"name": "first"})
