// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Command runcfront stands before runc where the machine's root lacks capabilities, as in a small virtual machine or a
// container: a privileged container asks for all of them, and runc fails to give what it does not have. It leaves out of
// what is asked for the capabilities outside of its own bounding set, and raises a score for the out-of-memory killer
// that is below its own, which needs one of them. Where root has all capabilities it changes nothing.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/moby/sys/capability"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "runcfront:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if err := prepare(args); err != nil {
		return err
	}
	runc, err := exec.LookPath("runc")
	if err != nil {
		return fmt.Errorf("find runc: %w", err)
	}
	return syscall.Exec(runc, append([]string{runc}, args...), os.Environ())
}

// prepare edits the file that says what runc is to start, if args make it start something.
func prepare(args []string) error {
	switch {
	case slices.Contains(args, "create") || slices.Contains(args, "run"):
		bundle := option(args, "--bundle", "-b")
		return edit(filepath.Join(bundle, "config.json"), func(spec map[string]any) map[string]any {
			process, _ := spec["process"].(map[string]any)
			return process
		})
	case slices.Contains(args, "exec"):
		if file := option(args, "--process", "-p"); file != "" {
			return edit(file, func(process map[string]any) map[string]any { return process })
		}
	}
	return nil
}

// option returns the value of an option of runc's, "" if it is not there.
func option(args []string, names ...string) string {
	for i, arg := range args {
		name, value, joined := strings.Cut(arg, "=")
		switch {
		case !slices.Contains(names, name):
		case joined:
			return value
		case i+1 < len(args):
			return args[i+1]
		}
	}
	return ""
}

// edit limits the process that a file of JSON describes. The rest is kept as it is, whatever the runtime's version.
func edit(file string, process func(map[string]any) map[string]any) error {
	content, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("read what to start: %w", err)
	}
	var spec map[string]any
	if err := json.Unmarshal(content, &spec); err != nil {
		return fmt.Errorf("read what to start: %w", err)
	}
	own, err := bounds()
	if err != nil {
		return err
	}
	if p := process(spec); p == nil || !own.limit(p) {
		return nil
	}
	if content, err = json.Marshal(spec); err != nil {
		return fmt.Errorf("write what to start: %w", err)
	}
	return os.WriteFile(file, content, 0o600)
}

// limits is what this process itself has.
type limits struct {
	capabilities []string
	oomScoreAdj  float64
}

func bounds() (*limits, error) {
	own, err := capability.NewPid2(0)
	if err == nil {
		err = own.Load()
	}
	if err != nil {
		return nil, fmt.Errorf("read own capabilities: %w", err)
	}
	known, err := capability.ListSupported()
	if err != nil {
		return nil, fmt.Errorf("list capabilities: %w", err)
	}
	var l limits
	for _, c := range known {
		if own.Get(capability.BOUNDING, c) {
			l.capabilities = append(l.capabilities, "CAP_"+strings.ToUpper(c.String()))
		}
	}
	score, err := os.ReadFile("/proc/self/oom_score_adj")
	if err != nil {
		return nil, fmt.Errorf("read own score: %w", err)
	}
	l.oomScoreAdj, err = strconv.ParseFloat(strings.TrimSpace(string(score)), 64)
	return &l, err
}

// limit takes from the process what goes beyond, and says whether anything did.
func (l *limits) limit(process map[string]any) bool {
	changed := false
	sets, _ := process["capabilities"].(map[string]any)
	for name, set := range sets {
		asked, _ := set.([]any)
		given := slices.DeleteFunc(slices.Clone(asked), func(c any) bool {
			s, _ := c.(string)
			return !slices.Contains(l.capabilities, s)
		})
		if len(given) != len(asked) {
			sets[name], changed = given, true
		}
	}
	if score, ok := process["oomScoreAdj"].(float64); ok && score < l.oomScoreAdj {
		process["oomScoreAdj"], changed = l.oomScoreAdj, true
	}
	return changed
}
