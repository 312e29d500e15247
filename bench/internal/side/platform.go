// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package side

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/platform"
	"github.com/berth-dev/berth/platform/datadir"
	"github.com/berth-dev/berth/shard"
)

// spacePlatform is all of `berth up`, or of `berth serve`, on a host that runs in another process. Its spaces come and go as objects
// of the host.
type spacePlatform struct {
	config  platform.Config
	host    client.Client
	tuned   func()
	tenants *tenants

	platform *platform.Platform
	cancel   context.CancelFunc
	ended    chan error
}

func openPlatform(ctx context.Context, dir string, args OpenArgs) (*spacePlatform, error) {
	p, err := newPlatform(ctx, dir, args)
	if err != nil {
		return nil, err
	}
	_, err = p.run(ctx)
	return p, err
}

func newPlatform(ctx context.Context, dir string, args OpenArgs) (*spacePlatform, error) {
	kubeconfig := filepath.Join(dir, "kubeconfig-of-the-host")
	if err := os.WriteFile(kubeconfig, args.Host, 0o600); err != nil {
		return nil, fmt.Errorf("write kubeconfig of the host: %w", err)
	}
	host, err := clientcmd.RESTConfigFromKubeConfig(args.Host)
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig of the host: %w", err)
	}
	host.QPS = -1
	scheme := runtime.NewScheme()
	if err := errors.Join(v1alpha1.AddToScheme(scheme), corev1.AddToScheme(scheme)); err != nil {
		return nil, fmt.Errorf("make host client: %w", err)
	}
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(v1alpha1.GroupVersion.WithKind("Space"), meta.RESTScopeRoot)
	mapper.Add(v1alpha1.GroupVersion.WithKind("Tenant"), meta.RESTScopeRoot)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Secret"), meta.RESTScopeNamespace)
	p := &spacePlatform{tuned: shard.TuneGC(), config: platform.Config{Host: platform.HostConfig{Kubeconfig: kubeconfig}, Listen: "127.0.0.1:0"}}
	p.config.DataDir, p.config.IdleAfter, p.config.Logger = dir, args.IdleAfter, klog.Background()
	if p.host, err = client.New(host, client.Options{Scheme: scheme, Mapper: mapper}); err != nil {
		return nil, fmt.Errorf("make host client: %w", err)
	}
	if p.tenants, err = openTenants(ctx, dir); err != nil {
		return nil, err
	}
	p.config.Clients.Tokens, p.config.StoreSecrets = p.tenants.tokens, storeSecrets
	return p, nil
}

// run starts the platform, and returns how long it takes until it serves.
func (p *spacePlatform) run(ctx context.Context) (time.Duration, error) {
	serving := make(chan struct{})
	config := p.config
	config.Serving = func(running *platform.Platform) {
		p.platform = running
		close(serving)
	}
	if err := config.Complete(); err != nil {
		return 0, err
	}
	run, cancel := context.WithCancel(context.WithoutCancel(ctx))
	p.cancel, p.ended = cancel, make(chan error, 1)
	began := time.Now()
	go func() { p.ended <- platform.New(config).Run(run) }()
	select {
	case <-serving:
		return time.Since(began), nil
	case err := <-p.ended:
		p.ended <- err
		return 0, errors.Join(errors.New("the platform ended"), err)
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
}

// restart stops the platform and starts it again.
func (p *spacePlatform) restart(ctx context.Context) (time.Duration, error) {
	p.cancel()
	if err := <-p.ended; err != nil {
		return 0, err
	}
	return p.run(ctx)
}

// Start creates a space, or a tenant with its space, and waits until the space is ready.
func (p *spacePlatform) Start(ctx context.Context, name string) ([]byte, error) {
	if tenant, is := p.tenants.tenant(name); is {
		return p.create(ctx, tenant)
	}
	return p.create(ctx, &v1alpha1.Space{ObjectMeta: metav1.ObjectMeta{Name: name}})
}

// create creates a space or a tenant, and waits until its space is ready.
func (p *spacePlatform) create(ctx context.Context, object client.Object) ([]byte, error) {
	name := object.GetName()
	_, isTenant := object.(*v1alpha1.Tenant)
	if err := p.host.Create(ctx, object); err != nil {
		return nil, fmt.Errorf("create %T %s: %w", object, name, err)
	}
	if err := p.place(ctx, name); err != nil {
		return nil, err
	}
	err := wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, ReadyTime, true, func(ctx context.Context) (bool, error) {
		space := &v1alpha1.Space{}
		err := p.host.Get(ctx, client.ObjectKey{Name: name}, space)
		if isTenant && apierrors.IsNotFound(err) {
			return false, nil // until the operator has created it
		}
		return meta.IsStatusConditionTrue(space.Status.Conditions, v1alpha1.ConditionReady), err
	})
	if err != nil {
		return nil, fmt.Errorf("wait for space %s: %w", name, err)
	}
	kubeconfig, err := os.ReadFile(datadir.Kubeconfig(p.config.DataDir, name))
	if err != nil || !isTenant {
		return kubeconfig, err
	}
	return p.tenants.kubeconfig(kubeconfig, name)
}

// Bare serves the space of a tenant by another port of this process, without the gateway. The kubeconfig that it returns needs no
// credential: all requests are of the tenant's user.
func (p *spacePlatform) Bare(name string) ([]byte, error) {
	return p.tenants.bare(name, p.platform.Manager().Handler(name))
}

// Stop deletes a space and waits until nothing is left of it.
func (p *spacePlatform) Stop(ctx context.Context, name string) error {
	space := &v1alpha1.Space{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if err := p.host.Delete(ctx, space); err != nil {
		return fmt.Errorf("delete space %s: %w", name, err)
	}
	return wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, RemoveTime, true, func(ctx context.Context) (bool, error) {
		err := p.host.Get(ctx, client.ObjectKey{Name: name}, &v1alpha1.Space{})
		return err != nil, client.IgnoreNotFound(err)
	})
}

// Awake implements sleeper.
func (p *spacePlatform) Awake() int { return p.platform.Manager().Load().Awake }

func (p *spacePlatform) Close(context.Context) error {
	if p.config.Peers.Enabled() {
		return nil // to move its spaces to other shards would be for nothing: all are thrown away
	}
	p.cancel()
	return errors.Join(p.tenants.close(), <-p.ended)
}
