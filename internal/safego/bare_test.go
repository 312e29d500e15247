// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package safego_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
)

// handling are the packages, with those below, that handle tenants' bytes.
func handling() []string {
	return []string{"dns", "gateway", "internal/podconn", "internal/podstream", "kine", "shard", "streams", "syncer", "vcluster"}
}

// reviewed are the goroutines of these packages that are not started by safego, by file and function, and why a panic in them
// ends no process, or comes of nothing that a tenant has written.
func reviewed() map[string]string {
	return map[string]string{
		"gateway/server.go serve":                                    "net/http serves: it recovers in each request",
		"shard/dedicated/process.go Start":                           "it runs a process, and reads no byte of a tenant's",
		"shard/dedicated/process.go runChild":                        "it closes a pipe",
		"shard/keeper.go dueIdle":                                    "it asks a space by guarded calls",
		"vcluster/admission/turns.go take":                           "it gives back a turn, which touches nothing of a request",
		"shard/suspects.go dueTrial":                                 "it writes a file that holds names alone",
		"vcluster/controllers/views/service_targets.go BoundTargets": "it sets a number",
		"vcluster/requests/slow_readers.go arm":                      "what it calls is guarded",
		"shard/shard.go Start":                                       "it counts and compares times",
		"shard/shard.go Stop":                                        "it waits",
		"shard/sleep.go sleepIdlest":                                 "it asks spaces by guarded calls",
		"shard/space.go supervise":                                   "what it calls is guarded",
		"shard/wake.go begin":                                        "what it calls is guarded",
		"shard/wake.go run":                                          "what it calls is guarded",
		"streams/slots.go held":                                      "it closes a connection",
		"syncer/engine/holds.go Hold":                                "it starts a timer, by safego",
		"vcluster/bootstrap/bootstrap.go ensureBootstrap":            "what it calls is guarded",
		"vcluster/gate/gate.go Close":                                "it cancels a context",
		"vcluster/gate/gate.go Serve":                                "it sets deadlines",
		"vcluster/storage/listcache.go begin":                        "it starts a goroutine, by safego",
		"vcluster/loopback/loopback.go RoundTrip":                    "the response's end recovers, and becomes the client's error",
		"vcluster/plugins/webhook_shared.go NewSharedConversions":    "it closes idle connections, by names of definitions of the host",
		"vcluster/run.go runServer":                                  "what it calls is guarded",
		"vcluster/controllers/supervise.go run":                      "what it calls is guarded",
		"kine/expiry.go arm":                                         "what it calls is guarded",
		"kine/engine.go start":                                       "it closes watches",
		"kine/hub/watch.go Add":                                      "it closes a watch",
	}
}

// S18: nothing that handles a tenant's bytes runs in a goroutine that does not recover.
func TestGoroutinesAreStartedBySafego(t *testing.T) {
	const root = "../.."
	seen := map[string]bool{}
	for _, dir := range handling() {
		err := filepath.WalkDir(filepath.Join(root, dir), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			name, err := filepath.Rel(root, path)
			if err != nil {
				return err
			}
			for _, found := range bare(t, path) {
				key := filepath.ToSlash(name) + " " + found.function
				if seen[key] = true; reviewed()[key] == "" {
					t.Errorf("%s:%d: %s in %s: a panic would end the process; use internal/safego", name, found.line, found.what, found.function)
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for key := range reviewed() {
		if !seen[key] {
			t.Errorf("%s starts no goroutine any more: take it from the list", key)
		}
	}
}

type started struct {
	function, what string
	line           int
}

// bare lists what a file starts otherwise than by safego.
func bare(t *testing.T, path string) (all []started) {
	t.Helper()
	inspect(t, path, func(function string, n ast.Node, line int) {
		if what := starts(n); what != "" {
			all = append(all, started{function, what, line})
		}
	})
	return all
}

// inspect calls see with each node of a file's functions.
func inspect(t *testing.T, path string, see func(function string, n ast.Node, line int)) {
	t.Helper()
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	for _, declared := range file.Decls {
		function, ok := declared.(*ast.FuncDecl)
		if !ok {
			continue
		}
		ast.Inspect(function, func(n ast.Node) bool {
			if n != nil {
				see(function.Name.Name, n, files.Position(n.Pos()).Line)
			}
			return true
		})
	}
}

// starts says how a node starts a goroutine that may panic, if it does.
func starts(n ast.Node) string {
	switch n := n.(type) {
	case *ast.GoStmt:
		if of, _ := called(n.Call); of != "safego" {
			return "go"
		}
	case *ast.CallExpr:
		of, method := called(n)
		switch {
		case of == "safego":
		case method == "Go": // of a sync.WaitGroup, or an errgroup.Group
			return method
		case method == "AfterFunc": // of time, of context, or of a clock
			if _, cancels := n.Args[1].(*ast.Ident); !cancels { // a name is that of a context's cancel
				return of + ".AfterFunc"
			}
		}
	}
	return ""
}

// called is the package, or the value, and the function that a call calls.
func called(call *ast.CallExpr) (of, function string) {
	selector, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return "", ""
	}
	return types.ExprString(selector.X), selector.Sel.Name
}
