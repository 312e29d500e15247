// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package syncer_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/bounds"
	"github.com/berth-dev/berth/internal/testhost"
	"github.com/berth-dev/berth/isolation"
	"github.com/berth-dev/berth/syncer"
	"github.com/berth-dev/berth/syncer/kinds"
	"github.com/berth-dev/berth/translate"
	"github.com/berth-dev/berth/vcluster"
	berthadmission "github.com/berth-dev/berth/vcluster/admission"
)

// bed is one space on the shared host: a real control plane, and a syncer that
// may be killed and begun anew, as a shard would run them in one process.
type bed struct {
	t       *testing.T
	space   translate.Space
	cluster *testhost.Host
	clock   clock.PassiveClock
	options syncer.Options
	where   translate.Placement
	limits  *bounds.Account
	domains []string
	config  vcluster.Config
	plane   *vcluster.ControlPlane
	reach   atomic.Pointer[http.RoundTripper] // the plane, nil while it is down

	host    kubernetes.Interface // as the platform's admin
	virtual kubernetes.Interface // as the tenant's admin, but past the guard

	mu       sync.Mutex
	life     *life        // nil between two lives
	reserver *syncer.Host // of the present or, before the first, a coming life
}

// life is one run of a syncer, from its start to its death.
type life struct {
	wire   *wire
	host   *syncer.Host
	syncer *syncer.Syncer
	end    context.CancelFunc
	doomed chan struct{} // closed by doom
	once   sync.Once
	ended  chan error
}

// newBed isolates the space and starts its control plane, without a syncer.
func newBed(t *testing.T, name string) *bed {
	t.Helper()
	b := &bed{t: t, space: translate.Space{Name: name, NodeKey: []byte("a key of " + name)}, cluster: theHost(t), clock: clock.RealClock{}, limits: bounds.NewAccount(nil)}
	b.host = testhost.Clientset(t, b.cluster.Config())
	ctx, cancel := context.WithTimeout(t.Context(), testhost.Patience)
	defer cancel()
	b.build(t)
	var err error
	if b.reserver, err = syncer.NewHost(b.cluster.Config(), b.options); err != nil {
		t.Fatal(err)
	}
	address, err := b.reserver.ReserveAPI(ctx, b.space)
	if err != nil {
		t.Fatal(err)
	}
	addresses, err := b.reserver.ServiceRange(ctx)
	if err != nil {
		t.Fatal(err)
	}
	b.config = vcluster.Config{
		Name: name, Dir: t.TempDir(), Endpoint: "https://berth.example:7443/spaces/" + name, ServingCA: b.cluster.ServingCA,
		ServiceCIDR: addresses, KubernetesServiceIP: net.ParseIP(address),
		Controllers: vcluster.SpaceControllers(), HiddenNodes: true,
		Admission: []vcluster.Admission{
			{Name: "BerthServiceAddresses", New: func() (admission.Interface, error) { return berthadmission.NewAddresses(b.reserve, b.limits), nil }},
			{Name: "BerthIsolation", New: func() (admission.Interface, error) {
				return berthadmission.NewIsolation(true, b.where, b.space.Settings.PodSecurity), nil
			}},
		},
		Logger: klog.Background(),
	}
	b.virtual = testhost.Clientset(t, b.toPlane())
	if err := b.startPlane(ctx); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.close)
	return b
}

// build isolates the space, for what the bed is to sync.
func (b *bed) build(t *testing.T) {
	t.Helper()
	admin, err := client.New(b.cluster.Config(), client.Options{Scheme: scheme.Scheme})
	if err != nil {
		t.Fatal(err)
	}
	if err := isolation.Apply(t.Context(), admin, b.space, nil, isolation.Syncing(b.options.Sync), isolation.PlacedBy(b.where), isolation.ExposedBy(b.options.IngressAnnotations)); err != nil {
		t.Fatal(err)
	}
}

// toPlane reaches whatever control plane the space has at the time.
func (b *bed) toPlane() *rest.Config {
	return &rest.Config{Host: "http://space.invalid", QPS: -1, Transport: b, ContentConfig: rest.ContentConfig{
		ContentType: runtime.ContentTypeProtobuf, AcceptContentTypes: runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON,
	}}
}

// RoundTrip implements [http.RoundTripper].
func (b *bed) RoundTrip(req *http.Request) (*http.Response, error) {
	to := b.reach.Load()
	if to == nil {
		return nil, errCut
	}
	return (*to).RoundTrip(req)
}

func (b *bed) startPlane(ctx context.Context) (err error) {
	if b.plane, err = vcluster.Start(ctx, b.config); err != nil {
		return err
	}
	to, err := rest.TransportFor(b.plane.Loopback())
	b.reach.Store(&to)
	return err
}

func (b *bed) stopPlane(ctx context.Context) error {
	b.reach.Store(nil)
	return b.plane.Stop(ctx)
}

func (b *bed) close() {
	ctx, cancel := context.WithTimeout(context.Background(), testhost.Patience)
	defer cancel()
	if b.t.Failed() {
		b.t.Logf("space %s: %v", b.space.Name, b.alike(ctx))
		if events, err := b.virtual.CoreV1().Events("").List(ctx, metav1.ListOptions{}); err == nil {
			for _, e := range events.Items[max(0, len(events.Items)-20):] {
				b.t.Logf("event of %s %s/%s: %s: %s", e.InvolvedObject.Kind, e.InvolvedObject.Namespace, e.InvolvedObject.Name, e.Reason, e.Message)
			}
		}
	}
	if err := b.kill(); err != nil {
		b.t.Error(err)
	}
	if err := b.stopPlane(ctx); err != nil {
		b.t.Error(err)
	}
	if err := b.host.CoreV1().Namespaces().Delete(ctx, b.space.HostNamespace(), *noGrace()); err != nil {
		b.t.Error(err)
	}
}

// reserve is what the space's admission asks of the process it is in.
func (b *bed) reserve(ctx context.Context, v *corev1.Service, current berthadmission.Current) (*corev1.Service, error) {
	b.mu.Lock()
	reserver := b.reserver
	b.mu.Unlock()
	if reserver == nil {
		return nil, errCut
	}
	return reserver.ReserveService(ctx, b.space, v, current)
}

// begin runs a syncer whose requests obey r.
func (b *bed) begin(r rule) *life {
	b.t.Helper()
	l, err := b.run(func(*life) rule { return r })
	if err != nil {
		b.t.Fatal(err)
	}
	return l
}

func (b *bed) run(ruled func(*life) rule) (*life, error) {
	l := newLife()
	l.wire.obey(ruled(l))
	var err error
	if l.host, err = syncer.NewHost(l.wire.config(toHost, b.cluster.Config()), b.options); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), testhost.Patience)
	defer cancel()
	if err := l.host.Start(ctx); err != nil {
		return nil, err
	}
	virtual := l.wire.config(toSpace, b.toPlane())
	clients, err := kubernetes.NewForConfig(virtual)
	if err != nil {
		return nil, err
	}
	space := b.space
	space.Settings.Domains = b.domains
	s, err := syncer.New(syncer.Config{
		Account: b.limits,
		Space:   space, Where: b.where, Host: l.host, Virtual: virtual, Release: vcluster.KubernetesRelease, Informers: informers.NewSharedInformerFactory(clients, 0), Clock: b.clock, Logger: klog.Background(),
	})
	if err != nil {
		return nil, err
	}
	l.syncer = s
	var running context.Context
	running, l.end = context.WithCancel(context.Background())
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.life != nil {
		return nil, errors.New("the space is synced already")
	}
	b.life, b.reserver = l, l.host
	go func() { l.ended <- s.Run(running) }()
	return l, nil
}

func newLife() *life {
	return &life{wire: &wire{}, doomed: make(chan struct{}), ended: make(chan error, 1)}
}

// doom cuts the wire: whatever the syncer does from here on has no effect.
func (l *life) doom() {
	l.once.Do(func() {
		l.wire.cut.Store(true)
		l.end()
		close(l.doomed)
	})
}

// kill ends the present life, at whatever instruction it is.
func (b *bed) kill() error {
	b.mu.Lock()
	l := b.life
	b.life = nil
	if l != nil {
		b.reserver = nil
	}
	b.mu.Unlock()
	if l == nil {
		return nil
	}
	l.doom()
	defer l.host.Stop()
	select {
	case err := <-l.ended:
		return err
	case <-time.After(testhost.Patience):
		return fmt.Errorf("the syncer of %s did not end", b.space.Name)
	}
}

// supervise begins a new life whenever one is doomed, until the test ends. Each
// life obeys the rule that next makes for it. After deaths for which whole
// returns true the control plane is stopped and started as well.
func (b *bed) supervise(next func(*life) rule, whole func() bool) {
	b.t.Helper()
	stop, stopped := make(chan struct{}), make(chan error, 1)
	again := func() error {
		if err := b.kill(); err != nil || !whole() {
			return err
		}
		ctx, cancel := context.WithTimeout(context.Background(), testhost.Patience)
		defer cancel()
		return errors.Join(b.stopPlane(ctx), b.startPlane(ctx))
	}
	go func() {
		defer close(stopped)
		for {
			l, err := b.run(next)
			if err != nil {
				stopped <- err
				return
			}
			select {
			case <-l.doomed:
				if err := again(); err != nil {
					stopped <- err
					return
				}
			case <-stop:
				return
			}
		}
	}()
	b.t.Cleanup(func() {
		close(stop)
		if err := <-stopped; err != nil {
			b.t.Error(err)
		}
	})
}

// synced begins a syncer of a new space with these switches.
func synced(t *testing.T, name string, switches ...string) *bed {
	t.Helper()
	b := newBed(t, name)
	parsed, err := kinds.Parse(switches)
	if err != nil {
		t.Fatal(err)
	}
	b.options = syncer.Options{Sync: parsed, IngressAnnotations: []string{"example.com/allowed"}}
	b.build(t) // for the rights that the switches take
	b.begin(nil)
	return b
}

// created makes an object, however many others the host's quota counts meanwhile:
// there it says Conflict then, as the syncer knows, too.
func created[T metav1.Object](ctx context.Context, create func(context.Context, T, metav1.CreateOptions) (T, error), o T) (out T, err error) {
	err = retry.OnError(retry.DefaultBackoff, apierrors.IsConflict, func() error {
		out, err = create(ctx, o, metav1.CreateOptions{})
		return err
	})
	return out, err
}

// must is [created] for what no test is about.
func must[T metav1.Object](t *testing.T, create func(context.Context, T, metav1.CreateOptions) (T, error), o T) T {
	t.Helper()
	made, err := created(t.Context(), create, o)
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// awaited waits until an object is there and check, if any, finds nothing wrong.
func awaited[T metav1.Object](t *testing.T, what string, get func(context.Context, string, metav1.GetOptions) (T, error), name string, check func(T) error) (o T) {
	t.Helper()
	testhost.Eventually(t, what, func(ctx context.Context) (err error) {
		if o, err = get(ctx, name, metav1.GetOptions{}); err == nil && check != nil {
			err = check(o)
		}
		return err
	})
	return o
}

func awaitedGone[T metav1.Object](t *testing.T, what string, get func(context.Context, string, metav1.GetOptions) (T, error), name string) {
	t.Helper()
	testhost.Eventually(t, what, func(ctx context.Context) error { return gone(get(ctx, name, metav1.GetOptions{})) })
}

func (b *bed) hostName(name string) string {
	return b.space.HostName("default", name, translate.LimitSubdomain)
}

// told waits for a warning about an object of the space that holds all words.
func (b *bed) told(t *testing.T, kind, name string, words ...string) {
	t.Helper()
	testhost.Eventually(t, "hear of "+kind+" "+name, func(ctx context.Context) error {
		events, err := b.virtual.CoreV1().Events("default").List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		var messages []string
		for _, e := range events.Items {
			if e.InvolvedObject.Kind != kind || e.InvolvedObject.Name != name || e.Type != corev1.EventTypeWarning {
				continue
			}
			messages = append(messages, e.Message)
			if !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(e.Message, w) }) {
				return nil
			}
		}
		return fmt.Errorf("events are %q, want one with %q", messages, words)
	})
}
