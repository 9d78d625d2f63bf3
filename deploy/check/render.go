// Renders a Helm chart where there is no Helm: the same template engine, the same functions (sprig) and the same YAML
// library, and the objects that templates see. It is not Helm: hooks are printed like everything else, `lookup` finds
// nothing (as with `helm template`), there are no subcharts, and values.schema.json is looked at by another check.
//
// It is built from Debian's packages alone, without modules (deploy/check/render.sh).
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"sort"
	"strings"
	"text/template"

	"github.com/Masterminds/semver"
	"github.com/Masterminds/sprig"
	"sigs.k8s.io/yaml"
)

// Values are what YAML holds after its way through JSON, numbers included: float64, as templates see them in Helm.
type Values = map[string]interface{}

// Release is where a chart is installed to.
type Release struct {
	name, namespace string
	upgrade         bool
}

// Cluster is what templates see in .Capabilities.
type Cluster struct {
	version string
	apis    []string
}

type list []string

func (l *list) String() string         { return strings.Join(*l, ",") }
func (l *list) Set(value string) error { *l = append(*l, value); return nil }

func main() {
	var values, apis list
	release, cluster := Release{}, Cluster{}
	flag.Var(&values, "f", "values file, laid over the chart's own; several: the last one wins")
	flag.Var(&apis, "api", "a further API that the cluster has, such as monitoring.coreos.com/v1")
	flag.StringVar(&release.name, "name", "hookgate", "the release")
	flag.StringVar(&release.namespace, "namespace", "agents", "its namespace")
	flag.BoolVar(&release.upgrade, "upgrade", false, "an upgrade instead of an installation")
	flag.StringVar(&cluster.version, "kube-version", "1.33.0", "the cluster's version")
	notes := flag.Bool("notes", false, "print NOTES.txt instead of the manifests")
	only := flag.String("show-only", "", "one template, such as templates/config.yaml")
	flag.Parse()
	if flag.NArg() != 1 {
		fmt.Fprintln(os.Stderr, "usage: render [-f VALUES]... CHART")
		os.Exit(2)
	}
	cluster.apis = apis
	if err := run(os.Stdout, flag.Arg(0), values, release, cluster, *notes, *only); err != nil {
		fmt.Fprintf(os.Stderr, "Error: %s\n", plain(err))
		os.Exit(1)
	}
}

func run(out io.Writer, chart string, files []string, release Release, cluster Cluster, notes bool, only string) error {
	meta, err := readYAML(filepath.Join(chart, "Chart.yaml"))
	if err != nil {
		return err
	}
	if err := runsOn(meta, cluster.version); err != nil {
		return err
	}
	values, err := coalesced(chart, files)
	if err != nil {
		return err
	}
	root, err := contextOf(chart, meta, values, release, cluster)
	if err != nil {
		return err
	}
	name := fmt.Sprint(meta["name"])
	templates, sources, err := parse(chart, name)
	if err != nil {
		return err
	}
	rendered := 0
	for _, source := range sources {
		inChart := strings.TrimPrefix(source, name+"/")
		if (path.Base(source) == "NOTES.txt") != notes || (only != "" && inChart != only) {
			continue
		}
		rendered++
		root["Template"] = Values{"Name": source, "BasePath": name + "/templates"}
		text, err := execute(templates, source, root)
		if err != nil {
			return err
		}
		if notes {
			fmt.Fprint(out, text)
		} else if strings.TrimSpace(text) != "" {
			fmt.Fprintf(out, "---\n# Source: %s\n%s\n", source, strings.Trim(text, "\n"))
		}
	}
	if only != "" && rendered == 0 {
		return fmt.Errorf("could not find template %s in chart", only)
	}
	return nil
}

func execute(templates *template.Template, name string, root Values) (string, error) {
	var text bytes.Buffer
	if err := templates.ExecuteTemplate(&text, name, root); err != nil {
		return "", err
	}
	// With missingkey=zero a missing key of a map of interfaces still prints so; Helm does the same.
	return strings.ReplaceAll(text.String(), "<no value>", ""), nil
}

// parse reads every template and gives back the names of those that are rendered, in order.
func parse(chart, name string) (*template.Template, []string, error) {
	templates := template.New("chart").Option("missingkey=zero")
	templates.Funcs(functions(templates))
	var sources []string
	folder := filepath.Join(chart, "templates")
	err := filepath.Walk(folder, func(file string, info os.FileInfo, err error) error {
		if err != nil || info.IsDir() {
			return err
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		inChart, err := filepath.Rel(chart, file)
		if err != nil {
			return err
		}
		source := path.Join(name, filepath.ToSlash(inChart))
		if !strings.HasPrefix(path.Base(source), "_") {
			sources = append(sources, source)
		}
		_, err = templates.New(source).Parse(string(text))
		return err
	})
	sort.Strings(sources)
	return templates, sources, err
}

// mostIncludes is Helm's: a template that includes itself ends.
const mostIncludes = 1000

func functions(templates *template.Template) template.FuncMap {
	known := sprig.TxtFuncMap()
	delete(known, "env")
	delete(known, "expandenv")
	depth := map[string]int{}
	known["include"] = func(name string, data interface{}) (string, error) {
		if depth[name]++; depth[name] > mostIncludes {
			return "", fmt.Errorf("unable to execute template: rendering template has a nested reference name: %s", name)
		}
		defer func() { depth[name]-- }()
		var text strings.Builder
		err := templates.ExecuteTemplate(&text, name, data)
		return text.String(), err
	}
	known["tpl"] = func(text string, data interface{}) (string, error) {
		clone, err := templates.Clone()
		if err != nil {
			return "", err
		}
		parsed, err := clone.New("gotpl").Parse(text)
		if err != nil {
			return "", err
		}
		var rendered strings.Builder
		err = parsed.Execute(&rendered, data)
		return strings.ReplaceAll(rendered.String(), "<no value>", ""), err
	}
	known["required"] = func(message string, value interface{}) (interface{}, error) {
		if text, isText := value.(string); value == nil || (isText && text == "") {
			return value, errors.New(message)
		}
		return value, nil
	}
	known["fail"] = func(message string) (string, error) { return "", errors.New(message) }
	known["lookup"] = func(_, _, _, _ string) (Values, error) { return Values{}, nil }
	known["toYaml"] = func(value interface{}) string {
		text, err := yaml.Marshal(value)
		if err != nil {
			return ""
		}
		return strings.TrimSuffix(string(text), "\n")
	}
	known["fromYaml"] = func(text string) Values {
		value := Values{}
		if err := yaml.Unmarshal([]byte(text), &value); err != nil {
			value["Error"] = err.Error()
		}
		return value
	}
	known["fromYamlArray"] = func(text string) []interface{} {
		value := []interface{}{}
		if err := yaml.Unmarshal([]byte(text), &value); err != nil {
			value = []interface{}{err.Error()}
		}
		return value
	}
	return known
}

func contextOf(chart string, meta, values Values, release Release, cluster Cluster) (Values, error) {
	files, err := filesOf(chart)
	if err != nil {
		return nil, err
	}
	version, err := semver.NewVersion(cluster.version)
	if err != nil {
		return nil, fmt.Errorf("-kube-version: %w", err)
	}
	about := Values{}
	for key, value := range meta {
		about[strings.ToUpper(key[:1])+key[1:]] = value
	}
	return Values{
		"Values": values,
		"Chart":  about,
		"Files":  files,
		"Release": Values{
			"Name": release.name, "Namespace": release.namespace, "Service": "Helm", "Revision": 1,
			"IsInstall": !release.upgrade, "IsUpgrade": release.upgrade,
		},
		"Capabilities": Values{
			"KubeVersion": KubeVersion{
				Version: "v" + version.String(),
				Major:   fmt.Sprint(version.Major()),
				Minor:   fmt.Sprint(version.Minor()),
			},
			"APIVersions": APIVersions(cluster.apis),
			"HelmVersion": Values{"Version": "v3.16.0"},
		},
	}, nil
}

// KubeVersion is a cluster's version; printed, it is Version, as in Helm.
type KubeVersion struct{ Version, Major, Minor string }

func (v KubeVersion) String() string { return v.Version }

// APIVersions are those that the cluster has beyond Kubernetes' own.
type APIVersions []string

// Has says whether the cluster has one.
func (known APIVersions) Has(wanted string) bool {
	for _, api := range known {
		if api == wanted {
			return true
		}
	}
	return false
}

// Files are those of the chart that are neither templates nor its own description.
type Files map[string][]byte

func filesOf(chart string) (Files, error) {
	files := Files{}
	err := filepath.Walk(chart, func(file string, info os.FileInfo, err error) error {
		if err != nil {
			return err
		}
		inChart, err := filepath.Rel(chart, file)
		if err != nil {
			return err
		}
		inChart = filepath.ToSlash(inChart)
		if info.IsDir() {
			if inChart == "templates" {
				return filepath.SkipDir
			}
			return nil
		}
		switch inChart {
		case "Chart.yaml", "values.yaml", "values.schema.json", ".helmignore":
			return nil
		}
		text, err := os.ReadFile(file)
		files[inChart] = text
		return err
	})
	return files, err
}

// Get is a file's text; empty where there is none.
func (files Files) Get(name string) string { return string(files[name]) }

// Glob are the files whose path matches.
func (files Files) Glob(pattern string) Files {
	found := Files{}
	for name, text := range files {
		if matches, err := path.Match(pattern, name); err == nil && matches {
			found[name] = text
		}
	}
	return found
}

// Lines are those of a file.
func (files Files) Lines(name string) []string {
	return strings.Split(strings.TrimSuffix(files.Get(name), "\n"), "\n")
}

// AsConfig is the files as the data of a ConfigMap, by their names without folders.
func (files Files) AsConfig() string {
	data := map[string]string{}
	for name, text := range files {
		data[path.Base(name)] = string(text)
	}
	text, err := yaml.Marshal(data)
	if err != nil {
		return ""
	}
	return strings.TrimSuffix(string(text), "\n")
}

// runsOn says why the chart doesn't take this cluster, in Helm's words.
func runsOn(meta Values, version string) error {
	wanted, isText := meta["kubeVersion"].(string)
	if !isText {
		return nil
	}
	constraint, err := semver.NewConstraint(wanted)
	if err != nil {
		return fmt.Errorf("kubeVersion of Chart.yaml: %w", err)
	}
	have, err := semver.NewVersion(version)
	if err != nil {
		return fmt.Errorf("-kube-version: %w", err)
	}
	if !constraint.Check(have) {
		return fmt.Errorf("chart requires kubeVersion: %s which is incompatible with Kubernetes v%s", wanted, version)
	}
	return nil
}

// coalesced lays the files over the chart's own values: mappings are merged, everything else is replaced, and null
// takes out what the chart says.
func coalesced(chart string, files []string) (Values, error) {
	values, err := readYAML(filepath.Join(chart, "values.yaml"))
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		over, err := readYAML(file)
		if err != nil {
			return nil, err
		}
		lay(values, over)
	}
	return values, nil
}

func lay(under, over Values) {
	for key, value := range over {
		below, isBelow := under[key].(Values)
		above, isAbove := value.(Values)
		switch {
		case value == nil:
			delete(under, key)
		case isBelow && isAbove:
			lay(below, above)
		default:
			under[key] = value
		}
	}
}

func readYAML(file string) (Values, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	values := Values{}
	// Strictly, unlike Helm: a key that stands twice in a file of ours is a mistake.
	if err := yaml.UnmarshalStrict(text, &values); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return values, nil
}

var (
	place  = regexp.MustCompile(`^template: ([^:]+:\d+:\d+)`)
	asked  = regexp.MustCompile(`error calling (?:fail|required): `)
	ending = "error calling include: "
)

// plain is what Helm prints of an error: of a chain of includes the last part, which is what the chart says.
func plain(err error) string {
	text := err.Error()
	if found := asked.FindAllStringIndex(text, -1); found != nil {
		where := place.FindStringSubmatch(text)
		said := text[found[len(found)-1][1]:]
		if where == nil {
			return said
		}
		return fmt.Sprintf("execution error at (%s): %s", where[1], said)
	}
	if at := strings.LastIndex(text, ending); at >= 0 {
		return text[at+len(ending):]
	}
	return text
}
