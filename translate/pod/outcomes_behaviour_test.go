// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package pod_test

import (
	"flag"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/berth-dev/berth/translate"
	"github.com/berth-dev/berth/translate/pod"
	"github.com/berth-dev/berth/translate/sample"
)

// S4, M4: each field of a pod's spec was decided about, and is dealt with as was
// decided. A field that a new Kubernetes adds fails here until it is in the table.
func TestEveryFieldOfAPodHasAnOutcome(t *testing.T) {
	all := table(outcomes())
	used := map[string]bool{}
	var sites []site
	spec := reflect.TypeFor[corev1.PodSpec]()
	all.visit(spec, spec, nil, func(s site) { sites = append(sites, s) }, func(owner reflect.Type, name string) {
		if key := owner.Name() + "." + name; !used[key] {
			used[key] = true
			t.Errorf("nobody decided what becomes of %s.%s of package %s: see outcomes", owner.Name(), name, owner.PkgPath())
		}
	})
	for _, s := range sites {
		t.Run(s.String(), func(t *testing.T) { checkOutcome(t, s) })
	}
	if len(sites) < 500 {
		t.Errorf("only %d places were looked at", len(sites))
	}
}

// A decision about a field that is no more would say nothing for ever.
func TestEveryDecisionIsAboutAFieldThatThereIs(t *testing.T) {
	for _, d := range outcomes() {
		known := map[string]bool{}
		var collect func(t reflect.Type)
		collect = func(t reflect.Type) {
			for i := range t.NumField() {
				if name := jsonName(t.Field(i)); name != "" {
					known[name] = true
				} else {
					collect(elements(t.Field(i).Type))
				}
			}
		}
		collect(d.of)
		for _, decision := range d.decisions {
			for _, field := range decision.fields {
				if !known[field] {
					t.Errorf("%s has no field %q, or it is decided about twice", d.of.Name(), field)
				}
				delete(known, field)
			}
		}
	}
}

// result is all that a pod leads to on the host.
type result struct {
	Host   *corev1.Pod
	Tokens []pod.TokenRequest
}

func resultOf(v *corev1.Pod) result {
	space := sample.Demo()
	space.Nameservers = []string{"10.1.0.10"}
	space.Settings.PodSecurity.Seccomp = corev1.SeccompProfileTypeUnconfined // else each pod has a security context
	in := sample.Surroundings{API: sample.APIService(), Services: []*corev1.Service{{
		Spec: corev1.ServiceSpec{ClusterIP: "10.1.0.7", Ports: []corev1.ServicePort{{Name: "http", Port: 80}}},
	}}}
	in.Services[0].Namespace, in.Services[0].Name = v.Namespace, "db"
	for _, label := range []string{"sample", "another"} {
		in.Namespaces = append(in.Namespaces, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: label, Labels: map[string]string{label: "sample"}}})
	}
	return result{pod.ToHost(space, v, in), pod.TokenRequests(v)}
}

func checkOutcome(t *testing.T, s site) {
	t.Helper()
	without, with := bareFor(s), bareFor(s)
	put(reflect.ValueOf(&without.Spec).Elem(), s.path, func(reflect.Value) {})
	put(reflect.ValueOf(&with.Spec).Elem(), s.path, sampleOf(s))
	errs := slices.Concat(checked(with), translate.Placement{}.Check(&with.Spec))
	if s.outcome == refused {
		if !strings.Contains(errs.ToAggregate().Error(), s.name()) {
			t.Errorf("not refused by its name: %v", errs)
		}
	} else if len(errs) > 0 {
		t.Errorf("refused: %v", errs)
	}
	before, after := resultOf(without), resultOf(with)
	diff := cmp.Diff(before, after)
	asked, _ := find(reflect.ValueOf(&with.Spec).Elem(), s.path)
	told, there := find(reflect.ValueOf(&after.Host.Spec).Elem(), s.path)
	same := there && cmp.Equal(asked.Interface(), told.Interface())
	switch s.outcome {
	case kept:
		if !same {
			t.Errorf("it is not on the host as it was asked for: -without +with it:\n%s", diff)
		}
	case translated:
		if diff == "" {
			t.Error("it has no effect")
		}
	case refused:
		if same && !asked.IsZero() {
			t.Errorf("it is on the host, would it pass by the check: %v", told)
		}
	case hostOnly:
		if diff != "" {
			t.Errorf("it has an effect on the host: -without +with it:\n%s", diff)
		}
	}
	if s.never != nil {
		never := bareFor(s)
		put(reflect.ValueOf(&never.Spec).Elem(), s.path, func(v reflect.Value) {
			if v.Kind() == reflect.Pointer {
				v.Set(reflect.New(v.Type().Elem()))
				v = v.Elem()
			}
			v.Set(reflect.ValueOf(s.never).Convert(v.Type()))
		})
		errs := checked(never)
		if len(errs) == 0 {
			t.Fatalf("%v is not refused", s.never)
		}
		parent := s.name()
		if len(s.path) > 1 {
			parent = jsonName(s.path[len(s.path)-2])
		}
		if !strings.Contains(errs.ToAggregate().Error(), s.name()) && !strings.Contains(errs.ToAggregate().Error(), parent) {
			t.Errorf("%v is not refused by its name: %v", s.never, errs)
		}
	}
}

// checked is what is refused of a pod of a space without settings.
func checked(v *corev1.Pod) field.ErrorList {
	return append(pod.Check(&v.ObjectMeta, &v.Spec), pod.CheckSettings(&translate.Settings{}, &v.ObjectMeta, &v.Spec)...)
}

// sampleOf sets what a field may have, where not anything will do.
func sampleOf(s site) func(reflect.Value) {
	for suffix, sample := range map[string]string{
		".sysctls.name": "kernel.shm_rmid_forced", ".seccompProfile.type": "RuntimeDefault", ".appArmorProfile.type": "RuntimeDefault", ".topologyKey": corev1.LabelTopologyZone,
		".tolerations.key": corev1.TaintNodeUnreachable,
	} {
		if strings.HasSuffix(s.String(), suffix) {
			return func(v reflect.Value) { v.SetString(sample) }
		}
	}
	if s.name() == "enableServiceLinks" {
		return func(v reflect.Value) { v.Set(reflect.ValueOf(ptr.To(false))) }
	}
	return fillSample
}

// bareFor is a pod with nothing but what a place needs elsewhere.
func bareFor(s site) *corev1.Pod {
	v := &corev1.Pod{}
	v.Namespace, v.Name, v.UID = "default", "web", "v-uid"
	switch s.name() {
	case "enableServiceLinks":
		v.Spec.Containers = []corev1.Container{{Name: "c"}}
	case "setHostnameAsFQDN":
		v.Spec.Subdomain = "db"
	case "value":
		if slices.Contains(strings.Split(s.String(), "."), "dnsConfig") {
			v.Spec.DNSConfig = &corev1.PodDNSConfig{Options: []corev1.PodDNSConfigOption{{Name: "edns0", Value: ptr.To("")}}}
		}
	}
	return v
}

func TestMain(m *testing.M) {
	flag.Bool("update", false, "write the table of docs/reference/pods.md")
	os.Exit(m.Run())
}

// docs/reference/pods.md has the table as it is.
func TestTheDocumentedTableIsFresh(t *testing.T) {
	const file, begin, end = "../../docs/reference/pods.md", "<!-- outcomes: begin -->\n", "<!-- outcomes: end -->\n"
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, ok := strings.Cut(string(text), begin)
	old, tail, ended := strings.Cut(rest, end)
	if !ok || !ended {
		t.Fatalf("%s lacks the lines %q and %q", file, begin, end)
	}
	fresh := printOutcomes()
	if old == fresh {
		return
	}
	if flag.Lookup("update").Value.String() != "true" {
		t.Fatalf("the table in %s is not that of outcomes; run go test ./translate/pod -run TestTheDocumentedTableIsFresh -update: -documented +decided:\n%s",
			file, cmp.Diff(old, fresh))
	}
	if err := os.WriteFile(file, []byte(head+begin+fresh+end+tail), 0o644); err != nil {
		t.Fatal(err)
	}
}

func printOutcomes() string {
	var out strings.Builder
	out.WriteString("\n| of | field | outcome | |\n|---|---|---|---|\n")
	for _, d := range outcomes() {
		for _, decision := range d.decisions {
			fmt.Fprintf(&out, "| %s | `%s` | %s | %s |\n", d.of.Name(), strings.Join(decision.fields, "`, `"), decision.outcome, decision.why)
		}
	}
	out.WriteString("\n")
	return out.String()
}
