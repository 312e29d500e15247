// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package side

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/bounds"
	"github.com/berth-dev/berth/gateway"
	"github.com/berth-dev/berth/isolation"
	"github.com/berth-dev/berth/kine"
	"github.com/berth-dev/berth/platform/spaceobjects"
	"github.com/berth-dev/berth/platform/spacequota"
	"github.com/berth-dev/berth/shard"
	"github.com/berth-dev/berth/syncer/resources"
	"github.com/berth-dev/berth/translate"
)

// berth is the side of spaces: a shard behind a TLS port, whose host runs in another process, as in production.
type berth struct {
	dir    string // has a directory for each space
	shard  *shard.Shard
	server *gateway.Server
	host   client.Client
	quotas *spacequota.Quotas
	stores sync.Map // of names of spaces to their *kine.Server
	tuned  func()
}

// TenantPrefix begins the names of spaces that have a tenant of the same name, whose quota is in a ledger.
const TenantPrefix = "tenant-"

// QuotaSuffix ends the names of spaces whose quota names all resources of the default one, as those of tenants do.
const QuotaSuffix = "-quota"

// tenantOf returns the tenant of a space.
func tenantOf(space string) (tenant string, ceiling corev1.ResourceList) {
	if strings.HasPrefix(space, TenantPrefix) {
		tenant = space
	}
	return tenant, nil
}

// openQuotas defines ledgers on the host, and gives spaces their shares.
func (b *berth) openQuotas(ctx context.Context, host *rest.Config) error {
	objects, err := spaceobjects.Open(host, "bench")
	if err != nil {
		return err
	}
	if err := objects.Define(ctx); err != nil { // as a platform does
		return err
	}
	b.quotas, err = spacequota.New(spacequota.Options{
		Host: host, Of: tenantOf, Spaces: func() []string { return nil }, Serves: func(string) bool { return true }, Start: func(string) {}, Retry: func(string) {}, Clock: clock.RealClock{}, Logger: klog.Background(),
	})
	return err
}

// placed returns what writes the quota of a space: that of a tenant is in a ledger, which this creates.
func (b *berth) placed(space string, quota corev1.ResourceList) []isolation.Option {
	if tenant, _ := tenantOf(space); tenant == "" {
		return nil
	}
	return []isolation.Option{isolation.QuotaPlacedBy(func(ctx context.Context) error {
		ledger := &v1alpha1.QuotaLedger{ObjectMeta: metav1.ObjectMeta{Name: space}, Spec: v1alpha1.QuotaLedgerSpec{Limit: quota}}
		if err := b.host.Create(ctx, ledger); err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("create quota ledger: %w", err)
		}
		return b.quotas.Place(ctx, space)
	})}
}

func openBerth(ctx context.Context, dir string, args OpenArgs) (*berth, error) {
	config, err := clientcmd.RESTConfigFromKubeConfig(args.Host)
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig of the host: %w", err)
	}
	config.QPS = -1
	b := &berth{dir: filepath.Join(dir, "spaces"), tuned: shard.TuneGC()} // as `berth up` does
	types := runtime.NewScheme()
	if err := errors.Join(scheme.AddToScheme(types), v1alpha1.AddToScheme(types)); err != nil {
		return nil, fmt.Errorf("make host client: %w", err)
	}
	if b.host, err = client.New(config, client.Options{Scheme: types}); err != nil {
		return nil, fmt.Errorf("make host client: %w", err)
	}
	if err := b.openQuotas(ctx, config); err != nil {
		return nil, err
	}
	if err := isolation.InstallPolicies(ctx, b.host, resources.SyncOptions{}); err != nil { // as `berth up` does: the host's answers take a little longer
		return nil, err
	}
	port, err := openPort(ctx, dir)
	if err != nil {
		return nil, err
	}
	b.shard, err = shard.Start(ctx, shard.Config{
		Dir: b.dir, Host: config, Endpoint: port.url, ServingCA: port.ca.PEM, Logger: klog.Background(),
		Idle: func(string) shard.Idle { return shard.Idle{After: args.IdleAfter} },
		Settings: func(name string) shard.Settings {
			return shard.Settings{
				Limits: largeStore(), HostLimits: isolation.Limits(nil),
				Server: func(context.Context) (*kine.Server, error) { return b.serverOf(name) },
			}
		},
		Quota: b.quotas.Gate, QuotaShort: b.quotas.Short,
	})
	if err != nil {
		return nil, err
	}
	b.server, err = port.serve(b.shard.Handler, gateway.NewLimiter(gateway.LimiterConfig{})) // as `berth up` does
	return b, err
}

// largeStore lets a space have all that is written to it, as an admin does who expects as much. The other limits are the defaults.
func largeStore() bounds.Limits {
	return bounds.Limits{bounds.Objects: 10_000_000, bounds.StoreBytes: 16 << 30}
}

// plenty is as much of a resource as a large cluster has. Of bytes it isn't more than that: from about 10 TiB on, Kubernetes no longer keeps a
// quantity of KiB as an integer, and the host takes half a millisecond longer to write such a quota.
func plenty(name corev1.ResourceName) resource.Quantity {
	if strings.HasSuffix(string(name), string(corev1.ResourceMemory)) || strings.HasSuffix(string(name), "storage") {
		return resource.MustParse("8Ti")
	}
	return resource.MustParse("100k")
}

// Start builds the isolation of a space on the host and starts it: all that an admin waits for. Its clients come through the API endpoint.
func (b *berth) Start(ctx context.Context, name string) ([]byte, error) {
	quota := corev1.ResourceList{corev1.ResourcePods: resource.MustParse("100000")}
	if strings.HasSuffix(name, QuotaSuffix) {
		for resourceName := range v1alpha1.DefaultQuota() {
			quota[resourceName] = plenty(resourceName)
		}
	}
	if err := isolation.Apply(ctx, b.host, translate.Space{Name: name}, quota, b.placed(name, quota)...); err != nil {
		return nil, err
	}
	space, err := b.shard.StartSpace(ctx, name)
	if err != nil {
		return nil, err
	}
	return space.Kubeconfig("bench", []string{user.SystemPrivilegedGroup})
}

const (
	// sleepTime is how long a space may be busy before it can sleep.
	sleepTime = time.Minute
	// removePoll is how often it is asked what is left.
	removePoll = 200 * time.Millisecond
)

func (b *berth) Sleep(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, sleepTime)
	defer cancel()
	return b.shard.Sleep(ctx, name)
}

func (b *berth) Awake() (n int) {
	for _, status := range b.shard.List() {
		if len(status.Conditions) != 1 || status.Conditions[0].Reason != shard.ReasonAsleep {
			n++
		}
	}
	return n
}

// Remove stops a space and deletes its state and its host namespace, and waits until the host has emptied it.
func (b *berth) Remove(ctx context.Context, name string) error {
	if err := b.shard.StopSpace(ctx, name); err != nil {
		return err
	}
	if err := os.RemoveAll(filepath.Join(b.dir, name)); err != nil {
		return fmt.Errorf("remove the state of space %s: %w", name, err)
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: translate.Space{Name: name}.HostNamespace()}}
	if err := b.host.Delete(ctx, namespace); err != nil {
		return fmt.Errorf("delete the host namespace of space %s: %w", name, err)
	}
	err := wait.PollUntilContextTimeout(ctx, removePoll, RemoveTime, true, func(ctx context.Context) (bool, error) {
		err := b.host.Get(ctx, client.ObjectKeyFromObject(namespace), namespace)
		return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
	})
	if err != nil {
		return fmt.Errorf("wait until the host namespace of space %s is gone: %w", name, err)
	}
	return nil
}

func (b *berth) Stop(ctx context.Context, name string) error { return b.shard.StopSpace(ctx, name) }

// Close ends the API endpoint before the spaces behind it. What ctx allows is for both.
func (b *berth) Close(ctx context.Context) error {
	defer b.tuned()
	b.server.Stop(ctx)
	return b.shard.Stop(ctx)
}
