// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package publications gives the spaces of a platform the objects of their publications, whether they sleep or not. The
// manager calls it. It never talks to a space: it renders copies, and package specs hands them to what runs the space.
package publications

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/access"
	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/internal/safego"
	"github.com/berth-dev/berth/published"
	"github.com/berth-dev/berth/published/expression"
)

const (
	// settleTime is how long a change waits for the next one: a publication has up to some hundred objects.
	settleTime = 100 * time.Millisecond
	// firstRead limits how long the start of a platform waits for the objects. If the host doesn't give them, spaces keep the
	// copies that they have.
	firstRead = 5 * time.Second
)

// Publications are those of all spaces of a platform. It is safe for concurrent use.
type Publications struct {
	store   *published.Store
	render  func(space string) // has a space's copies rendered again
	logger  klog.Logger
	read    chan struct{} // closed when the objects have been read
	pending chan struct{} // has an element if changed is not empty

	mu       sync.Mutex
	spaces   map[string]of
	changed  map[string]bool // publications
	all      bool            // all publications have changed
	problems map[string]string
}

// of is what a space's Space object says.
type of struct {
	tenant, space expression.Subject
	publications  []string
}

// New returns publications of which nothing was read. Render is called with the name of a space whose copies have changed,
// and has to call [Publications.Published].
func New(render func(space string), logger klog.Logger) (*Publications, error) {
	p := &Publications{
		render: render, logger: logger, read: make(chan struct{}), pending: make(chan struct{}, 1),
		spaces: map[string]of{}, changed: map[string]bool{}, problems: map[string]string{},
	}
	store, err := published.NewStore(p.note)
	p.store = store
	return p, err
}

// Run watches the objects until stop is called. It returns when they have been read, or after a few seconds. It may be called
// once.
func (p *Publications) Run(ctx context.Context, host client.WithWatch) (stop func()) {
	watching, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var group sync.WaitGroup
	safego.Go(&group, "watch published objects", func() { p.store.Run(watching, host) }, nil)
	safego.Go(&group, "render published objects", func() { p.follow(watching) }, nil)
	limit := time.NewTimer(firstRead)
	defer limit.Stop()
	select {
	case <-p.read:
	case <-ctx.Done():
	case <-limit.C:
		p.logger.Error(nil, "Could not read the published objects from the host yet; spaces keep the copies that they have", "after", firstRead)
	}
	return func() {
		cancel()
		group.Wait()
	}
}

// note is called by the store.
func (p *Publications) note(publications []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(publications) == 0 {
		p.all = true
		close(p.read)
	}
	for _, name := range publications {
		p.changed[name] = true
	}
	select {
	case p.pending <- struct{}{}:
	default:
	}
}

// follow has the copies of spaces rendered again after changes.
func (p *Publications) follow(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.pending:
		}
		settle := time.NewTimer(settleTime)
		select {
		case <-ctx.Done():
			settle.Stop()
			return
		case <-settle.C:
		}
		for _, space := range p.concerned() {
			p.render(space)
		}
	}
}

// concerned returns the spaces with publications that have changed.
func (p *Publications) concerned() (spaces []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for name, space := range p.spaces {
		if len(space.publications) > 0 && p.all || slices.ContainsFunc(space.publications, func(publication string) bool { return p.changed[publication] }) {
			spaces = append(spaces, name)
		}
	}
	p.all = false
	clear(p.changed)
	slices.Sort(spaces)
	return spaces
}

// Observe notes what an object says of its space, and has the copies rendered again if that makes a difference.
func (p *Publications) Observe(object *v1alpha1.Space) {
	is := of{publications: object.Spec.Publications}
	is.tenant, is.space = published.SubjectsOf(object)
	p.mu.Lock()
	was, known := p.spaces[object.Name]
	p.spaces[object.Name] = is
	p.mu.Unlock()
	if known && len(is.publications) > 0 && (!same(was.tenant, is.tenant) || !same(was.space, is.space)) {
		p.render(object.Name)
	}
}

func same(a, b expression.Subject) bool { return a.Name == b.Name && maps.Equal(a.Labels, b.Labels) }

// Forget forgets a deleted space.
func (p *Publications) Forget(space string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.spaces, space)
	delete(p.problems, space)
}

// Published implements specs.Publications.
func (p *Publications) Published(space, tenant string, publications []string) (objects []access.Published, known bool) {
	p.mu.Lock()
	subjects, seen := p.spaces[space]
	p.mu.Unlock()
	if !seen { // it was restored, and its object is about to be seen
		subjects = of{space: expression.Subject{Name: space}, tenant: expression.Subject{Name: tenant}}
	}
	result, err := p.store.Render(context.Background(), publications, subjects.tenant, subjects.space)
	if err == nil {
		err = errors.Join(result.Problems...)
	} else {
		result.Incomplete = true
	}
	p.report(space, err)
	return result.Objects, !result.Incomplete
}

// report logs why copies are missing, once.
func (p *Publications) report(space string, err error) {
	text := ""
	if err != nil && !errors.Is(err, published.ErrNotRead) {
		text = err.Error()
	}
	p.mu.Lock()
	isNew := p.problems[space] != text
	if p.problems[space] = text; text == "" {
		delete(p.problems, space)
	}
	p.mu.Unlock()
	if isNew && text != "" {
		p.logger.Error(err, "Could not render all published objects of a space", "space", space)
	}
}
