// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/shard"
	"github.com/berth-dev/berth/snapshot"
	"github.com/berth-dev/berth/tenancy"
	"github.com/berth-dev/berth/translate"
	"github.com/berth-dev/berth/vcluster"
	"github.com/berth-dev/berth/vcluster/pki"
)

func (u *up) startShard(ctx context.Context) error {
	host, err := client.New(u.host.Config(), client.Options{Scheme: scheme.Scheme})
	if err != nil {
		return fmt.Errorf("make host client: %w", err)
	}
	u.prepare = func(ctx context.Context, space string) error {
		if err := u.buildWalls(ctx, host, space); err != nil {
			return err
		}
		return u.writeKubeconfig(space)
	}
	if err := u.newProcesses(); err != nil {
		return err
	}
	u.shard, err = shard.Start(ctx, shard.Config{
		Dir: filepath.Join(u.options.dataDir, "spaces"), Host: u.host.Config(),
		Endpoint: u.endpoint, ServingCA: u.ca.PEM,
		Prepare:   u.prepare,
		IdleAfter: u.options.idleAfter, SpacesMax: u.options.spacesMax, Woken: u.metrics.Woken, Traces: u.traces, Logger: u.logger,
	})
	if err != nil {
		return err
	}
	u.onStop(func(ctx context.Context) {
		if err := u.shard.Stop(ctx); err != nil {
			u.logger.Error(err, "stop shard")
		}
	})
	serveSpaces(u.commands, u)
	return nil
}

func (u *up) buildWalls(ctx context.Context, host client.Client, name string) error {
	store, err := pki.Secret(u.spaceDir(name), "store.id")
	if err != nil {
		return fmt.Errorf("identify the store of space %s: %w", name, err)
	}
	space := translate.Space{Name: name, Store: hex.EncodeToString(store[:8])}
	if err := tenancy.Build(ctx, host, space, nil); err != nil {
		return err
	}
	if slices.Contains(u.options.spaces, name) {
		u.say("Walls of space %s stand: namespace %s with quota, limits, network policy, pod security", name, space.HostNamespace())
	}
	return nil
}

// startSpaces starts the spaces that were asked for. Those of earlier runs get
// their places, asleep, and are woken once in the background: whatever was due
// in them, or happened to their host objects, while no berth ran is taken up.
func (u *up) startSpaces(ctx context.Context) error {
	earlier, err := u.earlierSpaces()
	if err != nil {
		return err
	}
	for _, name := range append(slices.Clone(u.options.spaces), earlier...) {
		if err := u.shard.Add(name); err != nil {
			return err
		}
	}
	errs := make([]error, len(u.options.spaces))
	var wg sync.WaitGroup
	for i, name := range u.options.spaces {
		wg.Go(func() { errs[i] = u.startSpace(ctx, name) })
	}
	wg.Wait()
	if len(errs) > 0 && !slices.Contains(errs, nil) {
		return errs[0]
	}
	for i, name := range u.options.spaces {
		if errs[i] != nil {
			u.say("Space %s does not start, and is tried again; the others serve: %v", name, errs[i])
		}
	}
	for _, name := range earlier {
		if err := u.writeKubeconfig(name); err != nil {
			u.logger.Error(err, "write kubeconfig", "space", name)
		}
		u.shard.Visit(name)
	}
	return nil
}

// earlierSpaces lists the spaces of the data directory that were not asked for.
func (u *up) earlierSpaces() (names []string, err error) {
	entries, err := os.ReadDir(filepath.Join(u.options.dataDir, "spaces"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("list spaces: %w", err)
	}
	for _, e := range entries {
		if e.IsDir() && !slices.Contains(slices.Concat(u.options.spaces, u.options.dedicated), e.Name()) && tenancy.CheckSpaceName(e.Name()) == nil &&
			snapshot.Exists(u.spaceDir(e.Name())) { // else it is one whose making was cut off
			names = append(names, e.Name())
		}
	}
	return names, nil
}

func (u *up) startSpace(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if err := u.shard.Wake(ctx, name); err != nil {
		return err
	}
	u.say("Space %s is ready", name)
	return nil
}

// writeKubeconfig sees to it that a space's kubeconfig is there, is good and
// leads here. The space need not run.
func (u *up) writeKubeconfig(name string) error {
	if pki.Exists(filepath.Join(u.spaceDir(name), "pki")) {
		if _, err := renewKubeconfig(u.options.dataDir, name, u.endpoint(name), u.ca); err == nil {
			return nil
		}
	}
	config, err := vcluster.ClientKubeconfig(vcluster.Config{
		Name: name, Dir: u.spaceDir(name), Endpoint: u.endpoint(name), ServingCA: u.ca.PEM(),
	}, "admin", []string{"system:masters"})
	if err != nil {
		return fmt.Errorf("make kubeconfig of space %s: %w", name, err)
	}
	if err := pki.WriteFile(kubeconfigPath(u.options.dataDir, name), config); err != nil {
		return fmt.Errorf("write kubeconfig of space %s: %w", name, err)
	}
	return nil
}

func (u *up) spaceDir(name string) string { return filepath.Join(u.options.dataDir, "spaces", name) }
