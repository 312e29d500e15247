// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"context"
	"errors"
	"math/rand/v2"

	"go.etcd.io/etcd/client/v3/kubernetes"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/etcd3"

	"github.com/berth-dev/berth/bounds"
	"github.com/berth-dev/berth/internal/heapsize"
	"github.com/berth-dev/berth/vcluster/requests"
)

// sampleEvery is how often an object of a list is measured, at random, so that nobody can make those that are not measured
// the large ones. To measure one takes about a fifth of the time that it takes to decode it.
const sampleEvery = 8

// GetList takes what it reads and decodes from the request's reservation. A page that finds no place is tried again as a
// smaller one: a server may return less than was asked for.
func (b *boundedStorage) GetList(ctx context.Context, key string, opts storage.ListOptions, list runtime.Object) error {
	if bounds.ReservationOf(ctx) == nil {
		ctx, there := withFirstCount(ctx)
		if err := b.Interface.GetList(ctx, key, opts, list); err != nil {
			return b.tell(err)
		}
		return there.correct(list)
	}
	for {
		ctx, there := withFirstCount(ctx)
		ctx, read := requests.Reading(ctx)
		m := &listMemory{reservation: read, answer: requests.AnswerOf(ctx).AnswerCost}
		err := b.Interface.GetList(m.in(ctx), key, m.watchMatches(opts), list)
		if m.err != nil {
			err = m.err
		}
		if err == nil {
			return there.correct(list)
		}
		read.End() // what was read and not decoded, too
		if opts.Predicate.Limit <= 1 || !errors.Is(err, bounds.ErrExceeded) {
			return b.tell(err)
		}
		opts.Predicate.Limit = max(1, opts.Predicate.Limit/4)
		if err := meta.SetList(list, nil); err != nil {
			return err
		}
	}
}

// firstCount is how many objects there were from the first one of a page on. etcd3 takes what remains after the page from
// the last of the ranges that it read, which begins behind the first object if the store cut the page in several.
type firstCount struct {
	known bool
	count int64
}

type firstCountKey struct{}

func withFirstCount(ctx context.Context) (context.Context, *firstCount) {
	c := &firstCount{}
	return context.WithValue(ctx, firstCountKey{}, c), c
}

// correct puts right how many objects remain after a page, if it says so.
func (c *firstCount) correct(list runtime.Object) error {
	l, err := meta.ListAccessor(list)
	if err != nil || l.GetRemainingItemCount() == nil {
		return err
	}
	l.SetRemainingItemCount(nil)
	if remaining := c.count - int64(meta.LenList(list)); c.known && remaining > 0 {
		l.SetRemainingItemCount(&remaining)
	}
	return nil
}

// countingStore is a store that notes the count of the first range of each page.
type countingStore struct{ kubernetes.Interface }

func (s countingStore) List(ctx context.Context, prefix string, opts kubernetes.ListOptions) (kubernetes.ListResponse, error) {
	resp, err := s.Interface.List(ctx, prefix, opts)
	if c, ok := ctx.Value(firstCountKey{}).(*firstCount); ok && err == nil && !c.known {
		c.known, c.count = true, resp.Count
	}
	return resp, err
}

// listMemory is what one list takes. What the store reads for it is freed as it is decoded.
type listMemory struct {
	reservation *bounds.Reservation
	answer      requests.AnswerCost
	held        int64 // decoded
	last        int64 // of it, the object that was decoded last
	err         error

	measured, stored int64 // of the objects that were measured: their size in memory, and in the store
}

type listMemoryKey struct{}

func (m *listMemory) in(ctx context.Context) context.Context {
	return context.WithValue(ctx, listMemoryKey{}, m)
}

// decoded notes that an object was decoded. It is held until the list is written, with what it takes encoded.
func (m *listMemory) decoded(object runtime.Object, stored int64) error {
	m.reservation.Shrink(stored)
	if m.stored == 0 || rand.IntN(sampleEvery) == 0 { //nolint:gosec // nobody can foretell it
		m.measured += heapsize.Of(object)
		m.stored += max(stored, 1)
	}
	decoded := int64(float64(stored) * float64(m.measured) / float64(m.stored))
	m.last = decoded + m.answer.Of(stored, decoded) + m.answer.Indentation(object)
	if err := m.reservation.Grow(m.last); err != nil {
		m.err = err
		return err
	}
	m.held += m.last
	return nil
}

// watchMatches gives back what objects take that the list is not for.
func (m *listMemory) watchMatches(opts storage.ListOptions) storage.ListOptions {
	opts.Predicate = onMismatch(opts.Predicate, func(runtime.Object) {
		m.reservation.Shrink(m.last)
		m.held -= m.last
		m.last = 0
	})
	return opts
}

// onMismatch returns a predicate like p that calls f with each object that does not match.
func onMismatch(p storage.SelectionPredicate, f func(runtime.Object)) storage.SelectionPredicate {
	if p.Empty() {
		return p
	}
	attributes := p.GetAttrs
	original := p
	p.GetAttrs = func(object runtime.Object) (labels.Set, fields.Set, error) {
		l, fs, err := attributes(object)
		if err != nil || !original.MatchesObjectAttributes(l, fs) {
			f(object)
		}
		return l, fs, err
	}
	return p
}

// accountedDecoder tells a list what it decodes.
type accountedDecoder struct{ etcd3.Decoder }

func (d accountedDecoder) DecodeListItem(ctx context.Context, data []byte, rev uint64, newItem func() runtime.Object) (runtime.Object, error) {
	object, err := d.Decoder.DecodeListItem(ctx, data, rev, newItem)
	if m, ok := ctx.Value(listMemoryKey{}).(*listMemory); ok && err == nil {
		err = m.decoded(object, int64(len(data)))
	}
	return object, err
}

// Get takes what the object holds from the request's reservation, besides what was read of the store.
func (b *boundedStorage) Get(ctx context.Context, key string, opts storage.GetOptions, object runtime.Object) error {
	err := b.Interface.Get(ctx, key, opts, object)
	if reservation := bounds.ReservationOf(ctx); err == nil && reservation != nil {
		// What is stored is no more than what is decoded, and was taken already, once.
		size, answer := heapsize.Of(object), requests.AnswerOf(ctx)
		err = reservation.Grow(size + answer.Of(size, size) - requests.Streamed.Of(size, size) + answer.Indentation(object))
	}
	if err == nil {
		err = requests.AdmitPatch(ctx, object) // a dry run updates what it gets
	}
	return b.tell(err)
}
