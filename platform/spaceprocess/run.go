// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package spaceprocess runs one dedicated space in a process of its own, which may be a pod. The platform writes the
// files that the process needs into a directory, and sends it requests of package shard/dedicated.
package spaceprocess

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"

	"github.com/berth-dev/berth/control"
	"github.com/berth-dev/berth/gateway"
	"github.com/berth-dev/berth/identity"
	"github.com/berth-dev/berth/internal/safego"
	"github.com/berth-dev/berth/platform/datadir"
	"github.com/berth-dev/berth/platform/hostaccess"
	"github.com/berth-dev/berth/platform/pod"
	"github.com/berth-dev/berth/platform/process"
	"github.com/berth-dev/berth/quota"
	"github.com/berth-dev/berth/shard"
	"github.com/berth-dev/berth/shard/dedicated"
	"github.com/berth-dev/berth/snapshot/feed"
	"github.com/berth-dev/berth/translate"
	"github.com/berth-dev/berth/vcluster/accessreview"
)

// These are files in the directory that the platform writes for the process, in addition to those of [hostaccess].
const (
	ConfigFile = "config.json" // written by [process.Dedicated.Write]
	// IncarnationFile contains a random ID of a space's pod. It is in the pod, and in the directory of the space on the
	// platform. Each pod with its own volume has another ID, so that a response of a pod that is being deleted is not
	// mistaken for one of the next pod.
	IncarnationFile = "incarnation"
)

// stopTimeout limits a clean stop of a dedicated space. What is not done by then is done at the next start, as after a
// crash.
const stopTimeout = 20 * time.Second

// Run runs one space in this process until ctx ends. The platform has written the files in dir.
func Run(ctx context.Context, d *process.Dedicated, dir string, version string, logger klog.Logger) error {
	if err := d.Emulate(); err != nil {
		return err
	}
	config, err := process.LoadHostConfig(filepath.Join(dir, hostaccess.KubeconfigFile))
	if err != nil {
		return err
	}
	ca := &rereadFile{path: filepath.Join(dir, hostaccess.ServingCAFile)}
	if err := ca.check(); err != nil {
		return err
	}
	enforced, err := newEnforcement(d, dir)
	if err != nil {
		return err
	}
	own := datadir.Dedicated(d.DataDir, d.Space)
	if err := os.MkdirAll(own, 0o700); err != nil {
		return err
	}
	shared, err := openDefinitions(own)
	if err != nil {
		logger.Error(err, "Could not read the shared definitions; the space has none until the platform sends them")
	}
	declared, withdrawn := openDeclarations(own, logger), &withdrawals{}
	traces, sendTraces, err := d.Traces.Start(ctx, version, logger)
	if err != nil {
		return err
	}
	defer func() {
		stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
		defer cancel()
		sendTraces(stop)
	}()
	syncing := d.Specs.Sync()
	syncing.Only, syncing.Sync = d.Space, d.Specs.Of(d.Space).Sync() // it needs no watches for other spaces
	var spaces *shard.Shard
	asker := &quotaAsker{retry: func() {
		if running := spaces.Space(d.Space); running != nil {
			running.RetryWorkloads()
		}
	}}
	server, rows := newServerStore(d, dir), feed.New()
	asked, err := accessreview.Open(d.Authorizer)
	if err != nil {
		return err
	}
	spaces, err = startShardOnceAllowed(ctx, shard.Config{
		Authorizer: asked,
		Dir:        datadir.Spaces(d.DataDir), Host: config, Sync: syncing, ServingCA: ca.read,
		Endpoint: func(space string) string { return d.Endpoint + gateway.Path(space) },
		Settings: func(space string) shard.Settings {
			settings := d.Specs.Shard(space, d.Closed)
			settings.Definitions, settings.Declared = &shared.source, declared.of()
			if server != nil {
				settings.Server = server.toOpen
			} else {
				settings.Replica = rows
			}
			return settings
		},
		Pods: d.Pods.Endpoint(), PodsAt: podsAt(d), Memory: shard.ProcessMemory(),
		Idle: d.Specs.Idle, Traces: traces, Logger: logger,
		Quota: func(space string) *quota.Gate {
			if d.Specs.Access(space).Get().Tenant == "" {
				return nil
			}
			return asker.newGate()
		},
		QuotaShort: func(_ string, requested quota.Amounts) { asker.short(requested) },
		Withdraw:   withdrawn.withdraw,
		Woken:      server.woken,
	})
	if err != nil {
		return err
	}
	defer func() {
		stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
		defer cancel()
		if err := spaces.Stop(stop); err != nil {
			logger.Error(err, "Could not stop the space in order")
		}
	}()
	declared.begin(ctx, spaces.Host())
	store, err := newStore(d, spaces, server, rows, filepath.Join(datadir.Dedicated(d.DataDir, d.Space), "tmp"))
	if err != nil {
		return err
	}
	if store.config, err = Digest(dir); err != nil {
		return err
	}
	if err := store.resume(); err != nil {
		return err
	}
	commands := http.NewServeMux()
	ServeSpaces(commands, spaces)
	store.Serve(commands)
	rows.Serve(commands, d.Space)
	asker.serve(commands)
	dedicated.ServeAccess(commands, func(ctx context.Context, visitor *identity.Identity) bool {
		return spaces.GivesAccess(ctx, d.Space, visitor)
	})
	shared.serve(commands)
	declared.serve(commands)
	withdrawn.serve(commands)
	enforced.serve(commands, func() *shard.Namespaces { return spaces.Namespaces(d.Space) })
	commands.Handle("GET "+MetricPath, control.Answer(func(*http.Request) (any, error) {
		status, _ := spaces.Status(d.Space)
		return SpaceMetric(spaces.Space(d.Space), datadir.Space(d.DataDir, d.Space), status, spaces.HostObjects()[d.Space]), nil
	}))
	following, stopFollowing := context.WithCancel(ctx)
	var follows sync.WaitGroup
	safego.Go(&follows, "take up what is synced of the space", func() {
		declared.follow(following, spaces.Host(), func(ctx context.Context, current func(*shard.Space) bool) error {
			return spaces.RestartUnless(ctx, d.Space, current)
		})
	}, nil)
	defer func() {
		stopFollowing()
		follows.Wait()
	}()
	api := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		handler := spaces.Handler(d.Space)
		if handler == nil { // its store is elsewhere
			w.Header().Set("Retry-After", "1")
			http.Error(w, "the space is being moved; try again later", http.StatusServiceUnavailable)
			return
		}
		handler.ServeHTTP(w, r)
	})
	if d.Remote() {
		return dedicated.ServeTLS(ctx, d.Listen, dedicated.ServerTLS(dir), api, commands, logger)
	}
	return dedicated.Serve(ctx, dir, api, commands, logger)
}

// rightsTimeout is how long the host's authorizer may take until new rights are in effect.
const rightsTimeout = 15 * time.Second

// startShardOnceAllowed starts a shard, and retries while the rights of its account are not in effect yet.
func startShardOnceAllowed(ctx context.Context, config shard.Config) (spaces *shard.Shard, err error) {
	end := time.Now().Add(rightsTimeout)
	_ = wait.PollUntilContextCancel(ctx, 200*time.Millisecond, true, func(ctx context.Context) (done bool, _ error) {
		spaces, err = shard.Start(ctx, config)
		return !apierrors.IsForbidden(err) || time.Now().After(end), nil
	})
	return spaces, err
}

// rereadFile is a file that other processes replace. It is safe for concurrent use.
type rereadFile struct {
	path string
	last atomic.Pointer[[]byte]
}

// check fails if the file cannot be read.
func (f *rereadFile) check() error {
	data, err := os.ReadFile(f.path)
	if err != nil {
		return fmt.Errorf("read what the platform wrote for this space: %w", err)
	}
	f.last.Store(&data)
	return nil
}

// read returns the contents of the file, or the last contents that could be read.
func (f *rereadFile) read() []byte {
	_ = f.check()
	return *f.last.Load()
}

// Digest returns the digest of the files in dir that the process reads only once.
func Digest(dir string) (string, error) {
	config, err := os.ReadFile(filepath.Join(dir, ConfigFile))
	if err != nil {
		return "", fmt.Errorf("read the configuration of a dedicated space: %w", err)
	}
	host, err := os.ReadFile(filepath.Join(dir, hostaccess.KubeconfigFile))
	if err != nil {
		return "", fmt.Errorf("read the kubeconfig of a dedicated space: %w", err)
	}
	incarnation, err := os.ReadFile(filepath.Join(dir, IncarnationFile)) // only pods have one
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("read the incarnation of a dedicated space: %w", err)
	}
	return pod.Digest(config, host, incarnation), nil
}

// podsAt returns where the space's pods reach the platform. The platform's address changes with each start. A process
// that outlives the platform's gets it with the keys.
func podsAt(d *process.Dedicated) func() translate.PodsEndpoint {
	if !d.Remote() {
		return d.Pods.Endpoint
	}
	return func() translate.PodsEndpoint {
		pods := d.Pods
		if data, err := os.ReadFile(filepath.Join(datadir.Space(d.DataDir, d.Space), PodsAddressFile)); err == nil {
			pods.Address = string(data)
		}
		return pods.Endpoint()
	}
}
