// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package main puts a load on spaces that run, and prints what became of the requests: `make load` runs it. Package bench/internal/load
// makes the requests.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/berth-dev/berth/bench/internal/load"
)

const help = `Put a load on spaces until you interrupt it, and print a table with a line for each
space. Each client writes to a ConfigMap of its own in the namespace "default" of a
space and reads what it wrote, one request after the other. At the end, the ConfigMaps
are deleted.

The spaces are those of the kubeconfigs that you name with -kubeconfig, or of a data
directory (-data-dir). Otherwise, they are all spaces of the host cluster whose
kubeconfigs you can read: Berth writes them to Secrets (in the chart:
kubeconfigSecrets). If the address in these is one of the host's Services, the
Service must have a node port, or -address must say where to connect to.

  requests   requests that were answered or failed. The clients repeat none.
  failed     requests that got an error, or an answer that lacks an acknowledged write
  held       requests that took longer than -held
  p50, p99   what that part of the requests took at most
  longest    what the slowest request took

The exit code is 1 if a request failed.

  make load                                        # all spaces of the current context
  make load ARGS="-kubeconfig team-a.kubeconfig -duration 30s"
  make load ARGS="-data-dir berth-data -clients 4 -pause 20ms"

Flags:
`

// config are the command's flags.
type config struct {
	kubeconfigs paths
	dataDir     string
	host        string
	address     string
	spaces      string
	duration    time.Duration
	every       time.Duration
	options     load.Options
}

// paths is a flag that may be repeated.
type paths []string

func (p *paths) String() string { return strings.Join(*p, ",") }

// Set implements [flag.Value].
func (p *paths) Set(value string) error {
	*p = append(*p, strings.Split(value, ",")...)
	return nil
}

func (c *config) flags() *flag.FlagSet {
	f := flag.NewFlagSet("load", flag.ExitOnError)
	f.Usage = func() {
		fmt.Fprint(f.Output(), help)
		f.PrintDefaults()
	}
	f.Var(&c.kubeconfigs, "kubeconfig", "kubeconfig `FILE` of a space; may be repeated")
	f.StringVar(&c.dataDir, "data-dir", "", "data directory `DIR` of a platform on this machine, whose spaces to use")
	f.StringVar(&c.host, "host-kubeconfig", "", "kubeconfig `FILE` of the host cluster (default: that of kubectl)")
	f.StringVar(&c.address, "address", "", "connect to `HOST:PORT` instead of the address in the kubeconfigs, whose name is still verified")
	f.StringVar(&c.spaces, "space", "", "use these `SPACES` only, with commas between")
	f.DurationVar(&c.duration, "duration", 0, "how long to go on; until it is interrupted if 0")
	f.DurationVar(&c.every, "every", 0, "also print a line of all spaces each time this has passed; 0 means not")
	f.IntVar(&c.options.Clients, "clients", 1, "how many clients each space has")
	f.DurationVar(&c.options.Pause, "pause", 100*time.Millisecond, "pause between two requests of a client")
	f.DurationVar(&c.options.Held, "held", 250*time.Millisecond, "from what time a request counts as held")
	f.DurationVar(&c.options.Timeout, "timeout", time.Minute, "how long a request may take until it fails")
	return f
}

// errFailed makes the exit code 1. The table says the rest.
var errFailed = errors.New("requests failed")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	var c config
	if err := c.flags().Parse(os.Args[1:]); err != nil {
		os.Exit(2)
	}
	if err := run(ctx, &c); err != nil {
		stop()
		fmt.Fprintln(os.Stderr, "load:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, c *config) error {
	if c.options.Clients < 1 || c.options.Pause < 0 || c.options.Timeout <= 0 {
		return errors.New("-clients must be at least 1, -pause at least 0, and -timeout more than 0")
	}
	targets, err := c.targets(ctx)
	if err != nil {
		return err
	}
	if c.duration > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.duration)
		defer cancel()
	}
	running, err := load.Start(ctx, targets, c.options)
	if err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "%d clients use %d spaces. Interrupt to end it.\n", len(targets)*c.options.Clients, len(targets))
	all := table{}
	began := time.Now()
	for ctx.Err() == nil {
		all.wait(ctx, c.every, running, began)
	}
	stopped := running.Stop()
	all.add(running.Take())
	return errors.Join(all.write(os.Stdout), all.failed(), stopped)
}
