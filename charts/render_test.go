// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package charts

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"sync"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/berth-dev/berth/api/v1alpha1"
)

// helm runs the Helm that hack/helm pins.
func helm(t *testing.T, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	command, err := helmCommand()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), command, args...)
	var out, problems bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &problems
	err = cmd.Run()
	return out.String(), problems.String(), err
}

// helmCommand builds that Helm, and returns its path.
var helmCommand = sync.OnceValues(func() (string, error) {
	cmd := exec.Command("go", "tool", "-modfile=../hack/helm/go.mod", "-n", "helm")
	var problems bytes.Buffer
	cmd.Stderr = &problems
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("build helm: %w\n%s", err, problems.String())
	}
	return strings.TrimSpace(string(out)), nil
})

// render renders charts/berth as a release named berth in a namespace platform,
// with values as --set takes them.
func render(t *testing.T, values ...string) []runtime.Object {
	t.Helper()
	return renderIn(t, "platform", values...)
}

// renderIn renders charts/berth as a release named berth in a namespace.
func renderIn(t *testing.T, namespace string, values ...string) []runtime.Object {
	t.Helper()
	return renderChart(t, "berth", "berth", namespace, values...)
}

// renderChart renders a chart as a release in a namespace.
func renderChart(t *testing.T, release, chart, namespace string, values ...string) []runtime.Object {
	t.Helper()
	args := []string{"template", release, chart, "--namespace", namespace}
	for _, v := range values {
		args = append(args, "--set", v)
	}
	out, problems, err := helm(t, args...)
	if err != nil {
		t.Fatalf("helm %s: %v\n%s", strings.Join(args, " "), err, problems)
	}
	known := runtime.NewScheme()
	if err := errors.Join(scheme.AddToScheme(known), apiextensionsv1.AddToScheme(known), v1alpha1.AddToScheme(known)); err != nil {
		t.Fatal(err)
	}
	strict := serializer.NewCodecFactory(known, serializer.EnableStrict).UniversalDeserializer()
	reader := yaml.NewYAMLReader(bufio.NewReader(strings.NewReader(out)))
	var objects []runtime.Object
	for {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return objects
		}
		if err != nil {
			t.Fatal(err)
		}
		if onlyComments(document) {
			continue
		}
		object, _, err := strict.Decode(document, nil, nil)
		if err != nil {
			t.Fatalf("the API server would not take this: %v\n%s", err, document)
		}
		objects = append(objects, object)
	}
}

func onlyComments(document []byte) bool {
	for line := range strings.Lines(string(document)) {
		line = strings.TrimSpace(line)
		if line != "" && line != "---" && !strings.HasPrefix(line, "#") {
			return false
		}
	}
	return true
}

// find returns the only object of a type, or that which pick selects.
func find[T runtime.Object](t *testing.T, objects []runtime.Object, pick func(T) bool) T {
	t.Helper()
	var found []T
	for _, o := range objects {
		if o, ok := o.(T); ok && (pick == nil || pick(o)) {
			found = append(found, o)
		}
	}
	if len(found) != 1 {
		t.Fatalf("%d objects are a %T that is looked for, want 1", len(found), *new(T))
	}
	return found[0]
}
