// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package peers

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"os"
	"sync"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2/ktesting"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/api/crds"
	"github.com/berth-dev/berth/internal/testhost"
	"github.com/berth-dev/berth/vcluster/pki"
)

var shared = sync.OnceValues(testhost.Start)

func TestMain(m *testing.M) { os.Exit(testhost.Main(m, shared)) }

// host returns how to reach the host of all tests.
func host(t *testing.T) *rest.Config {
	t.Helper()
	host, err := shared()
	if err != nil {
		t.Fatal(err)
	}
	return host.Config()
}

// holderOf returns who holds a Lease.
func holderOf(t *testing.T, namespace, name string) string {
	t.Helper()
	c, err := client.New(host(t), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	lease := &coordinationv1.Lease{}
	if err := c.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, lease); err != nil {
		t.Fatal(err)
	}
	return ptr.Deref(lease.Spec.HolderIdentity, "")
}

// namespace creates a namespace on the host.
func namespace(t *testing.T, name string) {
	t.Helper()
	c, err := client.New(host(t), client.Options{})
	if err == nil {
		err = c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	if err != nil {
		t.Fatal(err)
	}
}

func shard(t *testing.T, namespace, name string) Config {
	t.Helper()
	logger, _ := ktesting.NewTestContext(t)
	return Config{
		Options: Options{Name: name, Namespace: namespace, Address: "127.0.0.1:0"}, Host: host(t), Platform: "berth",
		DataDir: t.TempDir(), Logger: logger,
	}
}

func open(t *testing.T, c Config) *Peers {
	t.Helper()
	p, err := Open(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func ca(t *testing.T, dir string) *pki.CA {
	t.Helper()
	authority, err := pki.OpenCA(dir, "berth")
	if err != nil {
		t.Fatal(err)
	}
	return authority
}

// sharedCA returns the CA that a shard shares by a Secret.
func sharedCA(t *testing.T, p *Peers, secret, dir string) *pki.CA {
	t.Helper()
	authority, err := p.OpenCA(t.Context(), secret, dir, "berth")
	if err != nil {
		t.Fatal(err)
	}
	return authority
}

// T9: all shards have one CA for each purpose: that of a platform which had one already, what becomes of it when one renews or rotates it, and
// never the one of another platform.
func TestShardsShareACA(t *testing.T) {
	namespace(t, "authority")
	p, q, third := open(t, shard(t, "authority", "berth-0")), open(t, shard(t, "authority", "berth-1")), open(t, shard(t, "authority", "berth-2"))
	first, second := t.TempDir(), t.TempDir()
	had := ca(t, first).PEM()
	_ = ca(t, second) // a shard that had one of its own
	opened := sharedCA(t, p, EndpointSecret, first)
	trusted := sharedCA(t, q, EndpointSecret, second)
	for dir, one := range map[string]*pki.CA{first: opened, second: trusted, "": sharedCA(t, third, EndpointSecret, t.TempDir())} {
		if !bytes.Equal(one.PEM(), had) {
			t.Errorf("%s has another CA than the first shard", dir)
		}
	}
	pods := sharedCA(t, q, PodsSecret, t.TempDir()).PEM()
	if again := sharedCA(t, p, PodsSecret, t.TempDir()).PEM(); bytes.Equal(pods, had) || !bytes.Equal(again, pods) {
		t.Error("the CA of the pods is that of the endpoint, or not that of the other shard")
	}
	if err := ca(t, first).Rotate(); err != nil {
		t.Fatal(err)
	}
	if changed, err := p.authorities[0].share(t.Context()); err != nil || changed {
		t.Errorf("the shard that rotated the CA took over another one: %v, %v", changed, err)
	}
	if changed, err := q.authorities[0].share(t.Context()); err != nil || !changed {
		t.Errorf("another shard takes over the CA that was rotated: %v, %v", changed, err)
	}
	if err := trusted.Reload(); err != nil {
		t.Fatal(err)
	}
	if now := ca(t, first).PEM(); bytes.Equal(now, had) || !bytes.Equal(trusted.PEM(), now) {
		t.Error("the other shard does not trust the new CA")
	}
	stranger := shard(t, "authority", "berth-3")
	stranger.Platform = "other"
	if _, err := open(t, stranger).OpenCA(t.Context(), EndpointSecret, t.TempDir(), "berth"); err == nil {
		t.Error("the shard of another platform got the CA")
	}
}

// D5: a second process of a shard waits until the first one has ended or is silent, and that one finds out when it comes back.
func TestOneProcessIsAShard(t *testing.T) {
	namespace(t, "leases")
	p := open(t, shard(t, "leases", "berth-0"))
	life, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- p.lease.keep(life) }()

	waiting, cancel := context.WithTimeout(t.Context(), 3*leaseDuration/2)
	if _, err := Open(waiting, shard(t, "leases", "berth-0")); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a second process got the Lease that the first one renews: %v", err)
	}
	cancel()
	stop()
	if err := <-ended; err != nil {
		t.Fatalf("the first process ended with %v", err)
	}
	if holder := holderOf(t, "leases", "berth-0"); holder != "" { // so that the second process needn't wait
		t.Errorf("the first process has ended, and the Lease is still held by %s", holder)
	}
	q := open(t, shard(t, "leases", "berth-0"))
	// The second one hangs from the start, and a third one takes its place.
	open(t, shard(t, "leases", "berth-0"))
	if err := q.lease.keep(t.Context()); !errors.Is(err, ErrReplaced) {
		t.Errorf("the process that was replaced ended with %v", err)
	}
}

// A shard that stops when its release is uninstalled, and its rights with it, doesn't wait for moves that nobody begins.
func TestAShardWithoutRightsDoesNotWait(t *testing.T) {
	namespace(t, "uninstalled")
	scheme := runtime.NewScheme()
	if err := errors.Join(apiextensionsv1.AddToScheme(scheme), rbacv1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	config := rest.CopyConfig(host(t))
	config.ContentType, config.AcceptContentTypes = "", ""
	admin, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	definitions, err := crds.All()
	if err != nil {
		t.Fatal(err)
	}
	for _, definition := range definitions {
		if err := admin.Create(t.Context(), definition); err != nil {
			t.Fatal(err)
		}
	}
	rights := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "uninstalled"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "uninstalled"}},
	}
	if err := admin.Create(t.Context(), rights); err != nil {
		t.Fatal(err)
	}
	run := func(name string) *Peers {
		c := shard(t, "uninstalled", name)
		c.DrainTimeout = time.Hour
		c.Host = rest.CopyConfig(c.Host)
		c.Host.Impersonate.UserName = "uninstalled"
		var p *Peers
		testhost.Eventually(t, "the host grants the rights", func(ctx context.Context) (err error) {
			p, err = Open(ctx, c)
			return err
		})
		stop, err := p.Run(t.Context(), ca(t, t.TempDir()), http.NotFoundHandler(), func() Load { return Load{Spaces: 1} })
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { stop(context.WithoutCancel(t.Context())) })
		return p
	}
	p, _ := run("berth-0"), run("berth-1")
	testhost.Eventually(t, "another shard takes spaces", func(context.Context) error {
		if !p.hasOther() {
			return errors.New("there is none")
		}
		return nil
	})
	if err := admin.Delete(t.Context(), rights); err != nil {
		t.Fatal(err)
	}
	drained := make(chan struct{})
	go func() { defer close(drained); p.Drain(func() int { return 1 }) }()
	select {
	case <-drained:
	case <-time.After(testhost.Timeout):
		t.Error("the shard waits for its spaces to move")
	}
}

// Requests to a space that is moved wait until it has moved, those before are waited for, and those that last are not.
func TestRequestsWaitWhileASpaceMoves(t *testing.T) {
	var traffic Traffic
	enter := func(lasts bool) (wait func(context.Context) bool, leave func()) { return traffic.Enter("solar", lasts) }
	_, watch := enter(true)
	defer watch()
	_, leave := enter(false)
	held := make(chan func(), 1)
	go func() { held <- traffic.Hold(t.Context(), "solar") }()
	var wait func(context.Context) bool
	for wait == nil { // until Hold has begun
		var done func()
		if wait, done = enter(false); done != nil {
			done()
		}
	}
	select {
	case <-held:
		t.Fatal("a move does not wait for a request that came before")
	default:
	}
	leave()
	release := <-held
	routed := make(chan bool)
	go func() { routed <- wait(t.Context()) }()
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if again, _ := enter(false); again == nil || again(gone) {
		t.Error("a request whose client is gone is served")
	}
	if other, done := traffic.Enter("lunar", false); other != nil {
		t.Error("a request to another space waits")
	} else {
		done()
	}
	release()
	if !<-routed {
		t.Error("a request that waited is refused")
	}
	if len(traffic.of) != 0 {
		t.Errorf("%d spaces without requests are remembered", len(traffic.of))
	}
}
