// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package safego_test

import (
	"go/ast"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// upstreamReviewed are the goroutines of upstream's controllers that do not recover, by package and function, and why a panic in
// them comes of nothing that a tenant has written.
func upstreamReviewed() map[string]string {
	const controllers = "k8s.io/kubernetes/pkg/controller/"
	return map[string]string{
		controllers + "daemon syncNodes":                    "it makes pods of a template, which was validated, and deletes pods by name",
		controllers + "garbagecollector orphanDependents":   "it takes an owner, which it has a UID of, from objects by name",
		controllers + "job deleteActivePods":                "it deletes pods by name",
		controllers + "job deleteJobPods":                   "it takes the controller's finalizer from pods, and deletes them, by name",
		controllers + "job manageJob":                       "it makes pods of a template, which was validated; failures that it can't read in annotations count as none",
		controllers + "job removeTrackingFinalizerFromPods": "it takes the controller's finalizer from pods by name",
		controllers + "podgc gcTerminated":                  "Berth does not run this controller",
		controllers + "podgc gcTerminating":                 "Berth does not run this controller",
		controllers + "replicaset manageReplicas":           "it deletes pods by name",
		controllers + "replicaset slowStartBatch":           "it makes pods of a template, which was validated",
		controllers + "statefulset slowStartBatch":          "it applies revisions, of which the isolation plug-in rejects those that take fields away (admission.checkRevision)",
	}
}

// S18: a panic in a goroutine of upstream's controllers that does not recover ends the process that all spaces share. A new
// version of Kubernetes may have more of them.
func TestGoroutinesOfUpstreamsControllersAreReviewed(t *testing.T) {
	listed, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", "{{.ImportPath}} {{.Dir}}", "../../vcluster").Output()
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	packages := 0
	for line := range strings.Lines(string(listed)) {
		name, dir, _ := strings.Cut(strings.TrimSpace(line), " ")
		if !strings.HasPrefix(name, "k8s.io/kubernetes/pkg/controller") && !strings.HasPrefix(name, "k8s.io/endpointslice") {
			continue
		}
		packages++
		files, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range files {
			if strings.HasSuffix(path, "_test.go") {
				continue
			}
			for _, function := range unguarded(t, path) {
				key := name + " " + function
				if seen[key] = true; upstreamReviewed()[key] == "" {
					t.Errorf("%s (%s): a panic would end the process: what can a tenant write that makes it panic, and what refuses that?", key, filepath.Base(path))
				}
			}
		}
	}
	if packages < 50 {
		t.Errorf("only %d packages of upstream's controllers were found", packages)
	}
	for key := range upstreamReviewed() {
		if !seen[key] {
			t.Errorf("%s starts no such goroutine any more: take it from the list", key)
		}
	}
}

// unguarded lists the functions of a file that start a goroutine which does not begin with HandleCrash.
func unguarded(t *testing.T, path string) (functions []string) {
	t.Helper()
	inspect(t, path, func(function string, n ast.Node, _ int) {
		if start, ok := n.(*ast.GoStmt); ok && !recovers(start.Call) {
			functions = append(functions, function)
		}
	})
	return functions
}

// recovers reports whether a call is of a function that handles its panics, or does nothing but call one of k8s.io/apimachinery's wait.
func recovers(call *ast.CallExpr) bool {
	if of, _ := called(call); of == "wait" {
		return true
	}
	literal, ok := call.Fun.(*ast.FuncLit)
	if !ok {
		return false
	}
	for _, statement := range literal.Body.List {
		if deferred, ok := statement.(*ast.DeferStmt); ok {
			if _, function := called(deferred.Call); strings.HasPrefix(function, "HandleCrash") {
				return true
			}
		}
	}
	return false
}
