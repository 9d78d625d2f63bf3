{{/* Whether there is a registry: text, empty for no. */}}
{{- define "hookgate.store" -}}
{{- if .Values.store.sqlite.enabled -}}sqlite
{{- else if or .Values.store.postgresql.url .Values.store.postgresql.existingSecret -}}postgresql
{{- end -}}
{{- end -}}

{{/* Whether the admin port opens: text, empty for no. */}}
{{- define "hookgate.admin" -}}
{{- include "hookgate.validate" . -}}
{{- range .Values.config.auth.issuers -}}
{{- if .admin_audience -}}true{{- end -}}
{{- end -}}
{{- end -}}

{{- define "hookgate.server" -}}
data_addr: {{ printf "%s:8080" .Values.listenAddress | quote }}
ops_addr: {{ printf "%s:9090" .Values.listenAddress | quote }}
admin_addr: {{ printf "%s:9091" .Values.listenAddress | quote }}
{{- if .Values.adminSocket }}
admin_socket: /run/hookgate/admin.sock
{{- end }}
{{- if .Values.hostServices.socket }}
host_socket: /run/hookgate-host/host.sock
{{- end }}
{{- if .Values.hostServices.port }}
host_addr: {{ printf "%s:9092" .Values.listenAddress | quote }}
host_endpoint: {{ include "hookgate.hostEndpoint" . | quote }}
{{- end }}
{{- with .Values.workers }}
workers: {{ . }}
{{- end }}
{{- if .Values.tls.enabled }}
tls:
  cert_file: /tls/server/tls.crt
  key_file: /tls/server/tls.key
  {{- if .Values.tls.clientCa.existingSecret }}
  client_ca_file: /tls/clients/{{ .Values.tls.clientCa.key }}
  {{- end }}
{{- end }}
{{- end -}}

{{/* The URL by which plugins reach any gateway of the release: each one accepts the tokens of all. */}}
{{- define "hookgate.hostEndpoint" -}}
{{- $scheme := ternary "https" "http" .Values.tls.enabled -}}
{{- .Values.hostServices.endpoint | default (printf "%s://%s-host.%s.svc:%d" $scheme (include "hookgate.fullname" .) .Release.Namespace (int .Values.service.hostServicesPort)) -}}
{{- end -}}

{{/* An entry of `plugins` as the gateway's file has it. */}}
{{- define "hookgate.plugin" -}}
{{- $plugin := omit . "image" "imagePullPolicy" "command" "args" "env" "envFrom" "volumeMounts" "resources" "securityContext" "startupProbe" "livenessProbe" "lifecycle" "tlsSecret" "bindings" -}}
{{- if .image -}}
{{- $_ := set $plugin "endpoint" (include "hookgate.socket" .) -}}
{{- end -}}
{{- if .tlsSecret -}}
{{- $folder := printf "/tls/plugins/%s" .name -}}
{{- $tls := dict "ca_file" (printf "%s/ca.crt" $folder) -}}
{{- if .tlsSecret.clientCertificate -}}
{{- $tls = merge $tls (dict "cert_file" (printf "%s/tls.crt" $folder) "key_file" (printf "%s/tls.key" $folder)) -}}
{{- end -}}
{{- $_ := set $plugin "tls" (merge dict (.tls | default dict) $tls) -}}
{{- end -}}
{{- toYaml $plugin -}}
{{- end -}}

{{/* A folder of its own, so that no plugin can put itself in another one's place. */}}
{{- define "hookgate.socket" -}}
{{- printf "unix:///run/plugins/%s/plugin.sock" .name -}}
{{- end -}}

{{/* The gateway's file. */}}
{{- define "hookgate.config" -}}
{{- include "hookgate.validate" . -}}
{{- $config := deepCopy .Values.config -}}
{{- $plugins := list -}}
{{- $bindings := list -}}
{{- range $plugin := .Values.plugins -}}
{{- $plugins = append $plugins (include "hookgate.plugin" $plugin | fromYaml) -}}
{{- range $binding := $plugin.bindings -}}
{{- $bindings = append $bindings (set (deepCopy $binding) "plugin" $plugin.name) -}}
{{- end -}}
{{- end -}}
{{- with concat $plugins ($config.plugins | default list) -}}
{{- $_ := set $config "plugins" . -}}
{{- end -}}
{{- with concat $bindings ($config.bindings | default list) -}}
{{- $_ := set $config "bindings" . -}}
{{- end -}}
{{- $_ := set $config "server" (include "hookgate.server" . | fromYaml) -}}
{{- $_ := set $config "drain" (dict "grace" (printf "%ds" (int .Values.drain.graceSeconds)) "finish" (printf "%ds" (int .Values.drain.finishSeconds))) -}}
{{- if include "hookgate.store" . -}}
{{- $url := ternary "sqlite:/var/lib/hookgate/hookgate.db" "${HOOKGATE_STORE_URL}" (eq "sqlite" (include "hookgate.store" .)) -}}
{{- $_ := set $config "store" (dict "url" $url "last_good" "/var/lib/hookgate/last-good.json" "apply_file" .Values.store.applyFile) -}}
{{- end -}}
{{- toYaml $config -}}
{{- end -}}

{{/* The part of the file that a running gateway doesn't reload: the pods are replaced only when it changes. */}}
{{- define "hookgate.restart" -}}
{{- $config := include "hookgate.config" . | fromYaml -}}
{{- $telemetry := pick ($config.telemetry | default dict) "otlp_endpoint" "otlp_protocol" -}}
{{- $restart := merge (dict "telemetry" $telemetry "admin" (include "hookgate.admin" .)) (pick $config "server" "drain" "store" "log") -}}
{{- toJson $restart | sha256sum -}}
{{- end -}}
