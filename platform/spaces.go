// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package platform

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/isolation"
	"github.com/berth-dev/berth/shard"
	"github.com/berth-dev/berth/syncer"
	"github.com/berth-dev/berth/translate"
	"github.com/berth-dev/berth/vcluster"
	"github.com/berth-dev/berth/vcluster/pki"
)

func (p *Platform) startShard(ctx context.Context) (err error) {
	if p.objects, err = openSpaceObjects(p.host.Config(), p.config.PlatformName); err != nil {
		return err
	}
	config := rest.CopyConfig(p.host.Config())
	config.QPS = -1 // the host's own priority and fairness decides
	host, err := client.New(config, client.Options{Scheme: scheme.Scheme})
	if err != nil {
		return fmt.Errorf("make host client: %w", err)
	}
	p.hostClient = host
	specs := p.config.specs
	p.closed = closedRanges(ctx, host, p.logger)
	options := []isolation.Option{
		isolation.BoundTo(p.config.SpaceRole), isolation.Syncing(specs.sync.Sync), isolation.ExposedBy(specs.sync.IngressAnnotations),
	}
	if p.config.SpaceRole == "" { // otherwise, the chart that installed the role installs the policies, too
		if err := isolation.InstallPolicies(ctx, host, specs.sync.Sync); err != nil {
			return err
		}
	} else {
		review := &authenticationv1.SelfSubjectReview{}
		if err := host.Create(ctx, review); err != nil {
			return fmt.Errorf("ask the host who this platform is there: %w", err)
		}
		options = append(options, isolation.ImpersonatedBy(review.Status.UserInfo.Username))
	}
	p.isolationOptions = options
	var held sync.Once
	p.prepare = func(ctx context.Context, space string) error {
		if err := p.isolate(ctx, space); err != nil {
			return err
		}
		held.Do(func() { p.awaitHeld(ctx, space) })
		return p.writeKubeconfig(ctx, space)
	}
	sync := specs.sync
	sync.QuotaChanged = p.quotaChanged
	p.shard, err = shard.Start(ctx, shard.Config{
		Dir: spacesDir(p.config.DataDir), ActiveDir: filepath.Join(p.config.DataDir, "active"),
		Host: p.host.Config(), Sync: sync,
		Settings: func(space string) shard.Settings { return specs.shardSettings(space, p.closed) },
		Endpoint: p.Endpoint, ServingCA: p.ca.PEM, Pods: p.config.Pods.endpoint(),
		Prepare: p.prepare, Changed: p.changed,
		Memory: shard.ProcessMemory(),
		Idle:   specs.idle, SpacesMax: p.config.SpacesMax, Woken: p.metrics.Woken, Traces: p.traces, Logger: p.logger,
	})
	if err != nil {
		return err
	}
	p.onStop(func(ctx context.Context) {
		if err := p.shard.Stop(ctx); err != nil {
			p.logger.Error(err, "stop shard")
		}
	})
	serveSpaces(p.commands, p)
	serveRotation(p.commands, p.Rotate)
	return nil
}

// heldAfter is how long the first space waits for the host to take up the policies
// that hold its account: about a second on a host that has just got them.
const heldAfter = 5 * time.Second

// awaitHeld has the first space wait until the host holds spaces' accounts. One
// that never does is the platform's choice, and is told of.
func (p *Platform) awaitHeld(ctx context.Context, name string) {
	ctx, cancel := context.WithTimeout(ctx, heldAfter)
	defer cancel()
	space := translate.Space{Name: name}
	account, err := client.New(syncer.AsAccount(p.host.Config(), space), client.Options{Scheme: scheme.Scheme})
	if err == nil {
		err = isolation.WaitEnforced(ctx, account, space)
	}
	if err != nil {
		p.logger.Error(err, "spaces start without it: whoever takes over a space's account may do there all that its role grants; see docs/reference/host-access.md on admissionPolicy")
	}
}

func (p *Platform) isolate(ctx context.Context, name string) error {
	store, err := p.storeID(name)
	if err != nil {
		return err
	}
	isolated := p.isolationOf(name, store)
	if err := isolated.Apply(ctx, p.hostClient); err != nil {
		return err
	}
	p.config.Progress("Space %s is isolated on the host: namespace %s with quota, limits, network policy, pod security", name, isolated.Space.HostNamespace())
	return nil
}

// isolationOf is what isolates a space with a store.
func (p *Platform) isolationOf(name, store string) *isolation.Isolation {
	settings, own := p.config.specs.shardSettings(name, p.closed), p.config.specs.of(name)
	return &isolation.Isolation{
		Space: translate.Space{Name: name, Store: store, Platform: p.config.PlatformName, Pods: p.config.Pods.endpoint(), Settings: settings.Objects, Closed: settings.Closed},
		Quota: own.quota,
		Options: append(slices.Clone(p.isolationOptions), isolation.PlacedBy(settings.Placement), isolation.LimitedBy(own.limitRange),
			isolation.LabelledBy(own.namespace.Labels, own.namespace.Annotations)),
	}
}

// storeIDFile holds what identifies a store, in the directory of its space.
const storeIDFile = "store.id"

// storeID identifies the store of a space among those of all platforms of a host.
func (p *Platform) storeID(name string) (string, error) {
	store, err := pki.Secret(p.spaceDir(name), storeIDFile)
	if err != nil {
		return "", fmt.Errorf("identify the store of space %s: %w", name, err)
	}
	return hex.EncodeToString(store[:8]), nil
}

// knownStoreID is storeID of a space that this platform has, retained, or is deleting; it fails with [fs.ErrNotExist] otherwise.
func (p *Platform) knownStoreID(name string) (id string, err error) {
	for _, dir := range []string{p.spaceDir(name), retainedDir(p.config.DataDir, name), deletedDir(p.config.DataDir, name)} {
		if id, err = storeIDIn(dir); !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	return id, err
}

// storeIDIn is storeID of what is in a directory; it fails with [fs.ErrNotExist] if it has no identity.
func storeIDIn(dir string) (string, error) {
	if _, err := os.Stat(filepath.Join(dir, storeIDFile)); err != nil {
		return "", err
	}
	store, err := pki.Secret(dir, storeIDFile)
	if err != nil {
		return "", fmt.Errorf("identify the store in %s: %w", dir, err)
	}
	return hex.EncodeToString(store[:8]), nil
}

// writeKubeconfig sees to it that a space's kubeconfig is there, is good and
// leads here. The space need not run.
func (p *Platform) writeKubeconfig(ctx context.Context, name string) error {
	if pki.Exists(clientKeys(p.config.DataDir, name)) {
		if config, err := renewKubeconfig(p.config.DataDir, name, p.Endpoint(name), p.ca); err == nil {
			p.publishKubeconfig(ctx, name, config)
			return nil
		}
	}
	config, err := vcluster.ClientKubeconfig(vcluster.Config{
		Name: name, Dir: p.spaceDir(name), Endpoint: p.Endpoint(name), ServingCA: p.ca.PEM(),
	}, AdminUser, []string{AdminGroup})
	if err != nil {
		return fmt.Errorf("make kubeconfig of space %s: %w", name, err)
	}
	if err := pki.WriteFile(KubeconfigPath(p.config.DataDir, name), config); err != nil {
		return fmt.Errorf("write kubeconfig of space %s: %w", name, err)
	}
	p.publishKubeconfig(ctx, name, config)
	return nil
}

func (p *Platform) spaceDir(name string) string { return spaceDir(p.config.DataDir, name) }

// closedRanges are those of the host.
func closedRanges(ctx context.Context, host client.Client, logger klog.Logger) []netip.Prefix {
	found, err := isolation.HostRanges(ctx, host)
	if err != nil {
		logger.Error(err, "Of these addresses of the host, only the private ones are closed to spaces; name the others in spaceDefaults.network.closedRanges")
	}
	return found
}
