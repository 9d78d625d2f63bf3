{{- define "hookgate.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{/*
Short enough, within 63, for the longest name that is made of it, `...-dashboards`, and for a label of a StatefulSet's pods,
which is this name, a hyphen and a hash of ten.
*/}}
{{- define "hookgate.fullname" -}}
{{- $name := include "hookgate.name" . -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 52 | trimSuffix "-" -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | trunc 52 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 52 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "hookgate.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
app.kubernetes.io/name: {{ include "hookgate.name" . | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{/* The component keeps the pod of `helm test` out of the Services and the NetworkPolicy. */}}
{{- define "hookgate.selector" -}}
app.kubernetes.io/name: {{ include "hookgate.name" . | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/component: gateway
{{- end -}}

{{- define "hookgate.testSelector" -}}
app.kubernetes.io/name: {{ include "hookgate.name" . | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/component: test
{{- end -}}

{{- define "hookgate.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- .Values.serviceAccount.name | default (include "hookgate.fullname" .) -}}
{{- else -}}
{{- .Values.serviceAccount.name | default "default" -}}
{{- end -}}
{{- end -}}

{{- define "hookgate.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{- define "hookgate.tlsSecret" -}}
{{- .Values.tls.existingSecret | default (printf "%s-tls" (include "hookgate.fullname" .)) -}}
{{- end -}}

{{/* Of a plugin's container and of its sockets' volume: names of plugins may hold what names of containers may not. */}}
{{- define "hookgate.sidecar" -}}
{{- printf "plugin-%s" .name | lower | replace "_" "-" | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{/* Where agentEgress applies: a list. */}}
{{- define "hookgate.agentNamespaces" -}}
{{- .Values.agentEgress.namespaces | default (list .Release.Namespace) | toYaml -}}
{{- end -}}

{{/* Whether the label selector of a dict `selector` selects its `labels`: text, empty for no. */}}
{{- define "hookgate.selects" -}}
{{- $labels := .labels -}}
{{- $misses := list -}}
{{- range $label, $value := .selector.matchLabels -}}
{{- if or (not (hasKey $labels $label)) (ne (toString $value) (toString (get $labels $label))) -}}{{- $misses = append $misses $label -}}{{- end -}}
{{- end -}}
{{- range .selector.matchExpressions -}}
{{- $there := hasKey $labels .key -}}
{{- $among := and $there (has (toString (get $labels .key)) .values) -}}
{{- $fits := dict "Exists" $there "DoesNotExist" (not $there) "In" $among "NotIn" (not $among) -}}
{{- if not (get $fits .operator) -}}{{- $misses = append $misses .key -}}{{- end -}}
{{- end -}}
{{- if not $misses -}}true{{- end -}}
{{- end -}}
