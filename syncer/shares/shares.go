// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package shares

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/sharing"
	"github.com/berth-dev/berth/syncer/engine"
	"github.com/berth-dev/berth/syncer/resources"
	"github.com/berth-dev/berth/translate"
)

const (
	// resource is that of the keys in the queue.
	resource = "sharedobjects"
	// BytesPerSecond limits writes after a burst of as much as a space may share: each becomes a version in the host's store, twice, and
	// reaches all spaces below.
	BytesPerSecond = 16 << 10
	// leastBytes is what a smaller object counts as.
	leastBytes = 4 << 10
	// page is how many are read from the host at once.
	page = 16
	// writePause is when to try again what came too soon.
	writePause = time.Second
)

// Syncer writes the SharedObjects of one space. All that it does follows from the objects of the space and of the host, so that a
// crash loses nothing.
type Syncer struct {
	*engine.Engine
	host   client.Client // acts as the space's account
	source sharing.Source
	pace   *rate.Limiter

	mu sync.Mutex // held while a key is processed
	// written are the SharedObjects on the host, by their source, and sources are these by the names of the SharedObjects. Both are
	// nil until they are listed.
	written map[sharing.Name]written
	sources map[string]sharing.Name
}

// written is what is remembered of a SharedObject.
type written struct {
	name, version string
	uid           types.UID
	sum           [sha256.Size]byte // of its spec
	bytes         int
}

// Declare has an engine share what the source finds. The client acts as the space's account.
func Declare(e *engine.Engine, host client.Client, source sharing.Source) {
	s := &Syncer{Engine: e, host: host, source: source, pace: rate.NewLimiter(BytesPerSecond, sharing.MaxBytes)}
	e.Work[resource] = s.process
	e.Sources.Add(func(q *engine.Queue) (func(), func() bool, error) {
		all := func() { q.Add(engine.Key{Resource: resource}) }
		source.FollowShared(func(name sharing.Name) { q.Add(keyOf(name)) }, all)
		all()
		return func() {}, nil, nil
	})
}

// keyOf returns the key of an object. Its name begins with the resource.
func keyOf(name sharing.Name) engine.Key {
	return engine.Key{Resource: resource, NamespacedName: types.NamespacedName{Namespace: name.Namespace, Name: name.Resource + "/" + name.Name}}
}

func (s *Syncer) process(ctx context.Context, key types.NamespacedName) (time.Duration, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.list(ctx); err != nil {
		return 0, err
	}
	if key.Name == "" {
		for name := range s.written {
			s.Queue.Add(keyOf(name))
		}
		return 0, s.source.EachShared(ctx, func(name sharing.Name) { s.Queue.Add(keyOf(name)) })
	}
	plural, name, _ := strings.Cut(key.Name, "/")
	return s.share(ctx, sharing.Name{Resource: plural, NamespacedName: types.NamespacedName{Namespace: key.Namespace, Name: name}})
}

// list finds what is on the host. SharedObjects that this package didn't write are deleted.
func (s *Syncer) list(ctx context.Context) error {
	if s.written != nil {
		return nil
	}
	all, sources := map[sharing.Name]written{}, map[string]sharing.Name{}
	list := &v1alpha1.SharedObjectList{}
	for {
		err := s.host.List(ctx, list, client.InNamespace(s.Space.HostNamespace()), client.Limit(page), client.Continue(list.Continue))
		if err != nil && !apierrors.IsNotFound(err) && !meta.IsNoMatchError(err) {
			// With Forbidden, too, there may be some: a host that just started doesn't know the account's rights yet.
			return fmt.Errorf("list shared objects: %w", err)
		}
		// If the host doesn't have the definition, there are none.
		for i := range list.Items {
			if err := s.rememberOrDelete(ctx, &list.Items[i], all, sources); err != nil {
				return err
			}
		}
		if err != nil || list.Continue == "" {
			break
		}
	}
	s.written, s.sources = all, sources
	return nil
}

// rememberOrDelete adds a SharedObject of the host to what is written. It deletes one that this package didn't write.
func (s *Syncer) rememberOrDelete(ctx context.Context, o *v1alpha1.SharedObject, all map[sharing.Name]written, sources map[string]sharing.Name) error {
	object := &unstructured.Unstructured{}
	err := json.Unmarshal(o.Spec.Object.Raw, &object.Object)
	kind, ok := sharing.KindFor(object.GroupVersionKind())
	name := sharing.Name{Resource: kind.Resource, NamespacedName: client.ObjectKeyFromObject(object)}
	if _, twice := all[name]; err != nil || !ok || twice {
		if err := s.host.Delete(ctx, o, client.Preconditions{UID: &o.UID}); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("delete shared object %s, which Berth didn't write: %w", o.Name, err)
		}
		return nil
	}
	all[name], sources[o.Name] = remember(o), name
	return nil
}

func remember(o *v1alpha1.SharedObject) written {
	// The host stores the JSON in another order than it was sent.
	content, _ := normalized(o.Spec.Object.Raw)
	return written{o.Name, o.ResourceVersion, o.UID, sha256.Sum256(append([]byte(o.Spec.Scope), content...)), len(content)}
}

func normalized(text []byte) ([]byte, error) {
	var value any
	if err := json.Unmarshal(text, &value); err != nil {
		return nil, err
	}
	return json.Marshal(value)
}

// share makes the SharedObject of an object what it has to be.
func (s *Syncer) share(ctx context.Context, name sharing.Name) (time.Duration, error) {
	kind, ok := sharing.KindNamed(name.Resource)
	if !ok {
		return 0, nil
	}
	example, err := resources.Scheme().New(kind.GroupVersionKind)
	if err != nil {
		return 0, fmt.Errorf("share %s: %w", name, err)
	}
	source, ok := example.(client.Object)
	if !ok {
		return 0, fmt.Errorf("share %s: %s has no metadata", name, kind.Kind)
	}
	err = s.VirtualAPI.Get(ctx, name.NamespacedName, source)
	if client.IgnoreNotFound(err) != nil {
		return 0, fmt.Errorf("read %s: %w", name, err)
	}
	have, has := s.written[name]
	value, shared := source.GetLabels()[v1alpha1.LabelShare]
	if err != nil || !shared || source.GetDeletionTimestamp() != nil {
		if has {
			return 0, s.remove(ctx, name, have)
		}
		return 0, nil
	}
	want, err := s.wanted(kind, source, value)
	if err == nil {
		err = s.fits(name, want)
	}
	if err != nil {
		if has {
			if err := s.remove(ctx, name, have); err != nil {
				return 0, err
			}
		}
		return 0, s.Refuse(source, err)
	}
	if after := remember(want); has && have.sum == after.sum {
		return 0, nil
	}
	if !s.pace.AllowN(s.Clock.Now(), max(leastBytes, len(want.Spec.Object.Raw))) {
		return writePause, nil
	}
	if err := s.write(ctx, name, want); err != nil {
		s.written = nil // somebody else may have written; look again
		if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err) {
			return 0, fmt.Errorf("share %s: %w", name, err)
		}
		return 0, s.Refuse(source, err)
	}
	return 0, nil
}

// wanted returns the SharedObject of an object, without its name.
func (s *Syncer) wanted(kind sharing.Kind, source client.Object, value string) (*v1alpha1.SharedObject, error) {
	scope, err := sharing.ScopeOf(value)
	if err != nil {
		return nil, engine.Forbids(err)
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(source)
	if err != nil {
		return nil, fmt.Errorf("convert the object: %w", err)
	}
	object := &unstructured.Unstructured{Object: content}
	object.SetGroupVersionKind(kind.GroupVersionKind)
	object = sharing.Clean(object)
	if err := sharing.Check(object); err != nil {
		return nil, engine.Forbids(err)
	}
	text, err := json.Marshal(object.Object)
	if err != nil {
		return nil, fmt.Errorf("encode the object: %w", err)
	}
	return &v1alpha1.SharedObject{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: s.Space.HostNamespace(), Labels: map[string]string{translate.LabelSpace: s.Space.Name, translate.LabelManagedBy: translate.ManagedBy},
		},
		Spec: v1alpha1.SharedObjectSpec{Object: runtime.RawExtension{Raw: text}, Scope: scope},
	}, nil
}

// fits returns why an object can't be shared besides the others.
func (s *Syncer) fits(name sharing.Name, want *v1alpha1.SharedObject) error {
	bytes := len(want.Spec.Object.Raw)
	if bytes > sharing.MaxObjectBytes {
		return engine.Forbids(fmt.Errorf("%s: the object has %d KiB, and a shared object may have at most %d KiB", sharing.LabelField, bytes>>10, sharing.MaxObjectBytes>>10))
	}
	count := 1
	for other, have := range s.written {
		if other != name {
			count++
			bytes += have.bytes
		}
	}
	if count > sharing.MaxObjects || bytes > sharing.MaxBytes {
		return engine.Forbids(fmt.Errorf("%s: a space may share at most %d objects, and %d MiB of them; share fewer",
			sharing.LabelField, sharing.MaxObjects, sharing.MaxBytes>>20))
	}
	return nil
}

var errNoName = errors.New("no name is free")

func (s *Syncer) write(ctx context.Context, name sharing.Name, want *v1alpha1.SharedObject) error {
	if have, has := s.written[name]; has {
		want.Name, want.UID, want.ResourceVersion = have.name, have.uid, have.version
		if err := s.host.Update(ctx, want); err != nil {
			return err
		}
		s.written[name] = remember(want)
		return nil
	}
	for i := range sharing.MaxObjects {
		want.Name = sharing.ObjectName(i)
		if _, taken := s.sources[want.Name]; taken {
			continue
		}
		if err := s.host.Create(ctx, want); err != nil {
			return err
		}
		s.written[name], s.sources[want.Name] = remember(want), name
		return nil
	}
	return errNoName
}

func (s *Syncer) remove(ctx context.Context, name sharing.Name, have written) error {
	object := &v1alpha1.SharedObject{ObjectMeta: metav1.ObjectMeta{Namespace: s.Space.HostNamespace(), Name: have.name}}
	err := s.host.Delete(ctx, object, client.Preconditions{UID: ptr.To(have.uid)})
	if client.IgnoreNotFound(err) != nil && !apierrors.IsConflict(err) { // with a conflict, another has its name
		return fmt.Errorf("delete shared object %s: %w", have.name, err)
	}
	delete(s.written, name)
	delete(s.sources, have.name)
	if apierrors.IsConflict(err) {
		s.written = nil
	}
	return nil
}
