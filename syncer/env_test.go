// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package syncer_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
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
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/bounds"
	"github.com/berth-dev/berth/internal/testhost"
	"github.com/berth-dev/berth/isolation"
	"github.com/berth-dev/berth/sharing"
	"github.com/berth-dev/berth/syncer"
	"github.com/berth-dev/berth/syncer/declaration"
	"github.com/berth-dev/berth/syncer/resources"
	"github.com/berth-dev/berth/translate"
	"github.com/berth-dev/berth/vcluster"
	berthadmission "github.com/berth-dev/berth/vcluster/admission"
)

// testEnv is one space on the shared host: a real control plane, and a syncer that
// may be killed and started again, as a shard would run them in one process.
type testEnv struct {
	t         *testing.T
	space     translate.Space
	cluster   *testhost.Host
	clock     clock.PassiveClock
	options   syncer.Options
	sync      *resources.SyncOptions // of the space, if they differ
	where     translate.Placement
	hardQuota corev1.ResourceList // nil for the defaults
	limits    *bounds.Account
	domains   []string
	shares    bool // the syncer writes what is shared
	declared  []*declaration.Declaration
	withdraw  func(context.Context) error
	config    vcluster.Config
	plane     *vcluster.ControlPlane
	reach     atomic.Pointer[http.RoundTripper] // the plane, nil while it is down

	host    kubernetes.Interface // as the platform's admin
	virtual kubernetes.Interface // as the tenant's admin, but past the isolation plug-in

	mu       sync.Mutex
	run      *syncerRun   // nil between two runs
	reserver *syncer.Host // of the present or, before the first, a coming run
}

// syncerRun is one run of a syncer, from its start to its end.
type syncerRun struct {
	wire    *wire
	host    *syncer.Host
	syncer  *syncer.Syncer
	end     context.CancelFunc
	crashed chan struct{} // closed by crash
	once    sync.Once
	ended   chan error
}

// namesOfSpaces has the names of all spaces by now, and the tests that have them. All tests share one host.
var namesOfSpaces sync.Map //nolint:gochecknoglobals // of the process, as the host

// newEnv isolates the space and starts its control plane, without a syncer.
func newEnv(t *testing.T, name string) *testEnv {
	t.Helper()
	if other, used := namesOfSpaces.LoadOrStore(name, t.Name()); used {
		t.Fatalf("%s has a space %s, too: its end would delete this one's host namespace", other, name)
	}
	t.Cleanup(func() { namesOfSpaces.Delete(name) })
	env := &testEnv{t: t, space: translate.Space{Name: name, NodeKey: []byte("a key of " + name)}, cluster: theHost(t), clock: clock.RealClock{}, limits: bounds.NewAccount(nil)}
	env.host = testhost.Clientset(t, env.cluster.Config())
	ctx, cancel := context.WithTimeout(t.Context(), testhost.Timeout)
	defer cancel()
	env.build(t)
	var err error
	if env.reserver, err = syncer.NewHost(env.cluster.Config(), env.options); err != nil {
		t.Fatal(err)
	}
	address, err := env.reserver.ReserveAPI(ctx, env.space)
	if err != nil {
		t.Fatal(err)
	}
	addresses, err := env.reserver.ServiceRange(ctx)
	if err != nil {
		t.Fatal(err)
	}
	env.config = vcluster.Config{
		Name: name, Dir: t.TempDir(), Endpoint: "https://berth.example:7443/spaces/" + name, ServingCA: env.cluster.ServingCA,
		ServiceCIDR: addresses, KubernetesServiceIP: net.ParseIP(address),
		Controllers: vcluster.SpaceControllers(), HiddenNodes: true,
		Admission: []vcluster.Admission{
			{Name: "BerthServiceAddresses", New: func() (admission.Interface, error) { return berthadmission.NewAddresses(env.reserve, env.limits), nil }},
			{Name: "BerthIsolation", New: func() (admission.Interface, error) {
				return berthadmission.NewIsolation(true, true, env.where, &env.space.Settings), nil
			}},
		},
		Logger: klog.Background(),
	}
	env.virtual = testhost.Clientset(t, env.toPlane())
	if err := env.startPlane(ctx); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(env.close)
	return env
}

// build isolates the space, for what the environment is to sync.
func (env *testEnv) build(t *testing.T) {
	t.Helper()
	admin, err := client.New(env.cluster.Config(), client.Options{Scheme: scheme.Scheme})
	if err != nil {
		t.Fatal(err)
	}
	if err := isolation.Apply(t.Context(), admin, env.space, env.hardQuota, isolation.Syncing(ptr.Deref(env.sync, env.options.Sync)), isolation.PlacedBy(env.where), isolation.ExposedBy(env.options.IngressAnnotations)); err != nil {
		t.Fatal(err)
	}
}

// toPlane reaches whatever control plane the space has at the time.
func (env *testEnv) toPlane() *rest.Config {
	return &rest.Config{Host: "http://space.invalid", QPS: -1, Transport: env, ContentConfig: rest.ContentConfig{
		ContentType: runtime.ContentTypeProtobuf, AcceptContentTypes: runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON,
	}}
}

// RoundTrip implements [http.RoundTripper].
func (env *testEnv) RoundTrip(req *http.Request) (*http.Response, error) {
	to := env.reach.Load()
	if to == nil {
		return nil, errCut
	}
	return (*to).RoundTrip(req)
}

func (env *testEnv) startPlane(ctx context.Context) (err error) {
	if env.plane, err = vcluster.Start(ctx, env.config); err != nil {
		return err
	}
	to, err := rest.TransportFor(env.plane.Loopback())
	env.reach.Store(&to)
	return err
}

func (env *testEnv) stopPlane(ctx context.Context) error {
	env.reach.Store(nil)
	return env.plane.Stop(ctx)
}

func (env *testEnv) close() {
	ctx, cancel := context.WithTimeout(context.Background(), testhost.Timeout)
	defer cancel()
	if env.t.Failed() {
		env.t.Logf("space %s: %v", env.space.Name, env.alike(ctx))
		if events, err := env.virtual.CoreV1().Events("").List(ctx, metav1.ListOptions{}); err == nil {
			for _, e := range events.Items[max(0, len(events.Items)-20):] {
				env.t.Logf("event of %s %s/%s: %s: %s", e.InvolvedObject.Kind, e.InvolvedObject.Namespace, e.InvolvedObject.Name, e.Reason, e.Message)
			}
		}
	}
	if err := env.kill(); err != nil {
		env.t.Error(err)
	}
	if err := env.stopPlane(ctx); err != nil {
		env.t.Error(err)
	}
	if err := env.host.CoreV1().Namespaces().Delete(ctx, env.space.HostNamespace(), *noGrace()); err != nil {
		env.t.Error(err)
	}
}

// reserve is what the space's admission asks of the process it is in.
func (env *testEnv) reserve(ctx context.Context, v *corev1.Service, current berthadmission.Current) (*corev1.Service, error) {
	env.mu.Lock()
	reserver := env.reserver
	env.mu.Unlock()
	if reserver == nil {
		return nil, errCut
	}
	return reserver.ReserveService(ctx, env.space, v, current)
}

// begin runs a syncer whose requests obey r.
func (env *testEnv) begin(r rule) *syncerRun {
	env.t.Helper()
	run, err := env.startRun(func(*syncerRun) rule { return r })
	if err != nil {
		env.t.Fatal(err)
	}
	return run
}

func (env *testEnv) startRun(ruled func(*syncerRun) rule) (*syncerRun, error) {
	run := newRun()
	run.wire.obey(ruled(run))
	var err error
	if run.host, err = syncer.NewHost(run.wire.config(toHost, env.cluster.Config()), env.options); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), testhost.Timeout)
	defer cancel()
	if err := run.host.Start(ctx); err != nil {
		return nil, err
	}
	if err := watchDeclared(ctx, run.host, env.declared); err != nil {
		return nil, err
	}
	virtual := run.wire.config(toSpace, env.toPlane())
	clients, err := kubernetes.NewForConfig(virtual)
	if err != nil {
		return nil, err
	}
	space := env.space
	space.Settings.Domains = env.domains
	var shares sharing.Source
	if env.shares {
		shares = env.plane
	}
	s, err := syncer.New(syncer.Config{
		Account: env.limits, Shares: shares,
		Space: space, Where: env.where, Host: run.host, Sync: env.sync, Declared: env.declared, Withdraw: env.withdraw, Hides: env.plane.Hides, Virtual: virtual, Release: vcluster.KubernetesRelease, Informers: informers.NewSharedInformerFactory(clients, 0), Clock: env.clock, Logger: klog.Background(),
	})
	if err != nil {
		return nil, err
	}
	run.syncer = s
	var running context.Context
	running, run.end = context.WithCancel(context.Background())
	env.mu.Lock()
	defer env.mu.Unlock()
	if env.run != nil {
		return nil, errors.New("the space is synced already")
	}
	env.run, env.reserver = run, run.host
	go func() { run.ended <- s.Run(running) }()
	return run, nil
}

func newRun() *syncerRun {
	return &syncerRun{wire: &wire{}, crashed: make(chan struct{}), ended: make(chan error, 1)}
}

// crash cuts the wire: whatever the syncer does from here on has no effect.
func (run *syncerRun) crash() {
	run.once.Do(func() {
		run.wire.cut.Store(true)
		run.end()
		close(run.crashed)
	})
}

// kill ends the present run, at whatever instruction it is.
func (env *testEnv) kill() error {
	env.mu.Lock()
	run := env.run
	env.run = nil
	if run != nil {
		env.reserver = nil
	}
	env.mu.Unlock()
	if run == nil {
		return nil
	}
	run.crash()
	defer run.host.Stop()
	select {
	case err := <-run.ended:
		return err
	case <-time.After(testhost.Timeout):
		return fmt.Errorf("the syncer of %s did not end", env.space.Name)
	}
}

// supervise begins a new run whenever one crashes, until the test ends. Each run
// obeys the rule that next makes for it. After crashes for which whole
// returns true the control plane is stopped and started as well.
func (env *testEnv) supervise(next func(*syncerRun) rule, whole func() bool) {
	env.t.Helper()
	stop, stopped := make(chan struct{}), make(chan error, 1)
	again := func() error {
		if err := env.kill(); err != nil || !whole() {
			return err
		}
		ctx, cancel := context.WithTimeout(context.Background(), testhost.Timeout)
		defer cancel()
		return errors.Join(env.stopPlane(ctx), env.startPlane(ctx))
	}
	go func() {
		defer close(stopped)
		for {
			run, err := env.startRun(next)
			if err != nil {
				stopped <- err
				return
			}
			select {
			case <-run.crashed:
				if err := again(); err != nil {
					stopped <- err
					return
				}
			case <-stop:
				return
			}
		}
	}()
	env.t.Cleanup(func() {
		close(stop)
		if err := <-stopped; err != nil {
			env.t.Error(err)
		}
	})
}

// synced begins a syncer of a new space with these sync options.
func synced(t *testing.T, name string, syncOptions ...string) *testEnv {
	t.Helper()
	env := newEnv(t, name)
	env.syncing(t, syncOptions...)
	return env
}

// syncing begins a syncer of the space with these sync options.
func (env *testEnv) syncing(t *testing.T, syncOptions ...string) {
	t.Helper()
	parsed, err := resources.Parse(syncOptions)
	if err != nil {
		t.Fatal(err)
	}
	env.options = syncer.Options{Sync: parsed, IngressAnnotations: []string{"example.com/allowed"}}
	env.build(t) // for the rights that the options take
	if env.syncsExtensions() {
		env.serveSynced(t)
	}
	env.begin(nil)
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

func (env *testEnv) hostName(name string) string {
	return env.space.HostName("default", name, translate.LimitSubdomain)
}
