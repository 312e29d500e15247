// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Command kind makes clusters of nodes in containers for the end-to-end tests, also where no image can be pulled: it
// then builds a node's image from Go modules and Debian packages. docs/contributing/kind.md says more.
//
//	kind up   -name berth -kubeconfig FILE [-nodes 2]
//	kind load -name berth FILE...           load images, as docker save writes them, into all nodes
//	kind image FILE NAME PROGRAM [TOOL...]  make such an image of a program, and of tools of this machine's, such as /bin/sh
//	kind logs -name berth DIR               write the logs of nodes and containers to a directory
//	kind down -name berth
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "kind:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return errors.New("say what to do: up, load, image, debian, logs or down")
	}
	c := clusterOptions{}
	flags := flag.NewFlagSet(args[0], flag.ContinueOnError)
	flags.StringVar(&c.name, "name", "berth", "name of the cluster")
	flags.StringVar(&c.kubeconfig, "kubeconfig", "kind.kubeconfig", "file to write the admin's kubeconfig to")
	flags.IntVar(&c.nodes, "nodes", 2, "how many nodes the cluster has")
	if err := flags.Parse(args[1:]); err != nil {
		return err
	}
	if args[0] == "image" {
		if flags.NArg() < 3 {
			return errors.New("image needs a file to write, a name and a program")
		}
		program := flags.Arg(2)
		tools, err := withLibraries(flags.Args()[3:])
		if err != nil {
			return err
		}
		return writeImage(flags.Arg(0), flags.Arg(1), "/"+filepath.Base(program), libraries, program, tools...)
	}
	if args[0] == "debian" {
		if flags.NArg() < 2 {
			return errors.New("debian needs a directory to fill, and packages to fill it with")
		}
		if err := install(ctx, builderPackages); err != nil {
			return err
		}
		return debootstrap(ctx, flags.Arg(0), flags.Args()[1:])
	}
	d, err := newDocker(ctx)
	if err != nil {
		return err
	}
	switch args[0] {
	case "up":
		return d.up(ctx, c)
	case "load":
		return d.load(ctx, c, flags.Args())
	case "logs":
		if flags.NArg() != 1 {
			return errors.New("logs needs a directory to write to")
		}
		return d.provider().CollectLogs(c.name, flags.Arg(0))
	case "down":
		return d.down(ctx, c)
	}
	return fmt.Errorf("there is no command %q: use up, load, image, debian, logs or down", args[0])
}

// stage runs a step and prints how long it took.
func stage(name string, step func() error) error {
	begin := time.Now()
	err := step()
	fmt.Printf("  %-28s %6.1f s\n", name, time.Since(begin).Seconds())
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}
