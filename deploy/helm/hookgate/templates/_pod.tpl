{{/* A plugin's container. It starts before the gateway, and ends after it. */}}
{{- define "hookgate.sidecarContainer" -}}
name: {{ include "hookgate.sidecar" . }}
image: {{ .image | quote }}
imagePullPolicy: {{ .imagePullPolicy | default "IfNotPresent" }}
restartPolicy: Always
{{- with .command }}
command:
  {{- toYaml . | nindent 2 }}
{{- end }}
args:
  {{- if hasKey . "args" }}
  {{- toYaml .args | nindent 2 }}
  {{- else }}
  - {{ include "hookgate.socket" . }}
  {{- end }}
{{- with .env }}
env:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .envFrom }}
envFrom:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- range $key := list "resources" "startupProbe" "livenessProbe" "lifecycle" }}
{{- with get $ $key }}
{{ $key }}:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
volumeMounts:
  - { name: {{ include "hookgate.sidecar" . }}, mountPath: /run/plugins/{{ .name }} }
  {{- with .volumeMounts }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}

{{- define "hookgate.container" -}}
name: hookgate
image: {{ include "hookgate.image" . | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
args: [serve, --config, /etc/hookgate/hookgate.yaml]
{{- with include "hookgate.env" . | trim }}
env:
  {{- . | nindent 2 }}
{{- end }}
{{- if or .Values.secrets.existing .Values.secrets.create .Values.store.postgresql.url }}
envFrom:
  {{- range .Values.secrets.existing }}
  - secretRef: { name: {{ . | quote }} }
  {{- end }}
  {{- if or .Values.secrets.create .Values.store.postgresql.url }}
  - secretRef: { name: {{ include "hookgate.fullname" . }}-env }
  {{- end }}
{{- end }}
ports:
  - { name: data, containerPort: 8080 }
  - { name: ops, containerPort: 9090 }
  {{- if include "hookgate.admin" . }}
  - { name: admin, containerPort: 9091 }
  {{- end }}
  {{- if .Values.hostServices.port }}
  - { name: host, containerPort: 9092 }
  {{- end }}
# The ops port answers from the first moment on; it is plaintext and wants no token.
startupProbe:
  httpGet: { path: /livez, port: ops }
  periodSeconds: 1
  failureThreshold: 30
livenessProbe:
  httpGet: { path: /livez, port: ops }
  periodSeconds: 10
  timeoutSeconds: 3
readinessProbe:
  httpGet: { path: /readyz, port: ops }
  periodSeconds: 2
  timeoutSeconds: 2
  failureThreshold: 2
{{- with .Values.securityContext }}
securityContext:
  {{- toYaml . | nindent 2 }}
{{- end }}
resources:
  {{- toYaml .Values.resources | nindent 2 }}
volumeMounts:
  {{- include "hookgate.mounts" . | nindent 2 }}
{{- end -}}

{{- define "hookgate.env" -}}
{{- if .Values.adminSocket }}
# For the command line, by `kubectl exec`.
- { name: HOOKGATE_ADMIN_ADDR, value: "unix:///run/hookgate/admin.sock" }
{{- end }}
{{- if .Values.store.postgresql.existingSecret }}
- name: HOOKGATE_STORE_URL
  valueFrom:
    secretKeyRef:
      name: {{ .Values.store.postgresql.existingSecret | quote }}
      key: {{ .Values.store.postgresql.existingSecretKey | quote }}
{{- end }}
{{- with .Values.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "hookgate.mounts" -}}
# A folder, not a file: what is mounted as a file never changes.
- { name: config, mountPath: /etc/hookgate, readOnly: true }
{{- if include "hookgate.store" . }}
- { name: state, mountPath: /var/lib/hookgate }
{{- end }}
{{- if .Values.adminSocket }}
- { name: admin-socket, mountPath: /run/hookgate }
{{- end }}
{{- if .Values.hostServices.socket }}
- { name: host-socket, mountPath: /run/hookgate-host }
{{- end }}
{{- if .Values.tls.enabled }}
- { name: tls, mountPath: /tls/server, readOnly: true }
{{- if .Values.tls.clientCa.existingSecret }}
- { name: tls-clients, mountPath: /tls/clients, readOnly: true }
{{- end }}
{{- end }}
{{- range .Values.secrets.files }}
- { name: secret-{{ . | replace "." "-" | trunc 56 | trimSuffix "-" }}, mountPath: /run/secrets/{{ . }}, readOnly: true }
{{- end }}
{{- range .Values.plugins }}
{{- if .image }}
- { name: {{ include "hookgate.sidecar" . }}, mountPath: /run/plugins/{{ .name }} }
{{- end }}
{{- if .tlsSecret }}
- { name: {{ include "hookgate.sidecar" . }}, mountPath: /tls/plugins/{{ .name }}, readOnly: true }
{{- end }}
{{- end }}
{{- with .Values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "hookgate.volumes" -}}
- name: config
  configMap: { name: {{ include "hookgate.fullname" . | quote }} }
{{- if eq "postgresql" (include "hookgate.store" .) }}
# For the table of a start while the database is away. It ends with the pod.
- { name: state, emptyDir: { sizeLimit: 256Mi } }
{{- end }}
{{- if .Values.adminSocket }}
- { name: admin-socket, emptyDir: { sizeLimit: 1Mi } }
{{- end }}
{{- if .Values.hostServices.socket }}
- { name: host-socket, emptyDir: { sizeLimit: 1Mi } }
{{- end }}
{{- if .Values.tls.enabled }}
- { name: tls, secret: { secretName: {{ include "hookgate.tlsSecret" . | quote }}, defaultMode: 0440 } }
{{- with .Values.tls.clientCa.existingSecret }}
- { name: tls-clients, secret: { secretName: {{ . | quote }}, defaultMode: 0440 } }
{{- end }}
{{- end }}
{{- range .Values.secrets.files }}
- { name: secret-{{ . | replace "." "-" | trunc 56 | trimSuffix "-" }}, secret: { secretName: {{ . | quote }}, defaultMode: 0440 } }
{{- end }}
{{- range .Values.plugins }}
{{- if .image }}
- { name: {{ include "hookgate.sidecar" . }}, emptyDir: { sizeLimit: 1Mi } }
{{- end }}
{{- if .tlsSecret }}
- { name: {{ include "hookgate.sidecar" . }}, secret: { secretName: {{ .tlsSecret.name | quote }}, defaultMode: 0440 } }
{{- end }}
{{- end }}
{{- with .Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* The pod, whoever makes it. */}}
{{- define "hookgate.pod" -}}
metadata:
  labels:
    {{- include "hookgate.selector" . | nindent 4 }}
    {{- with .Values.podLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  annotations:
    kubectl.kubernetes.io/default-container: hookgate
    hookgate/restart: {{ include "hookgate.restart" . | quote }}
    {{- if or .Values.secrets.create .Values.store.postgresql.url }}
    hookgate/secrets: {{ list .Values.secrets.create .Values.store.postgresql.url | toJson | sha256sum | quote }}
    {{- end }}
    {{- with .Values.podAnnotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  serviceAccountName: {{ include "hookgate.serviceAccount" . | quote }}
  automountServiceAccountToken: false
  # Kubernetes would set HOOKGATE_PORT and the like for a Service of that name.
  enableServiceLinks: false
  # Longer than the gateway ever takes, which is the drain and 4 s for observers and Shutdown.
  terminationGracePeriodSeconds: {{ add .Values.drain.graceSeconds .Values.drain.finishSeconds 5 .Values.drain.sidecarSeconds }}
  {{- with .Values.podSecurityContext }}
  securityContext:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.imagePullSecrets }}
  imagePullSecrets:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- $sidecars := list }}
  {{- range .Values.plugins }}
  {{- if .image }}
  {{- /* Key by key: `merge` takes false for nothing. */}}
  {{- $security := deepCopy ($.Values.securityContext | default dict) }}
  {{- range $key, $value := .securityContext }}
  {{- if kindIs "invalid" $value }}{{- $_ := unset $security $key }}{{- else }}{{- $_ := set $security $key $value }}{{- end }}
  {{- end }}
  {{- $sidecar := set (include "hookgate.sidecarContainer" . | fromYaml) "securityContext" $security }}
  {{- if $.Values.hostServices.socket }}
  {{- /* Read-only, so that no plugin puts its own socket there. That doesn't keep it from connecting. */}}
  {{- $socket := dict "name" "host-socket" "mountPath" "/run/hookgate-host" "readOnly" true }}
  {{- $_ := set $sidecar "volumeMounts" (append $sidecar.volumeMounts $socket) }}
  {{- end }}
  {{- $sidecars = append $sidecars $sidecar }}
  {{- end }}
  {{- end }}
  {{- with $sidecars }}
  initContainers:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  containers:
    -
      {{- include "hookgate.container" . | nindent 6 }}
  volumes:
    {{- include "hookgate.volumes" . | nindent 4 }}
  {{- with .Values.topologySpread }}
  topologySpreadConstraints:
    {{- range . }}
    - labelSelector:
        matchLabels:
          {{- include "hookgate.selector" $ | nindent 10 }}
      {{- toYaml . | nindent 6 }}
    {{- end }}
  {{- end }}
  {{- range $key := list "nodeSelector" "tolerations" "affinity" "priorityClassName" }}
  {{- with get $.Values $key }}
  {{ $key }}: {{ toJson . }}
  {{- end }}
  {{- end }}
{{- end -}}
