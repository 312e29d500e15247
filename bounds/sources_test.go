// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package bounds_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// holders are the trees whose packages hold what tenants send and store.
var holders = []string{"dns", "gateway", "internal/podconn", "internal/podstream", "kine", "shard", "snapshot", "streams", "syncer", "translate", "vcluster"}

// largestBuffer is how many elements a channel may hold without a word.
const largestBuffer = 1024

// bounded says what bounds those that the test can't see the bound of, by file and what is found there.
var bounded = map[string]string{
	"dns/tenant.go: lru.New(s.limits.Cached)":                    "a setting of the admin's",
	"syncer/hostcache/host.go: sync.Map stale":                   "objects of disabled resources, which the host's quota counts; filled once, and only emptied afterwards",
	"syncer/hostcache/host.go: sync.Map short":                   "one entry per space",
	"syncer/services/accounts.go: sync.Map running":              "one entry per space",
	"internal/podstream/call.go: package variable channelOf":     "written at compile time only",
	"shard/credentials/verifier.go: lru.New(remembered)":         "from leastSpaces to mostSpaces, which are constants",
	"kine/engine.go: make(chan, dbms.MaxReaders)":                "a constant of another package",
	"kine/mysql/mysql.go: package variable faults":               "written at compile time only",
	"vcluster/plugins/admission.go: package variable startsWith": "written at compile time only",
}

// L3: a queue, cache or map of a whole process that a tenant can make grow has a bound. What has none in sight is named
// above, with what bounds it.
func TestNewQueuesAndCachesHaveABound(t *testing.T) {
	found := map[string]bool{}
	for _, tree := range holders {
		err := filepath.WalkDir(filepath.Join("..", tree), func(dir string, entry fs.DirEntry, err error) error {
			if err != nil || !entry.IsDir() || entry.Name() == "testdata" {
				return err
			}
			return unboundedIn(dir, found)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, what := range slices.Sorted(maps.Keys(found)) {
		if bounded[what] == "" {
			t.Errorf("%s: give it a bound, best a row of bounds.Table, or say in this test what bounds it", what)
		}
	}
	for what := range bounded {
		if !found[what] {
			t.Errorf("%s is there no more: remove it from this test", what)
		}
	}
}

// unboundedIn adds what has no bound in sight in the package in a directory.
func unboundedIn(dir string, found map[string]bool) error {
	files := token.NewFileSet()
	paths, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return err
	}
	var parsed []*ast.File
	constants := map[string]ast.Expr{}
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return fmt.Errorf("parse: %w", err)
		}
		parsed = append(parsed, file)
		ast.Inspect(file, func(n ast.Node) bool {
			if d, ok := n.(*ast.GenDecl); ok && d.Tok == token.CONST {
				for _, spec := range d.Specs {
					for i, name := range spec.(*ast.ValueSpec).Names {
						if values := spec.(*ast.ValueSpec).Values; i < len(values) {
							constants[name.Name] = values[i]
						}
					}
				}
			}
			return true
		})
	}
	for _, file := range parsed {
		name, err := filepath.Rel("..", files.Position(file.Pos()).Filename)
		if err != nil {
			return err
		}
		note := func(format string, args ...any) { found[name+": "+fmt.Sprintf(format, args...)] = true }
		for _, d := range file.Decls {
			if vars, ok := d.(*ast.GenDecl); ok && vars.Tok == token.VAR {
				packageMaps(vars, note)
			}
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.CallExpr:
				boundedCall(n, constants, note)
			case *ast.Field:
				if text(n.Type) == "sync.Map" && len(n.Names) > 0 {
					note("sync.Map %s", n.Names[0].Name)
				}
			}
			return true
		})
	}
	return nil
}

// packageMaps notes package-level variables that are maps.
func packageMaps(vars *ast.GenDecl, note func(string, ...any)) {
	for _, spec := range vars.Specs {
		v := spec.(*ast.ValueSpec)
		isMap := text(v.Type) == "sync.Map"
		_, declared := v.Type.(*ast.MapType)
		for _, value := range v.Values {
			switch value := value.(type) {
			case *ast.CompositeLit:
				_, literal := value.Type.(*ast.MapType)
				isMap = isMap || literal
			case *ast.CallExpr:
				if len(value.Args) > 0 && text(value.Fun) == "make" {
					_, made := value.Args[0].(*ast.MapType)
					isMap = isMap || made
				}
			}
		}
		if isMap || declared {
			note("package variable %s", v.Names[0].Name)
		}
	}
}

// boundedCall notes channels and caches that are made without a constant size.
func boundedCall(call *ast.CallExpr, constants map[string]ast.Expr, note func(string, ...any)) {
	switch fun := text(call.Fun); {
	case fun == "make" && len(call.Args) == 2:
		if _, ok := call.Args[0].(*ast.ChanType); !ok {
			return
		}
		if n, ok := constant(call.Args[1], constants); !ok || n > largestBuffer {
			note("make(chan, %s)", text(call.Args[1]))
		}
	case fun == "lru.New":
		if n, ok := constant(call.Args[0], constants); !ok || n == 0 { // 0 is no limit
			note("lru.New(%s)", text(call.Args[0]))
		}
	case strings.HasPrefix(fun, "cache.NewExpiring"), strings.HasPrefix(fun, "cache.NewTTL"), fun == "buffer.NewRingGrowing":
		note("%s", fun)
	}
}

// constant is the value of an expression of numbers and of the package's constants, if it is one.
func constant(e ast.Expr, constants map[string]ast.Expr) (int64, bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		n, err := strconv.ParseInt(strings.ReplaceAll(e.Value, "_", ""), 0, 64)
		return n, err == nil
	case *ast.Ident:
		value, ok := constants[e.Name]
		if !ok {
			return 0, false
		}
		return constant(value, constants)
	case *ast.ParenExpr:
		return constant(e.X, constants)
	case *ast.BinaryExpr:
		x, isX := constant(e.X, constants)
		y, isY := constant(e.Y, constants)
		switch e.Op {
		case token.ADD:
			x += y
		case token.SUB:
			x -= y
		case token.MUL:
			x *= y
		case token.SHL:
			x <<= y
		default:
			return 0, false
		}
		return x, isX && isY
	default:
		return 0, false
	}
}

// text is an expression of names and dots as it is written; "" for others.
func text(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.BasicLit:
		return e.Value
	case *ast.SelectorExpr:
		return text(e.X) + "." + e.Sel.Name
	case *ast.IndexExpr:
		return text(e.X)
	default:
		return ""
	}
}
