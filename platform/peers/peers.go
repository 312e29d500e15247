// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package peers

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/control"
	"github.com/berth-dev/berth/gateway"
	"github.com/berth-dev/berth/gateway/forward"
	"github.com/berth-dev/berth/internal/fielderror"
	"github.com/berth-dev/berth/internal/safego"
	"github.com/berth-dev/berth/platform/hostwatch"
	"github.com/berth-dev/berth/vcluster/pki"
)

// maxAnswer is the number of bytes that a shard may answer to a command.
const maxAnswer = 64 << 10

// holderFile is a file in the data directory, with the name by which the shard holds its Lease.
const holderFile = "shard.id"

// statusInterval is how often a shard writes what it has, if that has changed.
const statusInterval = 5 * time.Second

// leadTime is how long a shard that is about to stop accepts connections at least: so long may it take until all nodes of the host lead the
// clients of a Service elsewhere.
const leadTime = 5 * time.Second

// drainInterval is how often a shard that is about to stop looks whether it has spaces left.
const drainInterval = 100 * time.Millisecond

// maxRefused is how many writes of its status the host refuses to a shard that is about to stop, one after the other, until the shard doesn't
// wait any more: its rights on the host have been removed, as those of a release that is uninstalled are, and its spaces can't move.
const maxRefused = 2

// Load is what a shard has, for its status.
type Load struct {
	Spaces, Awake int
	// Memory is what the process takes, and MemoryLimit what it may take, in bytes; 0 if unknown or unlimited.
	Memory, MemoryLimit int64
	// Retained are the names of deleted spaces whose stores the shard retains.
	Retained []string
	// DedicatedMax is how many dedicated spaces the shard may have that move between shards; nil if none of its dedicated spaces do.
	DedicatedMax *int32
}

// Config is what [Open] needs.
type Config struct {
	Options
	Host     *rest.Config
	Platform string // its name
	DataDir  string
	// Berth and Kubernetes are versions, for the status.
	Berth, Kubernetes string
	Logger            klog.Logger
}

// Peers are the shards of a platform, of which this process is one. It is safe for concurrent use.
type Peers struct {
	config      Config
	host        client.WithWatch
	authorities []*authority
	lease       lease
	// Commands are the routes that other shards call. They must be added before Run.
	Commands  *http.ServeMux
	forwarder *forward.Forwarder
	ended     chan struct{} // closed when this process may not be the shard any more
	why       error

	// stopping says that the process is about to stop, and draining that it waits for its spaces before. changed has an element if the
	// status is to say so.
	stopping, draining atomic.Bool
	changed            chan struct{}
	refused            atomic.Int32 // how many writes of the status the host has refused in a row

	mu     sync.Mutex
	shards map[string]peer // by name
}

// Open waits until this process is the shard.
func Open(ctx context.Context, c Config) (*Peers, error) {
	scheme := runtime.NewScheme()
	if err := errors.Join(v1alpha1.AddToScheme(scheme), corev1.AddToScheme(scheme), coordinationv1.AddToScheme(scheme)); err != nil {
		return nil, fmt.Errorf("make client for shards: %w", err)
	}
	mapper := meta.NewDefaultRESTMapper(nil) // without discovery, which may not contain the definition yet
	mapper.Add(v1alpha1.GroupVersion.WithKind("Shard"), meta.RESTScopeNamespace)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Secret"), meta.RESTScopeNamespace)
	mapper.Add(coordinationv1.SchemeGroupVersion.WithKind("Lease"), meta.RESTScopeNamespace)
	config := rest.CopyConfig(c.Host)
	config.QPS = -1 // the host's API priority and fairness limits the requests
	config.ContentType, config.AcceptContentTypes = "", ""
	host, err := client.NewWithWatch(config, client.Options{Scheme: scheme, Mapper: mapper})
	if err != nil {
		return nil, fmt.Errorf("make client for shards: %w", err)
	}
	p := &Peers{
		changed: make(chan struct{}, 1),
		config:  c, host: host, ended: make(chan struct{}), shards: map[string]peer{}, Commands: http.NewServeMux(),
		lease: lease{
			host: host, clock: clock.RealClock{}, key: client.ObjectKey{Namespace: c.Namespace, Name: c.Name}, logger: c.Logger,
		},
	}
	// A process that was killed continues at once: its data directory is locked, so that no second one has it.
	id, err := pki.Secret(c.DataDir, holderFile)
	if err != nil {
		return nil, fmt.Errorf("identify the shard: %w", err)
	}
	p.lease.holder = hex.EncodeToString(id[:8])
	if err := p.lease.acquire(ctx); err != nil {
		return nil, err
	}
	return p, nil
}

// Run serves handler to the other shards at the shard's address, and says on the host that the shard is alive and what it has, until the
// returned function is called. ca is that of the platform's endpoint.
func (p *Peers) Run(ctx context.Context, ca *pki.CA, handler http.Handler, load func() Load) (stop func(context.Context), err error) {
	p.forwarder = forward.New(ca, p.locate, p.config.Logger)
	config, err := forward.ServerTLS(ca, p.config.Name)
	if err != nil {
		return nil, err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", p.config.Address)
	if err != nil {
		return nil, fielderror.New("shard-address", p.config.Address, "%w", err)
	}
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	var group sync.WaitGroup
	server := gateway.ServeTrusted(listener, config, forward.Received(handler, p.Commands), p.config.Logger)
	for _, one := range p.authorities {
		safego.Go(&group, "share a CA with the other shards", func() { one.keep(life, p.config.Logger) }, nil)
	}
	safego.Go(&group, "watch the other shards", func() { p.watch(life) }, nil)
	safego.Go(&group, "say that the shard is alive", func() {
		if err := p.lease.keep(life); errors.Is(err, ErrReplaced) {
			p.why = err
			close(p.ended)
		}
	}, nil)
	safego.Go(&group, "say what the shard has", func() { p.report(life, load) }, nil)
	return func(ctx context.Context) {
		server.Stop(ctx)
		end()
		group.Wait()
	}, nil
}

// Ended is closed when another process is the shard, so that this one must end. Err then says so.
func (p *Peers) Ended() <-chan struct{} { return p.ended }

// Err returns, once Ended is closed, why the process must end.
func (p *Peers) Err() error { return p.why }

// Handler returns a handler that forwards requests to another shard.
func (p *Peers) Handler(shard string) http.Handler { return p.forwarder.To(shard) }

// Command returns a client of the commands of another shard.
func (p *Peers) Command(shard string) *control.Client {
	return control.NewClientTo("in shard "+shard, maxAnswer, func(ctx context.Context) (net.Conn, error) { return p.forwarder.Dial(ctx, shard) })
}

// Waiting returns how many requests have been forwarded, and aren't answered yet.
func (p *Peers) Waiting() int { return p.forwarder.Waiting() }

// locate returns the address of a shard.
func (p *Peers) locate(shard string) (string, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	address := p.shards[shard].address
	if address == "" {
		return "", fmt.Errorf("there is no shard %s, or it has never run", shard)
	}
	return address, nil
}

// watch follows the addresses of the shards until ctx ends.
func (p *Peers) watch(ctx context.Context) {
	hostwatch.Objects(ctx, inNamespace{p.host, p.config.Namespace}, "shards", &v1alpha1.Shard{}, func() client.ObjectList { return &v1alpha1.ShardList{} },
		&hostwatch.Store[*v1alpha1.Shard, peer]{
			Change: func(_ bool, change func(map[string]peer)) {
				p.mu.Lock()
				defer p.mu.Unlock()
				change(p.shards)
			},
			Value: func(s *v1alpha1.Shard) peer {
				takes := s.Spec.PlatformName == p.config.Platform && !ptr.Deref(s.Spec.Drain, false) && !ptr.Deref(s.Spec.Unschedulable, false) &&
					meta.IsStatusConditionTrue(s.Status.Conditions, v1alpha1.ConditionReady) && !meta.IsStatusConditionTrue(s.Status.Conditions, v1alpha1.ConditionDraining)
				return peer{s.Status.Address, takes}
			},
		})
}

// peer is what is known of a shard: its address, and whether it takes spaces of others.
type peer struct {
	address string
	takes   bool
}

// Drain waits until the spaces that move have moved to other shards, or for [Options.DrainTimeout], before the process stops. left returns
// how many there are. It also waits until clients are led to other shards. If no other shard takes spaces, or the host refuses to know that this
// one stops, it doesn't wait.
func (p *Peers) Drain(left func() int) {
	p.stopping.Store(true)
	if p.config.DrainTimeout == 0 || !p.hasOther() {
		return
	}
	led := time.After(min(leadTime, p.config.DrainTimeout))
	p.draining.Store(true)
	select {
	case p.changed <- struct{}{}:
	default:
	}
	p.config.Logger.Info("Stopping when the spaces of this shard have moved to others", "spaces", left(), "timeout", p.config.DrainTimeout)
	ctx, cancel := context.WithTimeout(context.Background(), p.config.DrainTimeout)
	defer cancel()
	select {
	case <-led: // by now, a space that was received before is here, unless the host is slow
	case <-p.ended:
	}
	err := wait.PollUntilContextCancel(ctx, drainInterval, true, func(context.Context) (bool, error) {
		select {
		case <-p.ended:
			return true, nil
		default:
			return left() == 0 || !p.hasOther() || p.refused.Load() >= maxRefused, nil
		}
	})
	if p.refused.Load() >= maxRefused {
		err = errors.New("the host refuses the status of this shard")
	}
	if rest := left(); rest > 0 {
		p.config.Logger.Info("Stopping with spaces that have not moved; they don't answer until this shard is back", "spaces", rest, "reason", fmt.Sprint(err))
	}
}

// Stopping reports whether this process is about to stop.
func (p *Peers) Stopping() bool { return p.stopping.Load() }

// Others returns the names of the other shards of which there is an object.
func (p *Peers) Others() (names []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for name := range p.shards {
		if name != p.config.Name {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// hasOther reports whether another shard takes spaces.
func (p *Peers) hasOther() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for name, other := range p.shards {
		if other.takes && name != p.config.Name {
			return true
		}
	}
	return false
}

// inNamespace is a client that lists and watches one namespace only.
type inNamespace struct {
	client.WithWatch
	namespace string
}

// List implements [client.Reader].
func (c inNamespace) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	return c.WithWatch.List(ctx, list, append(opts, client.InNamespace(c.namespace))...)
}

// Watch implements [client.WithWatch].
func (c inNamespace) Watch(ctx context.Context, list client.ObjectList, opts ...client.ListOption) (watch.Interface, error) {
	return c.WithWatch.Watch(ctx, list, append(opts, client.InNamespace(c.namespace))...)
}

// report writes the status of the shard when it changes, until ctx ends, and then that it has ended.
func (p *Peers) report(ctx context.Context, load func() Load) {
	ready := metav1.Condition{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: "Serving", Message: "the shard serves its spaces"}
	failing := false
	ticker := time.NewTicker(statusInterval)
	defer ticker.Stop()
	for ctx.Err() == nil {
		err := p.writeStatus(ctx, load(), ready)
		if apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) {
			p.refused.Add(1)
		} else {
			p.refused.Store(0)
		}
		if failed := err != nil && ctx.Err() == nil; failed != failing {
			failing = failed
			if failed {
				p.config.Logger.Error(err, "Could not write the status of this shard; Berth retries", "after", statusInterval)
			}
		}
		select {
		case <-ctx.Done():
		case <-ticker.C:
		case <-p.changed:
		}
	}
	ready.Status, ready.Reason, ready.Message = metav1.ConditionFalse, "Stopped", "the process of the shard has ended, and starts again or was removed"
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), renewTimeout)
	defer cancel()
	if err := p.writeStatus(ending, load(), ready); err != nil {
		p.config.Logger.Error(err, "Could not note that this shard has ended")
	}
}

// writeStatus writes the status of the shard, and creates its object first if there is none.
func (p *Peers) writeStatus(ctx context.Context, load Load, ready metav1.Condition) error {
	object := &v1alpha1.Shard{}
	err := p.host.Get(ctx, client.ObjectKey{Namespace: p.config.Namespace, Name: p.config.Name}, object)
	if apierrors.IsNotFound(err) {
		object = &v1alpha1.Shard{
			ObjectMeta: metav1.ObjectMeta{Namespace: p.config.Namespace, Name: p.config.Name}, Spec: v1alpha1.ShardSpec{PlatformName: p.config.Platform},
		}
		err = p.host.Create(ctx, object)
	}
	if err != nil {
		return fmt.Errorf("read Shard %s: %w", p.config.Name, err)
	}
	updated := object.DeepCopy()
	status := &updated.Status
	status.Address, status.Version, status.KubernetesVersion = p.config.Address, p.config.Berth, p.config.Kubernetes
	status.Spaces, status.Awake = ptr.To(int32(load.Spaces)), ptr.To(int32(load.Awake)) //nolint:gosec // they fit into a process
	status.Memory, status.MemoryLimit = roundedMemory(load.Memory, status.Memory), roundedMemory(load.MemoryLimit, status.MemoryLimit)
	status.DedicatedMax = load.DedicatedMax
	status.Retained, status.Zone, status.SpaceSelector = load.Retained, p.config.Zone, p.config.Selector
	ready.ObservedGeneration = updated.Generation
	meta.SetStatusCondition(&status.Conditions, ready)
	if p.draining.Load() {
		meta.SetStatusCondition(&status.Conditions, metav1.Condition{
			Type: v1alpha1.ConditionDraining, Status: metav1.ConditionTrue, Reason: "Stopping", Message: "the process stops when its spaces have moved to other shards", ObservedGeneration: updated.Generation,
		})
	} else {
		meta.RemoveStatusCondition(&status.Conditions, v1alpha1.ConditionDraining)
	}
	if equality.Semantic.DeepEqual(object.Status, updated.Status) {
		return nil
	}
	if err := p.host.Status().Patch(ctx, updated, client.MergeFrom(object)); err != nil {
		return fmt.Errorf("write the status of Shard %s: %w", p.config.Name, err)
	}
	return nil
}

// roundedMemory is an amount of memory in whole MiB, and the one before if it has hardly changed, so that an idle shard writes nothing.
func roundedMemory(bytes int64, before *resource.Quantity) *resource.Quantity {
	if bytes <= 0 {
		return nil
	}
	if before != nil {
		if was := before.Value(); max(was, bytes)-min(was, bytes) < was/20 {
			return before
		}
	}
	return resource.NewQuantity(bytes>>20<<20, resource.BinarySI)
}
