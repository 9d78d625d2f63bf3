{{/* Rejects invalid values before anything is installed. */}}
{{- define "hookgate.validate" -}}
{{- $config := .Values.config | default dict -}}
{{- range $key, $values := dict "server" "listenAddress, tls, adminSocket, hostServices and workers" "drain" "drain.graceSeconds and drain.finishSeconds" "store" "store.postgresql, store.sqlite and store.applyFile" -}}
{{- if hasKey $config $key -}}
{{- fail (printf "config.%s is written by the chart: set %s instead" $key $values) -}}
{{- end -}}
{{- end -}}
{{- if not ($config.auth | default dict).issuers -}}
{{- fail "config.auth.issuers is missing: list the issuers of accepted tokens, such as [{ issuer: https://id.example.com, audience: hookgate, jwks_url: https://id.example.com/jwks.json }]" -}}
{{- end -}}
{{- range $issuer := $config.auth.issuers -}}
{{- range $issuer.keys -}}
{{- if and .secret (not (contains "${" (toString .secret))) -}}
{{- fail (printf "config.auth.issuers: a secret of %v is in plain text, and would be stored in a ConfigMap: refer to it, as ${NAME} or ${file:/run/secrets/NAME/KEY}, and name its Secret in secrets.existing or secrets.files" $issuer.issuer) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- range $upstream := ($config.llm | default dict).upstreams -}}
{{- if and $upstream.credential (not (contains "${" (toString $upstream.credential))) -}}
{{- fail (printf "config.llm.upstreams: the credential of %v is in plain text, and would be stored in a ConfigMap: refer to it, as ${NAME} or ${file:/run/secrets/NAME/KEY}, and name its Secret in secrets.existing or secrets.files" $upstream.name) -}}
{{- end -}}
{{- end -}}
{{- range $tenant := ($config.tenants | default dict).list -}}
{{- range $upstream, $credential := ($tenant.llm | default dict).credentials -}}
{{- if not (contains "${" (toString $credential)) -}}
{{- fail (printf "config.tenants.list: the credential of %v for %v is in plain text, and would be stored in a ConfigMap: refer to it, as ${NAME} or ${file:/run/secrets/NAME/KEY}, and name its Secret in secrets.existing or secrets.files" $tenant.id $upstream) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- range $plugin := .Values.plugins -}}
{{- $name := required "plugins: an entry has no name" $plugin.name -}}
{{- $places := list -}}
{{- range $key := list "image" "endpoint" "endpoints" "self_registration" "builtin" -}}
{{- if get $plugin $key -}}{{- $places = append $places $key -}}{{- end -}}
{{- end -}}
{{- if ne (len $places) 1 -}}
{{- fail (printf "plugins: %s needs exactly one of image, endpoint, endpoints, self_registration and builtin, but has %s" $name (join " and " $places | default "none")) -}}
{{- end -}}
{{- if $plugin.tlsSecret -}}
{{- $_ := required (printf "plugins: tlsSecret.name of %s is missing: name a Secret with ca.crt" $name) $plugin.tlsSecret.name -}}
{{- if or $plugin.image $plugin.builtin -}}
{{- fail (printf "plugins: tlsSecret of %s is for an endpoint, and a plugin of this pod has none" $name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- include "hookgate.validateSidecars" . -}}
{{- include "hookgate.validateScale" . -}}
{{- include "hookgate.validateStore" . -}}
{{- include "hookgate.validateHostServices" . -}}
{{- include "hookgate.validateTls" . -}}
{{- include "hookgate.validateNames" . -}}
{{- include "hookgate.validateService" . -}}
{{- include "hookgate.validateNetwork" . -}}
{{- include "hookgate.validateAgentEgress" . -}}
{{- end -}}

{{/* Names of objects, volumes and variables. */}}
{{- define "hookgate.validateNames" -}}
{{- $name := include "hookgate.name" . -}}
{{- if not (regexMatch "^[A-Za-z0-9]([-_.A-Za-z0-9]*[A-Za-z0-9])?$" $name) -}}
{{- fail (printf "nameOverride: %q can't be a label's value: set it to letters, digits and hyphens" $name) -}}
{{- end -}}
{{- $name = include "hookgate.fullname" . -}}
{{- if not (regexMatch "^[a-z]([-a-z0-9]*[a-z0-9])?$" $name) -}}
{{- fail (printf "%q is not a valid Service name: set fullnameOverride to small letters, digits and hyphens, a letter first" $name) -}}
{{- end -}}
{{- $chosen := .Values.podLabels -}}
{{- range $label, $_ := include "hookgate.selector" . | fromYaml -}}
{{- if hasKey $chosen $label -}}
{{- fail (printf "podLabels: the release selects its pods by %s: use another label" $label) -}}
{{- end -}}
{{- end -}}
{{- $volumes := include "hookgate.volumes" . | fromYamlArray -}}
{{- if .Values.store.sqlite.enabled -}}{{- $volumes = append $volumes (dict "name" "state") -}}{{- end -}}
{{- include "hookgate.once" (dict "of" $volumes "what" "volumes" "do" "rename one of extraVolumes, or mount one Secret of secrets.files by them") -}}
{{- $variables := include "hookgate.env" . | fromYamlArray -}}
{{- range $variable, $_ := .Values.secrets.create -}}{{- $variables = append $variables (dict "name" $variable) -}}{{- end -}}
{{- if .Values.store.postgresql.url -}}{{- $variables = append $variables (dict "name" "HOOKGATE_STORE_URL") -}}{{- end -}}
{{- include "hookgate.once" (dict "of" $variables "what" "variables" "do" "take one out of extraEnv or secrets.create; adminSocket and store.postgresql make some, too") -}}
{{- end -}}

{{/* Duplicate names, of which a cluster refuses both or drops one. */}}
{{- define "hookgate.once" -}}
{{- $taken := dict -}}
{{- range .of -}}
{{- if hasKey $taken .name -}}
{{- fail (printf "two %s of the gateway's pod would be %s: %s" $.what .name $.do) -}}
{{- end -}}
{{- $_ := set $taken .name true -}}
{{- end -}}
{{- end -}}

{{/* Containers and volumes are named after plugins, whose names allow more characters. */}}
{{- define "hookgate.validateSidecars" -}}
{{- $taken := dict -}}
{{- range $plugin := .Values.plugins -}}
{{- if or $plugin.image $plugin.tlsSecret -}}
{{- $name := include "hookgate.sidecar" $plugin -}}
{{- if not (regexMatch "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$" $name) -}}
{{- fail (printf "plugins: %s would be %s in the pod, which is not a valid name there: make it end in a letter or a digit" $plugin.name $name) -}}
{{- end -}}
{{- if hasKey $taken $name -}}
{{- fail (printf "plugins: %s and %s would both be %s in the pod: rename one" (get $taken $name) $plugin.name $name) -}}
{{- end -}}
{{- $_ := set $taken $name $plugin.name -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "hookgate.validateScale" -}}
{{- $resources := .Values.resources | default dict -}}
{{- $autoscaling := .Values.autoscaling -}}
{{- if $autoscaling.enabled -}}
{{- /* Kubernetes takes a limit for a request that isn't there. */}}
{{- if not (or ($resources.requests | default dict).cpu ($resources.limits | default dict).cpu) -}}
{{- fail "autoscaling needs resources.requests.cpu, which is missing: set it, such as 250m, or set autoscaling.enabled to false" -}}
{{- end -}}
{{- if gt (int $autoscaling.minReplicas) (int $autoscaling.maxReplicas) -}}
{{- fail (printf "autoscaling.minReplicas is %d, and maxReplicas %d: the first can't be more" (int $autoscaling.minReplicas) (int $autoscaling.maxReplicas)) -}}
{{- end -}}
{{- end -}}
{{- if and (eq "0" (toString .Values.strategy.maxSurge | trimSuffix "%")) (eq "0" (toString .Values.strategy.maxUnavailable | trimSuffix "%")) -}}
{{- fail "strategy.maxSurge and strategy.maxUnavailable are both 0, so that no pod could be replaced: set one of them to 1" -}}
{{- end -}}
{{- end -}}

{{- define "hookgate.validateStore" -}}
{{- $postgresql := .Values.store.postgresql -}}
{{- if and $postgresql.url $postgresql.existingSecret -}}
{{- fail "store.postgresql: set only one of url and existingSecret" -}}
{{- end -}}
{{- if .Values.store.sqlite.enabled -}}
{{- if or $postgresql.url $postgresql.existingSecret -}}
{{- fail "store: set only one of postgresql and sqlite" -}}
{{- end -}}
{{- if .Values.autoscaling.enabled -}}
{{- fail "store.sqlite is a file of one gateway: set autoscaling.enabled to false, or use store.postgresql" -}}
{{- end -}}
{{- if gt (int .Values.replicas) 1 -}}
{{- fail (printf "store.sqlite is a file of one gateway, and replicas is %d: set it to 1, or use store.postgresql" (int .Values.replicas)) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Host services that plugins are granted and could not reach. */}}
{{- define "hookgate.validateHostServices" -}}
{{- $host := .Values.hostServices -}}
{{- if and (or $host.socket $host.port) (not (include "hookgate.store" .)) -}}
{{- fail "hostServices needs a registry, because plugins' data is in its database: set store.postgresql or store.sqlite, or set hostServices.socket and hostServices.port to false" -}}
{{- end -}}
{{- if and $host.endpoint (not $host.port) -}}
{{- fail "hostServices.endpoint is the URL of a port that isn't open: set hostServices.port to true, or leave it out" -}}
{{- end -}}
{{- if and $host.socket (not $host.port) -}}
{{- range concat (.Values.plugins | default list) (.Values.config.plugins | default list) -}}
{{- if and (include "hookgate.wantsHost" .) (include "hookgate.isRemote" .) -}}
{{- fail (printf "plugins: %s has grants, but is outside the pod, and hostServices.socket is within: set hostServices.port to true" .name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Whether a plugin outside the gateway's process may use the host services: text, empty for no. */}}
{{- define "hookgate.wantsHost" -}}
{{- if and (not .builtin) .grants -}}true{{- end -}}
{{- end -}}

{{/* Whether a plugin is called over the network: text, empty for no. */}}
{{- define "hookgate.isRemote" -}}
{{- if regexMatch "\"(https?|dns):" (list .endpoint .endpoints | toJson) -}}true{{- end -}}
{{- end -}}

{{- define "hookgate.validateTls" -}}
{{- if .Values.tls.enabled -}}
{{- if .Values.tls.certManager.enabled -}}
{{- if .Values.tls.existingSecret -}}
{{- fail "tls: set only one of existingSecret and certManager" -}}
{{- end -}}
{{- $_ := required "tls.certManager.issuerRef.name is missing: name the issuer that signs" .Values.tls.certManager.issuerRef.name -}}
{{- else -}}
{{- $_ := required "tls.existingSecret is missing: name a Secret with tls.crt and tls.key, or set tls.certManager.enabled" .Values.tls.existingSecret -}}
{{- end -}}
{{- else if or .Values.tls.existingSecret .Values.tls.certManager.enabled .Values.tls.clientCa.existingSecret -}}
{{- fail "tls.enabled is false, but other keys of tls are set: set it to true, or omit them" -}}
{{- end -}}
{{- end -}}

{{- define "hookgate.validateService" -}}
{{- $service := .Values.service -}}
{{- range $key, $types := dict "loadBalancerClass" (list "LoadBalancer") "loadBalancerSourceRanges" (list "LoadBalancer") "externalTrafficPolicy" (list "LoadBalancer" "NodePort") -}}
{{- if and (get $service $key) (not (has $service.type $types)) -}}
{{- fail (printf "service.%s is for the type %s: set service.type, which is %s, or leave it out" $key (join " or " $types) $service.type) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Network policies that would isolate the release: it would never become ready, or never get a call. */}}
{{- define "hookgate.validateNetwork" -}}
{{- if .Values.networkPolicy.enabled -}}
{{- if not .Values.networkPolicy.agents -}}
{{- fail "networkPolicy.agents is empty: list the peers that may call the gateway, such as [{ podSelector: {} }] for every pod of its namespace" -}}
{{- end -}}
{{- if and .Values.metrics.enabled .Values.metrics.serviceMonitor.enabled (not .Values.networkPolicy.metrics) -}}
{{- fail "networkPolicy.metrics is empty, but metrics.serviceMonitor is enabled: list the peers that may read the metrics, such as [{ namespaceSelector: { matchLabels: { kubernetes.io/metadata.name: monitoring } } }]" -}}
{{- end -}}
{{- if and .Values.hostServices.port (not .Values.networkPolicy.plugins) -}}
{{- fail "networkPolicy.plugins is empty, but hostServices.port is true: list the plugins that may use the host services, such as [{ namespaceSelector: { matchLabels: { kubernetes.io/metadata.name: plugins } } }]" -}}
{{- end -}}
{{- if and .Values.hostServices.port (not .Values.hostServices.socket) -}}
{{- range .Values.plugins | default list -}}
{{- if and .image (include "hookgate.wantsHost" .) -}}
{{- fail (printf "plugins: %s is in the pod, whose networkPolicy keeps it from the port of hostServices: set hostServices.socket to true" .name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $outside := include "hookgate.outside" . -}}
{{- if and $outside (not .Values.networkPolicy.egress) -}}
{{- fail (printf "networkPolicy.egress is empty, so the gateway could not reach other hosts (%s): list the destinations, such as [{ to: [{ ipBlock: { cidr: 10.20.0.7/32 } }], ports: [{ port: 443 }] }]" $outside) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* A policy that would keep the gateway from its providers, or lead agents to them. */}}
{{- define "hookgate.validateAgentEgress" -}}
{{- $egress := .Values.agentEgress -}}
{{- if $egress.enabled -}}
{{- $labels := merge (include "hookgate.selector" . | fromYaml) (.Values.podLabels | default dict) -}}
{{- if and (has .Release.Namespace (include "hookgate.agentNamespaces" . | fromYamlArray)) (include "hookgate.selects" (dict "selector" $egress.podSelector "labels" $labels)) -}}
{{- fail (printf "agentEgress.podSelector includes the gateway's own pods in the namespace %s, which could then reach no provider: name a label of the agents, such as { matchLabels: { app: agent } }, or the agents' namespaces in agentEgress.namespaces" .Release.Namespace) -}}
{{- end -}}
{{- if regexMatch "\"cidr\":\"[^\"]*/0\"" ($egress.egress | toJson) -}}
{{- fail "agentEgress.egress leads to every address (/0), and so past the gateway: list the destinations that agents need, such as { to: [{ ipBlock: { cidr: 10.20.0.7/32 } }], ports: [{ port: 443 }] }" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* What the gateway calls outside its pod, in words; empty if nothing. */}}
{{- define "hookgate.outside" -}}
{{- $outside := list -}}
{{- range .Values.config.auth.issuers -}}
{{- if .jwks_url -}}{{- $outside = append $outside "issuers' jwks_url" -}}{{- end -}}
{{- end -}}
{{- if eq "postgresql" (include "hookgate.store" .) -}}{{- $outside = append $outside "store.postgresql" -}}{{- end -}}
{{- range concat (.Values.plugins | default list) (.Values.config.plugins | default list) -}}
{{- if include "hookgate.isRemote" . -}}{{- $outside = append $outside "plugins' endpoints" -}}{{- end -}}
{{- end -}}
{{- range (.Values.config.llm | default dict).upstreams -}}
{{- if .base_url -}}{{- $outside = append $outside "llm.upstreams" -}}{{- end -}}
{{- end -}}
{{- if (.Values.config.telemetry | default dict).otlp_endpoint -}}{{- $outside = append $outside "telemetry.otlp_endpoint" -}}{{- end -}}
{{- $outside | uniq | join ", " -}}
{{- end -}}
