"""What render.go does as Helm does, tried on a chart that uses what ours doesn't, or only in passing."""

import pathlib
import subprocess
import tempfile

CHART = {
    "Chart.yaml": "apiVersion: v2\nname: tried\nversion: 1.2.3\nappVersion: '4.5'\n",
    "values.yaml": "kept: 1\ngone: 2\nmap: { kept: 3, changed: 4 }\nlist: [1, 2]\nbig: 1000000\ntext: '{{ .Release.Name }}!'\n",
    "files/a.json": '{"a": "{{ not a template }}"}\n',
    "files/b.json": "{}\n",
    "templates/_part.tpl": '{{- define "tried.part" -}}\na: {{ .Chart.AppVersion }}\nb: 2\n{{- end -}}',
    "templates/config.yaml": """{{- $files := .Files -}}
values: {{ toJson .Values }}
large: {{ .Values.big | int }} {{ toYaml .Values.big }}
include:
  {{- include "tried.part" . | nindent 2 }}
tpl: {{ tpl .Values.text . }}
missing: [{{ .Values.missing }}]
release: {{ .Release.Name }} {{ .Release.Namespace }} {{ .Release.IsInstall }} {{ .Release.IsUpgrade }} {{ .Release.Service }}
chart: {{ .Chart.Name }} {{ .Chart.Version }}
template: {{ .Template.Name }} {{ .Template.BasePath }}
kubernetes: {{ .Capabilities.KubeVersion.Version }} {{ .Capabilities.KubeVersion.Minor }}
apis: {{ .Capabilities.APIVersions.Has "example.com/v1" }} {{ .Capabilities.APIVersions.Has "example.com/v2" }}
lookup: {{ lookup "v1" "Secret" "agents" "a" | toJson }}
{{- range $path, $_ := .Files.Glob "files/*.json" }}
{{ $path }}: {{ $files.Get $path | trim }}
{{- end }}
config:
  {{- (.Files.Glob "files/*").AsConfig | nindent 2 }}
from: {{ (fromYaml "a: [1]").a }}
""",
    "templates/empty.yaml": "{{ if false }}kind: Nothing{{ end }}\n",
    "templates/asks.yaml": '{{ if .Values.asks }}{{ required "say who" .Values.who }}{{ end }}'
                           '{{ if .Values.fails }}{{ fail "no" }}{{ end }}{{ if .Values.endless }}{{ include "endless" . }}{{ end }}'
                           '{{ define "endless" }}{{ include "endless" . }}{{ end }}',
    "templates/NOTES.txt": "{{ .Release.Name }} is there",
}
OVER = "gone: null\nmap: { changed: 5, more: 6 }\nlist: [3]\n"
EXPECTED = """---
# Source: tried/templates/config.yaml
values: {"big":1000000,"kept":1,"list":[3],"map":{"changed":5,"kept":3,"more":6},"text":"{{ .Release.Name }}!"}
large: 1000000 1000000
include:
  a: 4.5
  b: 2
tpl: mine!
missing: []
release: mine there true false Helm
chart: tried 1.2.3
template: tried/templates/config.yaml tried/templates
kubernetes: v1.30.0 30
apis: true false
lookup: {}
files/a.json: {"a": "{{ not a template }}"}
files/b.json: {}
config:
  a.json: |
    {"a": "{{ not a template }}"}
  b.json: |
    {}
from: [1]
"""
REFUSED = {
    "asks: true": "Error: execution error at (tried/templates/asks.yaml:1:24): say who\n",
    "fails: true": "Error: execution error at (tried/templates/asks.yaml:1:91): no\n",
    "list: [1, 2": "did not find expected",
    "a: 1\na: 2": 'key "a" already set in map',
    "endless: true": "nested reference name: endless",
}


def faults(render):
    with tempfile.TemporaryDirectory() as folder:
        chart = pathlib.Path(folder) / "tried"
        for name, text in CHART.items():
            file = chart / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        values = pathlib.Path(folder) / "values.yaml"

        def run(text, *args):
            values.write_text(text)
            command = [render, "-name", "mine", "-namespace", "there", "-kube-version", "1.30.0", "-api", "example.com/v1"]
            return subprocess.run([*command, *args, "-f", values, chart], capture_output=True, text=True, timeout=120, check=False)

        found = []
        done = run(OVER)
        if done.stdout != EXPECTED:
            found.append(f"the renderer prints:\n{done.stdout}{done.stderr}")
        if run(OVER, "-notes").stdout != "mine is there":
            found.append("the renderer prints other notes")
        for text, expected in REFUSED.items():
            done = run(text)
            if done.returncode != 1 or expected not in done.stderr:
                found.append(f"the renderer says of `{text}`: {done.stdout}{done.stderr}")
        return found
