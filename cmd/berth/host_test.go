// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"strings"
	"testing"

	"github.com/berth-dev/berth/vcluster/pki"
)

// X3: errors of the host say what to do.
func TestErrorsOfTheHostSayWhatToDo(t *testing.T) {
	h := use(t)
	h.make(t, newSpace("solar", ""))
	admin := os.Getenv("KUBECONFIG")
	for _, tc := range []struct {
		reason string
		config []byte
		args   []string
		says   []string
	}{
		{"a cluster without Berth", h.kubeconfig(t, h.server.URL+"/elsewhere", "admin", pki.AdminGroup), []string{"tenant", "get"},
			[]string{"doesn't serve tenants.berth.dev: install Berth there with its Helm chart"}},
		{"no such type to create", h.kubeconfig(t, h.server.URL+"/elsewhere", "admin", pki.AdminGroup), []string{"tenant", "create", "x"},
			[]string{"doesn't serve tenants.berth.dev"}},
		{"no rights to list", h.kubeconfig(t, h.server.URL, "jane"), []string{"tenant", "get"},
			[]string{`User "jane" cannot list resource "tenants"`, "by a ClusterRole with tenants.berth.dev and the verb list"}},
		{"no rights to create", h.kubeconfig(t, h.server.URL, "jane"), []string{"space", "create", "x"},
			[]string{`User "jane" cannot create resource "spaces"`, "by a ClusterRole with spaces.berth.dev and the verb create"}},
		{"no rights to delete", h.kubeconfig(t, h.server.URL, "jane"), []string{"space", "delete", "solar"},
			[]string{`cannot get resource "spaces"`}},
		{"no rights in a space's place", h.kubeconfig(t, h.server.URL, "jane"), []string{"space", "connect", "solar"},
			[]string{`cannot list resource "secrets"`, "--secret-namespace", "by a ClusterRole with secrets and the verb list"}},
		{"nobody listens", h.kubeconfig(t, "https://127.0.0.1:1", "admin"), []string{"tenant", "tree"},
			[]string{"connection refused", "start the host cluster, or choose another one with --kubeconfig or --context"}},
		{"no host", []byte("apiVersion: v1\nkind: Config\n"), []string{"tenant", "tree"},
			[]string{"no host cluster is set: use --kubeconfig or $KUBECONFIG, or start one on this machine with 'berth up'"}},
	} {
		t.Setenv("KUBECONFIG", write(t, "kubeconfig", tc.config))
		t.Setenv("KUBERNETES_SERVICE_HOST", "")
		out, _, err := berth(t, tc.args...)
		if err == nil || out != "" {
			t.Errorf("%s: got %v and %q", tc.reason, err, out)
			continue
		}
		for _, part := range tc.says {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%s: got %v, want %q", tc.reason, err, part)
			}
		}
	}
	// What a dry run of the client prints needs no host.
	if out := must(t, "tenant", "create", "x", "--dry-run=client"); out != "tenant.berth.dev/x created (dry run)\n" {
		t.Errorf("printed %q", out)
	}
	// The rights are those of the user, also of one that the admin impersonates.
	t.Setenv("KUBECONFIG", admin)
	if _, _, err := berth(t, "tenant", "get", "--as", "jane", "--as-group", "devs"); err == nil || !strings.Contains(err.Error(), `User "jane" cannot list`) {
		t.Errorf("got %v", err)
	}
}

// Names are completed by the host's API, and those of this machine if the host doesn't answer.
func TestNamesAreCompletedByTheHost(t *testing.T) {
	h := use(t)
	h.make(t, newTenant("acme", ""))
	h.make(t, newTenant("zeta", ""))
	h.make(t, newSpace("solar", "acme"))
	complete := func(want string, args ...string) {
		t.Helper()
		out := must(t, append([]string{"__complete"}, args...)...)
		lines := strings.Split(strings.TrimSpace(out), "\n")
		if got := strings.Join(lines[:len(lines)-1], " "); got != want {
			t.Errorf("%q: completed %q, want %q", args, got, want)
		}
	}
	complete("acme zeta", "tenant", "get", "")
	complete("zeta", "tenant", "delete", "acme", "")
	complete("acme zeta", "tenant", "create", "x", "--parent", "")
	complete("", "tenant", "tree", "acme", "")
	complete("solar", "space", "describe", "")
	complete("devs alice", "space", "connect", "solar", "--as-owner", "")
	complete("acme zeta", "space", "get", "--tenant", "")
	complete("table wide name json yaml jsonpath=", "space", "get", "-o", "")
	complete("solar", "sleep", "")
	if out := must(t, "__complete", "space", "connect", "solar", "--secret-namespace", ""); !strings.Contains(out, "kube-system\n") {
		t.Errorf("completed %q", out)
	}
	t.Setenv("KUBECONFIG", write(t, "kubeconfig", h.kubeconfig(t, "https://127.0.0.1:1", "admin")))
	t.Setenv("BERTH_DATA_DIR", dataDir(t))
	complete("demo team-a", "space", "sleep", "")
	complete("", "tenant", "get", "")
}

// A plugin of kubectl has the name by which it is called.
func TestHelpHasTheNameOfThePlugin(t *testing.T) {
	for called, want := range map[string][2]string{
		"/usr/local/bin/berth":         {"berth", "kubectl berth"},
		"/usr/local/bin/kubectl-berth": {"kubectl berth", "  berth tenant"},
	} {
		for _, args := range [][]string{{"tenant", "create", "--help"}, {"space", "connect", "--help"}, {"--help"}, {"sleep", "--help"}} {
			var out strings.Builder
			root := newRoot(called)
			root.SetArgs(args)
			root.SetOut(&out)
			if err := root.Execute(); err != nil {
				t.Fatal(err)
			}
			if args[0] == "--help" && want[0] == "berth" {
				continue // it names the plugin
			}
			if !strings.Contains(out.String(), want[0]+" ") || strings.Contains(out.String(), want[1]) || strings.Contains(out.String(), "kubectl kubectl") {
				t.Errorf("%s %q:\n%s", called, args, out.String())
			}
		}
	}
}
