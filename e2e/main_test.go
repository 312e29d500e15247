// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/berth-dev/berth/internal/testservers"
)

func TestMain(m *testing.M) {
	if testservers.Serve() {
		return
	}
	flag.Parse()
	isSet := false
	flag.Visit(func(f *flag.Flag) { isSet = isSet || f.Name == "test.parallel" })
	if !isSet {
		_ = flag.Set("test.parallel", strconv.Itoa(runtime.GOMAXPROCS(0)*3/2)) // tests wait for other processes for half of their time
	}
	code := m.Run()
	testservers.Stop()
	if err := suite().close(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	os.Exit(code)
}

// run is what all tests of one run share.
type run struct {
	dir string
	// build makes the commands, and returns the error of that.
	build func() error

	mu     sync.Mutex
	shared *berth

	// loading is held while a load runs, so that requests are slow because of what the test does.
	loading sync.Mutex
}

var suite = sync.OnceValue(func() *run {
	dir, err := os.MkdirTemp("", "berth-e2e-")
	if err != nil {
		panic(err)
	}
	r := &run{dir: dir}
	r.build = sync.OnceValue(r.buildCommands)
	return r
})

// command is the path of a command that was built: berth or kubectl.
func (r *run) command(name string) string { return filepath.Join(r.dir, "bin", name) }

// noteSources reads the directories of all sources. So `go test`, which doesn't see what the commands are built from, knows that the results
// depend on them. Otherwise, it would print an earlier result after a change of anything but the tests.
func noteSources() error {
	return filepath.WalkDir("..", func(_ string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() && (entry.Name() == ".git" || entry.Name() == "bin") {
			return fs.SkipDir
		}
		return err
	})
}

func (r *run) buildCommands() error {
	if err := noteSources(); err != nil {
		return fmt.Errorf("read the sources: %w", err)
	}
	const kubernetes = "k8s.io/kubernetes"
	version, err := exec.Command("go", "list", "-m", "-f", "{{.Version}}", kubernetes).Output()
	if err != nil {
		return fmt.Errorf("find the version of %s: %w", kubernetes, err)
	}
	// Without a version that it can parse, `kubectl version` fails.
	stamp := "-X k8s.io/component-base/version.gitVersion=" + strings.TrimSpace(string(version))
	for _, args := range [][]string{
		{"-o", r.command("berth"), "github.com/berth-dev/berth/cmd/berth"},
		{"-ldflags", stamp, "-o", r.command("kubectl"), kubernetes + "/cmd/kubectl"},
	} {
		if out, err := exec.Command("go", append([]string{"build"}, args...)...).CombinedOutput(); err != nil {
			return fmt.Errorf("build %s: %w\n%s", args[len(args)-1], err, out)
		}
	}
	return nil
}

// sharedBerth is a berth with a space demo, for tests that keep to namespaces
// of their own and use little of its quota.
func sharedBerth(t *testing.T) *berth {
	t.Helper()
	r := suite()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.shared == nil {
		b := newBerth(filepath.Join(r.dir, "shared"))
		b.up(t)
		r.shared = b
	}
	r.shared.logIfFailed(t)
	return r.shared
}

func (r *run) close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.shared != nil {
		r.shared.end()
	}
	return os.RemoveAll(r.dir)
}
