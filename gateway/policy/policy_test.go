// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/klog/v2"

	"github.com/berth-dev/berth/access"
)

func policyOf(spec string) string {
	return `{"apiVersion": "abac.authorization.kubernetes.io/v1beta1", "kind": "Policy", "spec": {` + spec + `}}`
}

func TestLinesAllowWhatTheySay(t *testing.T) {
	get := authorizer.AttributesRecord{Verb: "get", Resource: "pods", Subresource: "log", Namespace: "web", ResourceRequest: true}
	change := func(f func(*authorizer.AttributesRecord)) authorizer.AttributesRecord {
		a := get
		f(&a)
		return a
	}
	alice, root := access.Client{Tenant: "solar", Name: "alice", Groups: []string{"crew"}}, access.Client{Tenant: "system", Name: "root"}
	for reason, c := range map[string]struct {
		spec, space string
		client      access.Client
		request     authorizer.AttributesRecord
		want        bool
	}{
		"a user of a tenant in a space":       {`"tenant": "solar", "user": "alice", "space": "lunar", "namespace": "*", "resource": "*", "apiGroup": "*"`, "lunar", alice, get, true},
		"in another space":                    {`"tenant": "solar", "user": "alice", "space": "lunar", "namespace": "*", "resource": "*", "apiGroup": "*"`, "mars", alice, get, false},
		"in all spaces":                       {`"tenant": "solar", "user": "alice", "space": "*", "namespace": "*", "resource": "pods"`, "mars", alice, get, true},
		"all spaces are not the system space": {`"tenant": "solar", "user": "alice", "space": "*", "namespace": "*", "resource": "pods"`, "system", alice, get, false},
		"a missing space is the system space": {`"tenant": "solar", "user": "alice", "namespace": "*", "resource": "pods"`, "system", alice, get, true},
		"and no other":                        {`"tenant": "solar", "user": "alice", "namespace": "*", "resource": "pods"`, "solar", alice, get, false},
		"a missing tenant is system":          {`"user": "root", "space": "lunar", "namespace": "*", "resource": "pods"`, "lunar", root, get, true},
		"and no other tenant":                 {`"user": "alice", "space": "lunar", "namespace": "*", "resource": "pods"`, "lunar", alice, get, false},
		"the same name in another tenant":     {`"tenant": "mars", "user": "alice", "space": "lunar", "namespace": "*", "resource": "pods"`, "lunar", alice, get, false},
		"all users":                           {`"tenant": "solar", "user": "*", "space": "lunar", "namespace": "*", "resource": "pods"`, "lunar", alice, get, true},
		"a group":                             {`"tenant": "solar", "group": "crew", "space": "lunar", "namespace": "*", "resource": "pods"`, "lunar", alice, get, true},
		"a user who isn't in the group":       {`"tenant": "solar", "user": "alice", "group": "ops", "space": "lunar", "namespace": "*", "resource": "pods"`, "lunar", alice, get, false},
		"authenticated users":                 {`"tenant": "solar", "group": "system:authenticated", "space": "lunar", "namespace": "*", "resource": "pods"`, "lunar", alice, get, true},
		"a namespace":                         {`"tenant": "solar", "user": "*", "space": "lunar", "namespace": "web", "resource": "pods"`, "lunar", alice, get, true},
		"an empty namespace is no namespace":  {`"tenant": "solar", "user": "*", "space": "lunar", "resource": "pods"`, "lunar", alice, get, false},
		"another group of resources":          {`"tenant": "solar", "user": "*", "space": "lunar", "namespace": "*", "resource": "pods", "apiGroup": "apps"`, "lunar", alice, get, false},
		"read only":                           {`"tenant": "solar", "user": "*", "space": "lunar", "namespace": "*", "resource": "pods", "readonly": true`, "lunar", alice, change(func(a *authorizer.AttributesRecord) { a.Verb = "create" }), false},
		"nobody acts as others":               {`"tenant": "solar", "user": "*", "space": "lunar", "namespace": "*", "resource": "*", "apiGroup": "*"`, "lunar", alice, change(func(a *authorizer.AttributesRecord) { a.Verb = "impersonate"; a.Resource = "users" }), false},
		"a path":                              {`"tenant": "solar", "user": "*", "space": "lunar", "nonResourcePath": "/metrics*"`, "lunar", alice, authorizer.AttributesRecord{Verb: "get", Path: "/metrics/a"}, true},
		"another path":                        {`"tenant": "solar", "user": "*", "space": "lunar", "nonResourcePath": "/metrics"`, "lunar", alice, authorizer.AttributesRecord{Verb: "get", Path: "/metrics/a"}, false},
		"the discovery, for those who have any right there": {`"tenant": "solar", "user": "*", "space": "lunar", "namespace": "*", "resource": "pods"`, "lunar", alice, authorizer.AttributesRecord{Verb: "get", Path: "/apis/apps"}, true},
	} {
		grants, err := parse([]byte("# a comment\n\n" + policyOf(c.spec) + "\n"))
		if err != nil {
			t.Errorf("%s: %v", reason, err)
			continue
		}
		file, sets := &File{}, setsOf(grants)
		file.grants.Store(&sets)
		if got := access.AllowedBy(access.GrantsFor(file.Granted(c.space), c.client, time.Now()), c.request); (got != "") != c.want {
			t.Errorf("%s: allowed by %q, want %t", reason, got, c.want)
		}
	}
}

func TestBadLinesAreNamed(t *testing.T) {
	good := policyOf(`"user": "*", "resource": "*"`)
	for text, want := range map[string]string{
		"{": "line 2: ",
		policyOf(`"user": "*", "resource": "*", "verb": "get"`):                        "verb",
		policyOf(`"tenant": "a", "tenant": "b", "user": "*", "resource": "*"`):         "tenant",
		policyOf(`"resource": "*"`):                                                    "spec.user: it is empty",
		policyOf(`"user": "*"`):                                                        "spec.resource: it is empty",
		policyOf(`"user": "*", "resource": "*", "tenant": "tenant A"`):                 `spec.tenant: "tenant A"`,
		policyOf(`"user": "*", "resource": "*", "space": "a/b"`):                       `spec.space: "a/b"`,
		`{"user": "alice", "resource": "pods"}`:                                        "user",
		strings.Replace(good, "v1beta1", "v1", 1):                                      "apiVersion",
		strings.Replace(good, "Policy", "Role", 1):                                     "kind",
		`{"apiVersion": "abac.authorization.kubernetes.io/v1beta1", "kind": "Policy"}`: "spec: it is missing",
		strings.Replace(good, `"*", "res`, `"*"}, "res`, 1):                            "line 2",
	} {
		_, err := parse([]byte(good + "\n" + text + "\n" + good))
		if err == nil || !strings.HasPrefix(err.Error(), "line 2: ") || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %s", text, err, want)
		}
	}
}

func TestAFileThatIsWrongLeavesWhatWasRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "policy.jsonl")
	write := func(text string, at time.Time) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, at, at); err != nil {
			t.Fatal(err)
		}
	}
	now := time.Now()
	write(policyOf(`"user": "*", "resource": "*", "space": "solar"`), now)
	f, err := Open(path, klog.Background())
	if err != nil || len(f.Granted("solar")) != 1 {
		t.Fatalf("%v, %v", f, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	changed := make(chan struct{}, 8)
	write("{", now.Add(time.Second))
	if _, err := f.file.Read(); err == nil || len(f.Granted("solar")) != 1 {
		t.Errorf("a wrong file: %v, %v", f.Granted("solar"), err)
	}
	go f.Run(ctx, func() { changed <- struct{}{} })
	write("", now.Add(2*time.Second))
	<-changed
	if len(f.Granted("solar")) != 0 {
		t.Errorf("an empty file grants %v", f.Granted("solar"))
	}
	if _, err := Open(filepath.Join(t.TempDir(), "none"), klog.Background()); err == nil {
		t.Error("a file that doesn't exist is no error")
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(policyOf(`"tenant": "a", "user": "*", "resource": "*", "space": "b"`)))
	f.Fuzz(func(t *testing.T, data []byte) {
		grants, err := parse(data)
		if err != nil {
			return
		}
		for space, all := range grants {
			for _, g := range all {
				if space == "" || len(g.Subjects) != 1 || g.Subjects[0].Tenant == "" || len(g.Rules) == 0 {
					t.Errorf("%q grants %+v in %q", data, g, space)
				}
			}
		}
	})
}
