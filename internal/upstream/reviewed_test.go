// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"bufio"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// reviewedFile has a line for each thing: its kind, its name, and of a controller where it runs: in a space, on an embedded host,
// or why nowhere.
const reviewedFile = "reviewed.txt"

// What upstream has that Berth starts, serves, or passes on was looked at: may a tenant make it grow, end the process, or learn of
// others by it?
func TestWhatUpstreamHasWasReviewed(t *testing.T) {
	reviewed := readReviewed(t)
	found := map[string]bool{}
	kubernetes := module(t, "k8s.io/kubernetes")
	controllers := constants(t, filepath.Join(kubernetes, "cmd/kube-controller-manager/names"))
	for _, name := range controllers {
		found["controller "+name] = true
	}
	for _, dir := range []string{
		filepath.Join(kubernetes, "pkg/controlplane"), filepath.Join(kubernetes, "cmd/kube-apiserver"),
		filepath.Join(module(t, "k8s.io/apiserver"), "pkg/server"), filepath.Join(module(t, "k8s.io/kube-aggregator"), "pkg"),
		filepath.Join(module(t, "k8s.io/apiextensions-apiserver"), "pkg"),
	} {
		for name := range hooks(t, dir) {
			found["hook "+name] = true
		}
	}
	for name := range storages(t, filepath.Join(kubernetes, "pkg/registry")) {
		found["storage "+name] = true
	}
	for name, text := range constants(t, filepath.Join(kubernetes, "pkg/scheduler/framework/plugins")) {
		if strings.HasPrefix(name, "ErrReason") {
			found["scheduler "+text] = true
		}
	}
	for _, text := range constants(t, filepath.Join(kubernetes, "pkg/kubelet/events")) {
		found["kubelet "+text] = true
	}
	registry := filepath.Join(module(t, "k8s.io/apiserver"), "pkg/registry")
	for _, dir := range []string{filepath.Join(registry, "rest"), filepath.Join(registry, "generic/registry")} {
		for name := range assertions(t, dir) {
			found["assertion "+name] = true
		}
	}
	for kind, least := range map[string]int{"controller": 45, "hook": 25, "storage": 130, "scheduler": 10, "kubelet": 40, "assertion": 3} {
		n := 0
		for what := range found {
			if strings.HasPrefix(what, kind+" ") {
				n++
			}
		}
		if n < least {
			t.Errorf("only %d of the kind %s were found: upstream's source is laid out in another way, and this test has to follow it", n, kind)
		}
	}
	for _, what := range slices.Sorted(maps.Keys(found)) {
		if _, ok := reviewed[what]; !ok {
			t.Errorf("%s: it is new. Review it as docs/contributing/upgrade-kubernetes.md says, and add it to %s", what, reviewedFile)
		}
	}
	for _, what := range slices.Sorted(maps.Keys(reviewed)) {
		if !found[what] {
			t.Errorf("%s: it is gone. Remove what Berth does about it, and the line in %s", what, reviewedFile)
		}
	}
	checkWhereControllersRun(t, reviewed, controllers)
}

// checkWhereControllersRun compares the list with the controllers that Berth starts.
func checkWhereControllersRun(t *testing.T, reviewed, controllers map[string]string) {
	t.Helper()
	runs := map[string]string{}
	inspect(t, "../../vcluster/controllers/names.go", func(function string, n ast.Node) {
		selector, ok := n.(*ast.SelectorExpr)
		if !ok {
			return
		}
		name, known := controllers[selector.Sel.Name]
		if where := map[string]string{"ForSpaces": "space", "ForHosts": "host"}[function]; known && where != "" {
			runs[name] = where
		}
	})
	if len(runs) < 30 {
		t.Errorf("only %d controllers were found that Berth starts", len(runs))
	}
	for _, name := range slices.Sorted(maps.Values(controllers)) {
		said := reviewed["controller "+name]
		if where := runs[name]; said != where && (where != "" || !strings.HasPrefix(said, "none: ")) {
			t.Errorf("controller %s: %s says %q, but it runs in %q; say space, host, or none: and why", name, reviewedFile, said, where)
		}
	}
}

func readReviewed(t *testing.T) map[string]string {
	t.Helper()
	file, err := os.Open(reviewedFile)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	reviewed := map[string]string{}
	for lines := bufio.NewScanner(file); lines.Scan(); {
		what, note, _ := strings.Cut(lines.Text(), "\t")
		if what == "" || strings.HasPrefix(what, "#") {
			continue
		}
		if _, twice := reviewed[what]; twice {
			t.Errorf("%s is in %s twice", what, reviewedFile)
		}
		reviewed[what] = note
	}
	return reviewed
}

// module returns the directory of a module's source, of the version in go.mod.
func module(t *testing.T, path string) string {
	t.Helper()
	dir, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", path).Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(dir))
}

// inspect calls f for each node of a file, with the name of the function that it is in.
func inspect(t *testing.T, path string, f func(function string, n ast.Node)) {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, declaration := range parsed.Decls {
		name := ""
		if function, ok := declaration.(*ast.FuncDecl); ok {
			name = function.Name.Name
		}
		ast.Inspect(declaration, func(n ast.Node) bool {
			f(name, n)
			return true
		})
	}
}

// sources are the Go files below a directory, without tests.
func sources(t *testing.T, dir string) (paths []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go") {
			paths = append(paths, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return paths
}

// constants are the texts of all constants and variables below a directory, by name.
func constants(t *testing.T, dir string) map[string]string {
	t.Helper()
	texts := map[string]string{}
	for _, path := range sources(t, dir) {
		inspect(t, path, func(_ string, n ast.Node) {
			spec, ok := n.(*ast.ValueSpec)
			if !ok {
				return
			}
			for i, value := range spec.Values {
				if text, ok := literal(value); ok {
					texts[spec.Names[i].Name] = text
				}
			}
		})
	}
	return texts
}

// literal is the text of a literal.
func literal(e ast.Expr) (string, bool) {
	l, ok := e.(*ast.BasicLit)
	if !ok || l.Kind != token.STRING {
		return "", false
	}
	text, err := strconv.Unquote(l.Value)
	return text, err == nil
}

// hooks are the names of the post-start hooks that are added below a directory.
func hooks(t *testing.T, dir string) map[string]bool {
	t.Helper()
	known, names := constants(t, dir), map[string]bool{}
	for _, path := range sources(t, dir) {
		inspect(t, path, func(function string, n ast.Node) {
			call, ok := n.(*ast.CallExpr)
			if !ok || len(call.Args) != 2 || strings.HasPrefix(function, "AddPostStartHook") {
				return
			}
			selector, ok := call.Fun.(*ast.SelectorExpr)
			if !ok || !strings.HasPrefix(selector.Sel.Name, "AddPostStartHook") {
				return
			}
			name, ok := literal(call.Args[0])
			if !ok {
				identifier := lastIdentifier(call.Args[0])
				if name = known[identifier]; name == "" {
					name = "of " + filepath.Base(filepath.Dir(path)) + "." + function
				}
			}
			names[name] = true
		})
	}
	return names
}

func lastIdentifier(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return e.Sel.Name
	default:
		return ""
	}
}

// assertions are the interfaces that the Go files of a directory ask of strategies: what wraps one has to pass them on.
func assertions(t *testing.T, dir string) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	for _, path := range sources(t, dir) {
		inspect(t, path, func(_ string, n ast.Node) {
			asserted, ok := n.(*ast.TypeAssertExpr)
			if ok && strings.HasSuffix(strings.ToLower(lastIdentifier(asserted.X)), "strategy") {
				names[lastIdentifier(asserted.Type)] = true
			}
		})
	}
	return names
}

// storages are what is stored in the maps of storage of the API groups: GROUP FUNCTION RESOURCE.
func storages(t *testing.T, dir string) map[string]bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*", "rest", "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, path := range files {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		group, resource := filepath.Base(filepath.Dir(filepath.Dir(path))), ""
		inspect(t, path, func(function string, n ast.Node) {
			assigned, ok := n.(*ast.AssignStmt)
			if !ok || len(assigned.Lhs) != 1 || len(assigned.Rhs) != 1 {
				return
			}
			switch to := assigned.Lhs[0].(type) {
			case *ast.Ident:
				if text, ok := literal(assigned.Rhs[0]); ok && to.Name == "resource" {
					resource = text
				}
			case *ast.IndexExpr:
				if of, ok := to.X.(*ast.Ident); ok && strings.HasPrefix(of.Name, "storage") {
					names[group+" "+function+" "+storageKey(to.Index, resource)] = true
				}
			}
		})
	}
	return names
}

// storageKey is the value of a key, where resource is that of the variable of that name.
func storageKey(e ast.Expr, resource string) string {
	switch e := e.(type) {
	case *ast.BinaryExpr:
		return storageKey(e.X, resource) + storageKey(e.Y, resource)
	case *ast.Ident:
		return resource
	default:
		text, _ := literal(e)
		return text
	}
}
